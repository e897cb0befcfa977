package pebblekv_test

import (
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/pebblekv"
)

// lacking is a file system of a process that has too many open files, as often as fails says.
type lacking struct {
	vfs.FS
	err   error
	fails atomic.Int64
	hit   atomic.Int64
}

func newLacking(inner vfs.FS, err error) *lacking {
	l := &lacking{err: err}
	l.FS = errorfs.Wrap(inner, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpRename, errorfs.OpLink, errorfs.OpOpen, errorfs.OpFileWrite:
			return l.fail()
		}
		return nil
	}))
	return l
}

func (l *lacking) fail() error {
	if l.fails.Add(-1) < 0 {
		return nil
	}
	l.hit.Add(1)
	return l.err
}

// ReuseForWrite renames the file, and then lacks something to open it.
func (l *lacking) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := l.FS.Rename(oldname, newname); err != nil {
		return nil, err
	}
	if err := l.fail(); err != nil {
		return nil, err
	}
	return l.FS.OpenReadWrite(newname, category)
}

// TestPassingErrors: what the system lacks for a while stops no store. Commits wait, all succeed, and everything is there.
func TestPassingErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			fs := newLacking(vfs.NewMem(), err)
			opts := pebblekv.WithMemTables(pebblekv.Options{FS: fs}, smallMemTable)
			db := open(t, "/store", opts)
			require.NoError(t, openLedger(t.Context(), db))
			known, random := newLedger(), rand.New(rand.NewPCG(8, 0))
			for n := range 300 {
				if n%5 == 0 {
					fs.fails.Store(random.Int64N(4))
				}
				e := known.attempt(0)
				stamp, err := e.commit(t.Context(), db, random, known.highest)
				require.NoError(t, err)
				known.acknowledge(e, stamp)
			}
			require.Greater(t, fs.hit.Load(), int64(20))
			require.NoError(t, kv.Writable(db).Err())
			fs.fails.Store(0)
			require.NoError(t, db.Close())
			db = open(t, "/store", opts)
			state, err := readLedger(t.Context(), db)
			require.NoError(t, err)
			require.Empty(t, state.whole())
			require.Empty(t, state.agrees(known, known.copy()))
			require.NoError(t, db.Close())
		})
	}
}

// TestCloseWhileLacking: a store is closed while a write waits for the system to have enough.
func TestCloseWhileLacking(t *testing.T) {
	t.Parallel()
	fs := newLacking(vfs.NewMem(), syscall.EMFILE)
	db := open(t, "/store", pebblekv.Options{FS: fs})
	require.NoError(t, set(t.Context(), db, "k", "v"))
	fs.fails.Store(1 << 40)
	written := make(chan error)
	go func() { written <- set(t.Context(), db, "k", "w") }()
	require.Eventually(t, func() bool { return fs.hit.Load() > 3 }, time.Minute, time.Millisecond)
	require.NoError(t, db.Close())
	require.Error(t, <-written)
	fs.fails.Store(0)
	db = open(t, "/store", pebblekv.Options{FS: fs})
	value, err := get(t.Context(), db, "k")
	require.NoError(t, err)
	require.Equal(t, "v", value)
	require.NoError(t, db.Close())
}

// TestLackingAtOpen: a store that cannot be opened for want of files says so, and does not wait.
func TestLackingAtOpen(t *testing.T) {
	t.Parallel()
	fs := newLacking(vfs.NewMem(), syscall.EMFILE)
	fs.fails.Store(1 << 40)
	_, err := pebblekv.Open("/store", pebblekv.Options{FS: fs})
	require.ErrorIs(t, err, syscall.EMFILE)
	require.NotContains(t, err.Error(), "another process")
	require.NotErrorIs(t, err, pebblekv.ErrDamaged)
}
