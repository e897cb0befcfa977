//go:build fdb

package fdbkv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
)

func BenchmarkDurableCommits(b *testing.B) {
	kvtest.BenchmarkDurableCommits(b, func(b *testing.B) kv.Database {
		db, ok := kvtest.Cluster(b)
		if !ok {
			b.Skip(kvtest.ClusterVariable + " names no cluster")
		}
		b.Cleanup(func() { require.NoError(b, db.Close()) })
		return db
	})
}
