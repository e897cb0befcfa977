package pebblekv_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/pebblekv"
)

// TestBackupUnderLoad backs up a store while others commit. The restored one has exactly what was committed at one time:
// everything that was acknowledged before the backup, and nothing that began after it. Its versions are higher than all
// that the original has used since.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir(), pebblekv.WithMemTables(pebblekv.Options{}, smallMemTable))
	require.NoError(t, openLedger(t.Context(), db))
	known := newLedger()
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	committed := make(chan struct{})
	for writer := range crashWriters {
		random := rand.New(rand.NewPCG(uint64(writer), 0))
		writing.Go(func() {
			for ctx.Err() == nil {
				e := known.attempt(writer)
				stamp, err := e.commit(t.Context(), db, random, "")
				if err != nil {
					t.Error(err)
					return
				}
				known.acknowledge(e, stamp)
				select {
				case committed <- struct{}{}:
				case <-ctx.Done():
				}
			}
		})
	}
	for range 2 {
		for range 200 { // so that there are tables
			<-committed
		}
		before := known.copy()
		var archive bytes.Buffer
		backup := make(chan error)
		go func() {
			backup <- kv.FindBackup(faultkv.Wrap(db, faultkv.Options{})).Backup(t.Context(), &archive)
		}()
		var err error
		for running := true; running; {
			select {
			case err = <-backup:
				running = false
			case <-committed:
			}
		}
		require.NoError(t, err)
		after := known.copy()
		size, err := pebblekv.VerifyBackup(bytes.NewReader(archive.Bytes()))
		require.NoError(t, err)
		require.EqualValues(t, archive.Len(), size)

		dir := filepath.Join(t.TempDir(), "restored")
		require.NoError(t, pebblekv.Restore(&archive, dir))
		restored := open(t, dir, pebblekv.Options{Options: kv.Options{Existing: true}})
		state, err := readLedger(t.Context(), restored)
		require.NoError(t, err)
		require.Empty(t, state.whole())
		require.Empty(t, state.agrees(before, after))
		for range 300 {
			<-committed
		}
		stamp, err := ledgerEntry{0, state.last[0] + 1}.commit(t.Context(), restored, rand.New(rand.NewPCG(1, 1)), state.highest())
		require.NoError(t, err)
		require.Greater(t, stamp, known.copy().highest, "no version is used twice")
		require.NoError(t, restored.Close())
	}
	cancel()
	writing.Wait()
	require.NoError(t, db.Close())
}

// aBackup returns a backup of a small store, and the store's directory.
func aBackup(t *testing.T) (archive []byte, dir string) {
	t.Helper()
	dir = t.TempDir()
	db := open(t, dir, pebblekv.WithMemTables(pebblekv.Options{}, smallMemTable))
	for i := range 50 {
		require.NoError(t, set(t.Context(), db, fmt.Sprint("k", i), strings.Repeat("v", 5000)))
	}
	var out bytes.Buffer
	require.NoError(t, kv.FindBackup(db).Backup(t.Context(), &out))
	require.NoError(t, db.Close())
	return out.Bytes(), dir
}

// TestDamagedBackup: a backup that is cut off anywhere, or has a flipped bit in any file, is not restored, and leaves
// nothing behind.
func TestDamagedBackup(t *testing.T) {
	t.Parallel()
	archive, _ := aBackup(t)
	dir := filepath.Join(t.TempDir(), "s")
	refused := func(damaged []byte, what string) {
		t.Helper()
		_, err := pebblekv.VerifyBackup(bytes.NewReader(damaged))
		require.Error(t, err, what)
		require.Error(t, pebblekv.Restore(bytes.NewReader(damaged), dir), what)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, entries, what)
	}
	// The archive ends with two blocks of zero bytes, which say nothing.
	end := len(bytes.TrimRight(archive, "\x00"))
	for n := 0; n < end; n += 1 + len(archive)/20 {
		refused(archive[:n], fmt.Sprintf("the first %d bytes", n))
		_, err := pebblekv.VerifyBackup(bytes.NewReader(archive[:n]))
		require.ErrorContains(t, err, fmt.Sprintf("the backup is not complete: it ends after %d bytes", n))
		require.NotContains(t, err.Error(), "EOF")
	}
	random := rand.New(rand.NewPCG(7, 7))
	for range 30 {
		at := random.IntN(end)
		damaged := bytes.Clone(archive)
		damaged[at] ^= 1 << random.IntN(8)
		if _, err := pebblekv.VerifyBackup(bytes.NewReader(damaged)); err == nil {
			continue // in the padding between files
		}
		refused(damaged, fmt.Sprintf("a bit at %d", at))
	}
	for what, other := range map[string]string{"nothing": "", "a text": strings.Repeat("text ", 1000)} {
		refused([]byte(other), what)
	}
	require.NoError(t, pebblekv.Restore(bytes.NewReader(archive), dir))
	require.ErrorContains(t, pebblekv.Restore(bytes.NewReader(archive), dir), "not empty")
	db := open(t, dir, pebblekv.Options{})
	value, err := get(t.Context(), db, "k49")
	require.NoError(t, err)
	require.Len(t, value, 5000)
	require.NoError(t, db.Close())
}

// TestInterruptedBackup: a checkpoint that a killed process has left is removed when the store is opened, and a store is
// not opened where a restore was interrupted.
func TestInterruptedBackup(t *testing.T) {
	t.Parallel()
	_, dir := aBackup(t)
	left := filepath.Join(dir, "backup-LEFT")
	require.NoError(t, os.Mkdir(left, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(left, "x.sst"), nil, 0o600))
	db := open(t, dir, pebblekv.Options{})
	require.NoDirExists(t, left)
	require.NoError(t, db.Close())

	require.NoError(t, os.Mkdir(filepath.Join(dir, "restoring"), 0o700))
	_, err := pebblekv.Open(dir, pebblekv.Options{})
	require.ErrorContains(t, err, "not completely restored")
}

// stalled is a writer that does not accept anything until it is told to fail.
type stalled struct{ begun, fail chan struct{} }

func (s stalled) Write([]byte) (int, error) {
	close(s.begun)
	<-s.fail
	return 0, io.ErrClosedPipe
}

// TestOneBackupAtATime: a second backup is refused. A client that is gone ends the first, and its checkpoint is removed.
func TestOneBackupAtATime(t *testing.T) {
	t.Parallel()
	_, dir := aBackup(t)
	db := open(t, dir, pebblekv.Options{})
	w, done := stalled{make(chan struct{}), make(chan struct{})}, make(chan error)
	go func() { done <- kv.FindBackup(db).Backup(t.Context(), w) }()
	<-w.begun
	require.ErrorIs(t, kv.FindBackup(db).Backup(t.Context(), io.Discard), kv.ErrBackupRunning)
	require.NoError(t, set(t.Context(), db, "k", "commits continue"))
	close(w.fail)
	require.ErrorIs(t, <-done, io.ErrClosedPipe)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, kv.FindBackup(db).Backup(ended, io.Discard), context.Canceled)
	left, err := filepath.Glob(filepath.Join(dir, "backup-*"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, db.Close())
	require.ErrorIs(t, kv.FindBackup(db).Backup(t.Context(), io.Discard), kv.ErrClosed)
}

// TestBackupWithoutSpace: a checkpoint for which there is no space fails the backup, and not the store.
func TestBackupWithoutSpace(t *testing.T) {
	t.Parallel()
	d := &disk{MemFS: vfs.NewMem(), err: syscall.ENOSPC, only: func(path string) bool { return strings.Contains(path, "backup-") }}
	db := open(t, "/store", pebblekv.Options{FS: d.fs()})
	require.NoError(t, set(t.Context(), db, "k", "v"))
	for left := range int64(6) {
		d.left.Store(left)
		err := kv.FindBackup(db).Backup(t.Context(), io.Discard)
		require.ErrorIs(t, err, syscall.ENOSPC, "%d", left)
		require.NoError(t, set(t.Context(), db, "k", fmt.Sprint(left)))
		require.NoError(t, kv.Writable(db).Err())
	}
	d.left.Store(-1)
	require.NoError(t, kv.FindBackup(db).Backup(t.Context(), io.Discard))
	require.NoError(t, db.Close())
}
