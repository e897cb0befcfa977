package memkv_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, func(t *testing.T) kv.Database {
		db, err := memkv.Open(memkv.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	})
}

func TestOpenByURL(t *testing.T) {
	t.Parallel()
	db, err := kv.Open(t.Context(), "mem:")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = kv.Open(t.Context(), "mem://somewhere")
	require.ErrorContains(t, err, "has no name")
}
