// Package enginetest opens stores for the tests of the layers above pkg/kv: in memory, on disk, and on the FoundationDB
// cluster that kvtest.ClusterVariable names. Every store is empty, and is closed when its test ends.
package enginetest

import (
	"os"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"settee/internal/seeds"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/memkv"
	"settee/pkg/kv/pebblekv"
)

// Each runs a parallel test on pebblekv, and on FoundationDB if there is a cluster, as a subtest with the engine's name. If
// all rounds run (see package seeds), it also runs it on memkv, which passes the same suite as pebblekv (package kvtest) and
// has the same transactions (package optimistic).
func Each(t *testing.T, test func(t *testing.T, db kv.Database)) {
	t.Helper()
	t.Parallel()
	if seeds.All(t) {
		t.Run("memkv", func(t *testing.T) {
			t.Parallel()
			test(t, Memory(t))
		})
	}
	OnCluster(t, test)
	t.Run("pebblekv", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, "/store", pebblekv.Options{FS: vfs.NewMem()}))
	})
}

// OnCluster runs a test on FoundationDB, as the subtest fdbkv, if there is a cluster.
func OnCluster(t *testing.T, test func(t *testing.T, db kv.Database)) {
	t.Helper()
	if os.Getenv(kvtest.ClusterVariable) == "" {
		return
	}
	t.Run("fdbkv", func(t *testing.T) { test(t, ClusterOr(t, Memory)) })
}

// ClusterOr opens a store on FoundationDB if there is a cluster, and calls other if there is none.
func ClusterOr(t testing.TB, other func(testing.TB) kv.Database) kv.Database {
	t.Helper()
	db, ok := kvtest.Cluster(t)
	if !ok {
		return other(t)
	}
	closeLater(t, db)
	return db
}

// InBubble runs a parallel test on a store in memory, in a synctest bubble, where time passes only while all goroutines
// wait.
func InBubble(t *testing.T, test func(t *testing.T, db kv.Database)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, Memory(t)) })
}

// Memory opens a store in memory.
func Memory(t testing.TB) kv.Database {
	t.Helper()
	return MemoryWith(t, memkv.Options{})
}

// MemoryWith opens a store in memory with options.
func MemoryWith(t testing.TB, opts memkv.Options) kv.Database {
	t.Helper()
	db, err := memkv.Open(opts)
	require.NoError(t, err)
	closeLater(t, db)
	return db
}

// Disk opens a store in a directory on disk.
func Disk(t testing.TB) kv.Database {
	t.Helper()
	return open(t, t.TempDir(), pebblekv.Options{})
}

func open(t testing.TB, dir string, opts pebblekv.Options) kv.Database {
	t.Helper()
	db, err := pebblekv.Open(dir, opts)
	require.NoError(t, err)
	closeLater(t, db)
	return db
}

func closeLater(t testing.TB, db kv.Database) {
	t.Cleanup(func() { require.NoError(t, db.Close()) })
}

// UnknownOnce wraps a store so that each of its commits is reported unknown once.
func UnknownOnce(db kv.Database) kv.Database {
	return faultkv.Wrap(db, faultkv.Options{Script: faultkv.UnknownOnce})
}
