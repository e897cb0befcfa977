package kv_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	_ "settee/pkg/kv/memkv"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	db, err := kv.Open(t.Context(), "mem:", kv.Options{})
	require.NoError(t, err)
	assert.False(t, kv.Exclusive(db), "it is no store that a process could find again")
	assert.NoError(t, kv.Writable(db).Err())
	require.NoError(t, db.Close())
	assert.Contains(t, kv.Engines(), "mem")
	require.NoError(t, kv.Check("mem:"))

	// Each of these fails, and the error says what to do.
	for url, says := range map[string]string{
		"fdb:///etc/fdb.cluster?prefix=settee": "built without FoundationDB; \"make build-fdb\" builds one",
		"/var/lib/settee":                      "a store is a URL such as pebble:///var/lib/settee",
		"redis://here":                         `unknown engine "redis", this binary has mem`,
		"pebble://%zz":                         "is not a URL",
		"mem:name":                             "a store in memory has no name",
	} {
		if url[:3] == "fdb" && slices.Contains(kv.Engines(), "fdb") {
			continue
		}
		_, err := kv.Open(t.Context(), url, kv.Options{})
		require.ErrorContains(t, err, says, url)
		assert.Equal(t, err, kv.Check(url))
	}
}
