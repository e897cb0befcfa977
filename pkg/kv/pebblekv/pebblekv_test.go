package pebblekv_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/kv"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/pebblekv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string, opts pebblekv.Options) kv.Database {
	t.Helper()
	db, err := pebblekv.Open(dir, opts)
	require.NoError(t, err)
	return db
}

func TestConformance(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, func(t *testing.T) kv.Database {
		db := open(t, t.TempDir(), pebblekv.Options{})
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	})
}

// stampedWrite commits one key that holds the commit's stamp and returns it.
func stampedWrite(ctx context.Context, db kv.Database) (kv.Versionstamp, error) {
	var stamp kv.Future[kv.Versionstamp]
	err := db.Transact(ctx, func(tx kv.Transaction) error {
		tx.SetVersionstampedKey(make([]byte, 14), []byte("x"))
		stamp = tx.Versionstamp()
		return nil
	})
	if err != nil {
		return kv.Versionstamp{}, err
	}
	return stamp.Await()
}

func TestReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var last string
	for range 5 {
		db := open(t, dir, pebblekv.Options{})
		stamp, err := stampedWrite(t.Context(), db)
		require.NoError(t, err)
		require.Greater(t, string(stamp[:]), last, "stamps grow across restarts")
		last = string(stamp[:])
		require.NoError(t, db.Close())
	}
	db := open(t, dir, pebblekv.Options{})
	pairs, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.GetRange(kv.PrefixRange(nil), kv.RangeOptions{}).Slice()
	})
	require.NoError(t, err)
	require.Len(t, pairs, 5)
	require.NoError(t, db.Close())
	require.ErrorIs(t, db.Transact(t.Context(), func(kv.Transaction) error { return nil }), kv.ErrClosed)
}

func TestOneProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir, pebblekv.Options{})
	_, err := pebblekv.Open(dir, pebblekv.Options{})
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "several nodes need FoundationDB")
	require.NoError(t, db.Close())
}

func TestURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := kv.Open(t.Context(), (&url.URL{Scheme: "pebble", Path: dir}).String())
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for raw, want := range map[string]string{
		"pebble:":            "names no directory",
		"pebble://var/lib/x": "three slashes",
		"pebble:///x?a=b":    "no parameters",
		"fdb:///etc/x":       "built without FoundationDB",
		"bolt:///x":          "unknown engine",
		"/var/lib/x":         "a store is a URL",
	} {
		_, err := kv.Open(t.Context(), raw)
		require.ErrorContains(t, err, want, raw)
	}
}

// TestPowerCut drops unsynced data at random and looks for what was
// acknowledged.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	require.Zero(t, missingAfterPowerCuts(t, pebblekv.Options{}), "acknowledged commits are durable")
	require.NotZero(t, missingAfterPowerCuts(t, pebblekv.Options{NoSync: true}), "the test sees a missing sync")
}

func missingAfterPowerCuts(t *testing.T, opts pebblekv.Options) (missing int) {
	random := rand.New(rand.NewPCG(11, 11))
	fs := vfs.NewCrashableMem()
	var stamps []kv.Versionstamp
	for range 50 {
		opts.FS = fs
		db := open(t, "/store", opts)
		present, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) (map[string]bool, error) {
			keys := map[string]bool{}
			for pair, err := range tx.GetRange(kv.PrefixRange(nil), kv.RangeOptions{}).All() {
				if err != nil {
					return nil, err
				}
				keys[string(pair.Key)] = true
			}
			return keys, nil
		})
		require.NoError(t, err)
		for _, stamp := range stamps {
			if !present[string(stamp[:])] {
				missing++
			}
		}
		for range 1 + random.IntN(5) {
			stamp, err := stampedWrite(t.Context(), db)
			require.NoError(t, err)
			if n := len(stamps); n > 0 && missing == 0 {
				require.Greater(t, string(stamp[:]), string(stamps[n-1][:]))
			}
			stamps = append(stamps, stamp)
		}
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: random})
		require.NoError(t, db.Close())
		fs = crashed
	}
	return missing
}

// gate lets syncs of the log through, or holds them.
type gate struct {
	hold atomic.Pointer[chan struct{}]
}

func (g *gate) fs(inner vfs.FS) vfs.FS {
	return errorfs.Wrap(inner, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if held := g.hold.Load(); held != nil {
				<-*held
			}
		}
		return nil
	}))
}

func TestContextEndsDuringCommit(t *testing.T) {
	t.Parallel()
	var g gate
	db := open(t, "/store", pebblekv.Options{FS: g.fs(vfs.NewMem())})
	held := make(chan struct{})
	g.hold.Store(&held)
	ctx, cancel := context.WithCancel(t.Context())
	err := db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set([]byte("k"), []byte("v"))
		cancel()
		return nil
	})
	require.ErrorIs(t, err, kv.ErrCommitUnknown)
	require.ErrorIs(t, err, context.Canceled)
	// Reads go on meanwhile, and see only what is durable.
	read := func(tx kv.Transaction) (string, error) {
		value, err := tx.Get([]byte("k")).Await()
		return string(value), err
	}
	value, err := kv.TransactValue(t.Context(), db, read)
	require.NoError(t, err)
	require.Empty(t, value)
	close(held)
	g.hold.Store(nil)
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		tx.Set([]byte("other"), nil)
		return nil
	}))
	value, err = kv.TransactValue(t.Context(), db, read)
	require.NoError(t, err)
	require.Equal(t, "v", value, "the commit of unknown result happened")
	require.NoError(t, db.Close())
}

// TestSharedSync: commits that wait for a sync share the next one.
func TestSharedSync(t *testing.T) {
	t.Parallel()
	var g gate
	db := open(t, "/store", pebblekv.Options{FS: g.fs(vfs.NewMem())})
	held := make(chan struct{})
	g.hold.Store(&held)
	var group sync.WaitGroup
	stamps := make(chan kv.Versionstamp, 33)
	commit := func() {
		stamp, err := stampedWrite(t.Context(), db)
		require.NoError(t, err)
		stamps <- stamp
	}
	for range cap(stamps) {
		group.Go(commit)
	}
	close(held)
	group.Wait()
	close(stamps)
	seen := map[string]bool{}
	for stamp := range stamps {
		require.False(t, seen[fmt.Sprint(stamp)])
		seen[fmt.Sprint(stamp)] = true
	}
	require.NoError(t, db.Close())
}
