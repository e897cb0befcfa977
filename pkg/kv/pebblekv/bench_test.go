package pebblekv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/pebblekv"
)

func BenchmarkDurableCommits(b *testing.B) {
	kvtest.BenchmarkDurableCommits(b, func(b *testing.B) kv.Database {
		db, err := pebblekv.Open(b.TempDir(), pebblekv.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, db.Close()) })
		return db
	})
}
