package pebblekv_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/pebblekv"
)

// disk is a file system whose writes begin to fail.
type disk struct {
	*vfs.MemFS
	// left is the number of writes that succeed first; negative when all do.
	left atomic.Int64
	// once makes one write fail instead of all from then on.
	once bool
	// only reports which files are hit; nil means all.
	only func(path string) bool
	err  error
}

func isWrite(kind errorfs.OpKind) bool {
	switch kind {
	case errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpRename, errorfs.OpFileWrite, errorfs.OpFileWriteAt,
		errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return true
	}
	return false
}

func (d *disk) fs() vfs.FS {
	return errorfs.Wrap(d.MemFS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if d.left.Load() < 0 || !isWrite(op.Kind) || d.only != nil && !d.only(op.Path) {
			return nil
		}
		left := d.left.Add(-1)
		switch {
		case left >= 0:
			return nil
		case !d.once:
			d.left.Store(0)
		}
		return d.err
	}))
}

func isLog(path string) bool   { return filepath.Ext(path) == ".log" }
func isTable(path string) bool { return filepath.Ext(path) == ".sst" }
func isManifest(path string) bool {
	return strings.HasPrefix(filepath.Base(path), "MANIFEST") || strings.HasPrefix(filepath.Base(path), "marker")
}

// TestFailingDisk: whichever write a full or broken disk refuses, the commit fails, later ones give the reason, reads
// continue, and once the disk works again everything that was acknowledged is there.
func TestFailingDisk(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	files := map[string]func(string) bool{"any file": nil, "log": isLog, "table": isTable, "manifest": isManifest}
	for name, only := range files {
		for _, once := range []bool{false, true} {
			what := "full for any write to: "
			if once {
				what = "error in one write to: "
			}
			t.Run(what+name, func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(rand.Uint64(), 0))
				for range seeds.Rounds(t, 25) {
					d := &disk{MemFS: vfs.NewCrashableMem(), once: once, only: only, err: syscall.ENOSPC}
					if once {
						d.err = syscall.EIO
					}
					d.left.Store(-1)
					testFailingDisk(t, d, random)
				}
			})
		}
	}
}

func testFailingDisk(t *testing.T, d *disk, random *rand.Rand) {
	t.Helper()
	opts := pebblekv.WithMemTables(pebblekv.Options{FS: d.fs()}, smallMemTable)
	db := open(t, "/store", opts)
	require.NoError(t, openLedger(t.Context(), db))
	known := newLedger()
	d.left.Store(random.Int64N(40))
	writable := kv.Writable(faultkv.Wrap(db, faultkv.Options{})) // which is looked through
	err := commitUntilError(t.Context(), db, known, random)
	require.ErrorIs(t, context.Cause(writable), d.err, "the reason is reported by then")
	require.ErrorIs(t, err, d.err, "the first commit that fails says why")
	require.ErrorContains(t, err, "writing the store")
	for range 3 {
		err := commitUntilError(t.Context(), db, known, random)
		require.ErrorIs(t, err, d.err, "all later ones say why too")
		require.ErrorContains(t, err, "no longer accepts writes")
	}
	// Exactly what was acknowledged can be read.
	state, err := readLedger(t.Context(), db)
	require.NoError(t, err)
	require.Empty(t, state.whole())
	require.Empty(t, state.agrees(known, known.copy()))
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		_, err := tx.Get(account(0)).Await()
		return err
	}), "a transaction that only reads does not write to the disk")

	// A power cut may follow.
	crashed := d.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: random.IntN(101), RNG: random})
	require.NoError(t, db.Close())
	for _, fs := range []vfs.FS{d.MemFS, crashed} {
		after := known.copy()
		after.attempted[0] = known.acknowledged[0] + 1 // of unknown result
		opts.FS = fs
		db := open(t, "/store", opts)
		state, err := readLedger(t.Context(), db)
		require.NoError(t, err)
		require.Empty(t, state.whole())
		require.Empty(t, state.agrees(known, after))
		_, err = ledgerEntry{0, state.last[0] + 1}.commit(t.Context(), db, random, state.highest())
		require.NoError(t, err, "commits succeed again")
		require.NoError(t, db.Close())
	}
}

// commitUntilError commits one transaction after the other. It gives up after more than any disk of the test accepts.
func commitUntilError(ctx context.Context, db kv.Database, known *ledger, random *rand.Rand) error {
	for range 100_000 {
		e := known.attempt(0)
		stamp, err := e.commit(ctx, db, random, known.highest)
		if err != nil {
			return err
		}
		known.acknowledge(e, stamp)
	}
	return errors.New("no commit fails")
}

// TestFailingOpen: opening a store can fail with a reason, and leaves nothing behind that prevents a later Open.
func TestFailingOpen(t *testing.T) {
	t.Parallel()
	d := &disk{MemFS: vfs.NewMem(), err: syscall.ENOSPC}
	opened := false
	for n := int64(0); !opened; n++ {
		require.Less(t, n, int64(1000))
		d.left.Store(n)
		db, err := pebblekv.Open("/store", pebblekv.Options{FS: d.fs()})
		d.left.Store(-1)
		if err != nil {
			require.ErrorContains(t, err, "/store")
			require.NotContains(t, err.Error(), "another process")
			continue
		}
		opened = true
		require.NoError(t, db.Close())
	}
	db := open(t, "/store", pebblekv.Options{FS: d.MemFS})
	require.NoError(t, db.Close())
}

// TestFailingOpenOfALog: opening a store whose log has more than fits into memory writes tables. Whichever write fails, Open
// returns the reason, and a later Open has everything that was acknowledged.
func TestFailingOpenOfALog(t *testing.T) {
	t.Parallel()
	for name, once := range map[string]bool{"full": false, "one error": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			whole := vfs.NewCrashableMem()
			// All of it is in the log.
			db := open(t, "/store", pebblekv.WithMemTables(pebblekv.Options{FS: whole}, 100*smallMemTable))
			require.NoError(t, openLedger(t.Context(), db))
			known := newLedger()
			for range 300 {
				e := known.attempt(0)
				stamp, err := e.commit(t.Context(), db, random, known.highest)
				require.NoError(t, err)
				known.acknowledge(e, stamp)
			}
			crashed := whole.CrashClone(vfs.CrashCloneCfg{})
			require.NoError(t, db.Close())
			failures := 0
			for n, opened := int64(0), false; !opened; n++ {
				require.Less(t, n, int64(5_000))
				d := &disk{MemFS: crashed.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: random}), once: once, err: syscall.EIO}
				d.left.Store(n)
				opts := pebblekv.WithMemTables(pebblekv.Options{FS: d.fs()}, smallMemTable)
				db, err := pebblekv.Open("/store", opts)
				if err != nil {
					failures++
					require.ErrorIs(t, err, d.err)
					require.ErrorContains(t, err, "/store")
					require.NotContains(t, err.Error(), "another process")
				} else {
					opened = d.left.Load() > 0
					require.NoError(t, db.Close())
				}
				d.left.Store(-1)
				db = open(t, "/store", opts)
				state, err := readLedger(t.Context(), db)
				require.NoError(t, err)
				require.Empty(t, state.whole())
				require.Empty(t, state.agrees(known, known.copy()))
				require.NoError(t, db.Close())
			}
			require.Greater(t, failures, 15, "tables were written")
		})
	}
}

// TestOpenEndsWithItsContext: what waits for a disk can be ended.
func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	hang, opening := make(chan struct{}), make(chan struct{})
	var once sync.Once
	files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if isWrite(op.Kind) {
			once.Do(func() { close(opening) })
			<-hang
		}
		return nil
	}))
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	go func() {
		<-opening
		cancel(stopped)
	}()
	_, err := pebblekv.OpenContext(ctx, "/store", pebblekv.Options{FS: files})
	require.ErrorIs(t, err, stopped)
	require.ErrorContains(t, err, "/store")
	close(hang)
	require.Eventually(t, func() bool { // what was being opened is closed when the disk goes on
		db, err := pebblekv.Open("/store", pebblekv.Options{FS: files})
		return err == nil && db.Close() == nil
	}, time.Minute, time.Millisecond)
}

// TestUnreadableTable: an error of a read is returned to its reader only.
func TestUnreadableTable(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing.Load() && op.Kind == errorfs.OpFileReadAt && isTable(op.Path) {
			return syscall.EIO
		}
		return nil
	}))
	opts := pebblekv.WithMemTables(pebblekv.Options{FS: fs}, smallMemTable)
	db := open(t, "/store", opts)
	in := func(fn func(tx kv.Transaction) error) error { return db.Transact(t.Context(), fn) }
	for i := range 500 {
		require.NoError(t, in(func(tx kv.Transaction) error {
			tx.Set(fmt.Appendf(nil, "k%03d", i), fmt.Append(nil, rand.Perm(300)))
			return nil
		}))
	}
	require.NoError(t, db.Close())
	db = open(t, "/store", opts) // with an empty cache
	writable := kv.Writable(db)
	reads := map[string]func(tx kv.Transaction) error{
		"get": func(tx kv.Transaction) error {
			_, err := tx.Get([]byte("k007")).Await()
			return err
		},
		"range": func(tx kv.Transaction) error {
			_, err := tx.GetRange(kv.PrefixRange(nil), kv.RangeOptions{}).Slice()
			return err
		},
		"commit of an addition": func(tx kv.Transaction) error {
			tx.Add([]byte("k007"), 1)
			return nil
		},
	}
	failing.Store(true)
	for name, read := range reads {
		require.ErrorIs(t, in(read), syscall.EIO, name)
	}
	failing.Store(false)
	for name, read := range reads {
		require.NoError(t, in(read), name)
	}
	require.NoError(t, db.Close())
	require.NoError(t, writable.Err(), "neither failed reads nor the close stop the writing")
}
