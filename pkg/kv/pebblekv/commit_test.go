package pebblekv_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/pebblekv"
)

// gate holds back syncs of files with an extension.
type gate struct {
	ext  string
	held atomic.Pointer[chan error]
}

// hold makes syncs wait until the returned function is called, and return its argument.
func (g *gate) hold() (release func(err error)) {
	held := make(chan error)
	g.held.Store(&held)
	return func(err error) {
		g.held.Store(nil)
		if err != nil {
			held <- err
		}
		close(held)
	}
}

func (g *gate) fs() vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if held := g.held.Load(); held != nil && filepath.Ext(op.Path) == g.ext {
				return <-*held
			}
		}
		return nil
	}))
}

func set(ctx context.Context, db kv.Database, key, value string) error {
	return db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set([]byte(key), []byte(value))
		return nil
	})
}

func get(ctx context.Context, db kv.Database, key string) (string, error) {
	return kv.TransactValue(ctx, db, func(tx kv.Transaction) (string, error) {
		value, err := tx.Get([]byte(key)).Await()
		return string(value), err
	})
}

// TestContextEndsDuringCommit: a commit that has begun may still happen, and one that waits for its turn is withdrawn.
func TestContextEndsDuringCommit(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := gate{ext: ".log"}
		db := open(t, "/store", pebblekv.Options{FS: g.fs()})
		release := g.hold()
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		first, second := make(chan error), make(chan error)
		go func() {
			first <- db.Transact(ctx, func(tx kv.Transaction) error {
				tx.Set([]byte("first"), []byte("1"))
				return nil
			})
		}()
		synctest.Wait()
		go func() { second <- set(ctx, db, "second", "2") }()
		synctest.Wait()
		cancel(gone)
		err := <-first
		require.ErrorIs(t, err, kv.ErrCommitUnknown)
		require.ErrorIs(t, err, gone)
		err = <-second
		require.NotErrorIs(t, err, kv.ErrCommitUnknown)
		require.ErrorIs(t, err, gone)

		// Reads continue meanwhile, and see only what is durable.
		value, err := get(t.Context(), db, "first")
		require.NoError(t, err)
		require.Empty(t, value)
		release(nil)
		require.NoError(t, set(t.Context(), db, "third", "3"))
		value, err = get(t.Context(), db, "first")
		require.NoError(t, err)
		require.Equal(t, "1", value, "the commit of unknown result happened")
		value, err = get(t.Context(), db, "second")
		require.NoError(t, err)
		require.Empty(t, value, "the withdrawn commit did not happen")
		require.NoError(t, db.Close())
	})
}

// TestSharedSync: commits that arrive during a sync share the next one.
func TestSharedSync(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := gate{ext: ".log"}
		db := open(t, "/store", pebblekv.Options{FS: g.fs()})
		release := g.hold()
		const commits = 33
		var group sync.WaitGroup
		stamps := make(chan string, commits)
		for i := range commits {
			group.Go(func() {
				stamp, err := stampedWrite(t.Context(), db, fmt.Sprint(i))
				require.NoError(t, err)
				stamps <- stamp
			})
			synctest.Wait() // it waits for the sync, or after it
		}
		release(nil)
		group.Wait()
		close(stamps)
		versions, seen := map[string]int{}, map[string]bool{}
		for stamp := range stamps {
			versions[stamp[:8]]++
			seen[stamp] = true
		}
		require.Len(t, seen, commits)
		require.Len(t, versions, 2, "the first commit has its own sync, the others share one")
		require.NoError(t, db.Close())
	})
}

// TestReadersDoNotBlockCommits: a reader in the middle of a range does not delay commits.
func TestReadersDoNotBlockCommits(t *testing.T) {
	t.Parallel()
	db := open(t, "/store", pebblekv.Options{FS: vfs.NewMem()})
	for i := range 100 {
		require.NoError(t, set(t.Context(), db, fmt.Sprint("k", i), "old"))
	}
	n := 0
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		for pair, err := range tx.Snapshot().GetRange(kv.PrefixRange(nil), kv.RangeOptions{}).All() {
			if err != nil {
				return err
			}
			if err := set(t.Context(), db, string(pair.Key), "new"); err != nil {
				return err
			}
			require.Equal(t, "old", string(pair.Value), "the reader does not see the new value")
			n++
		}
		return nil
	}))
	require.Equal(t, 100, n)
	require.NoError(t, db.Close())
}

// TestSnapshotsAreReleased: a transaction releases its snapshot when it ends, or, if its function does not return, when
// it is too old to read.
func TestSnapshotsAreReleased(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db, snapshots, err := pebblekv.OpenCounting("/store", pebblekv.Options{FS: vfs.NewMem()})
		require.NoError(t, err)
		require.Equal(t, 1, snapshots(), "the snapshot of the newest state")
		hang := make(chan struct{})
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() {
				require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
					for _, err := range tx.GetRange(kv.PrefixRange(nil), kv.RangeOptions{}).All() {
						require.NoError(t, err)
						<-hang // in the middle of a range
					}
					<-hang
					return nil
				}))
			})
			synctest.Wait()
			require.NoError(t, set(t.Context(), db, fmt.Sprint("k", i), ""))
			require.Equal(t, 2+i, snapshots(), "each reads at its own state")
		}
		time.Sleep(kv.MaxTransactionAge - time.Second) // of the bubble's clock
		require.Equal(t, 11, snapshots())
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, snapshots(), "released although nothing was committed")
		close(hang)
		group.Wait()

		require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
			_, err := tx.Get([]byte("k1")).Await()
			require.NoError(t, err)
			require.NoError(t, set(t.Context(), db, "k1", "2"))
			require.Equal(t, 2, snapshots())
			return nil
		}))
		require.Equal(t, 1, snapshots(), "the transaction has ended")
		require.NoError(t, db.Close())
	})
}

// TestBackPressure: while commits come faster than tables can be written, commits wait, so that memory is bounded, and
// reads continue. The waiting ends when the tables are written, or when that fails.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"slow disk": nil, "full disk": syscall.ENOSPC} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			g := gate{ext: ".sst"}
			opts := pebblekv.WithMemTables(pebblekv.Options{FS: g.fs()}, smallMemTable)
			db := open(t, "/store", opts)
			require.NoError(t, set(t.Context(), db, "k", "v"))
			release := g.hold()
			const commits, size = 100, smallMemTable / 8
			var acknowledged atomic.Int64
			done := make(chan error)
			go func() {
				for i := range commits {
					if err := set(t.Context(), db, fmt.Sprint("big", i), strings.Repeat("x", size)); err != nil {
						done <- err
						return
					}
					acknowledged.Add(1)
				}
				done <- nil
			}()
			synctest.Wait()
			require.Less(t, acknowledged.Load()*size, int64(6*smallMemTable))
			value, err := get(t.Context(), db, "k")
			require.NoError(t, err)
			require.Equal(t, "v", value)
			release(failure)
			require.ErrorIs(t, <-done, failure)
			value, err = get(t.Context(), db, "big0")
			require.NoError(t, err)
			require.Len(t, value, size)
			require.NoError(t, db.Close())
		})
	}
}
