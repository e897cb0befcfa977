package main

import (
	"bytes"
	"context"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/pebblekv"
)

// A disk that is full is said once, in the log.
func TestLogOfFailedWrite(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	db, err := pebblekv.Open("/store", pebblekv.Options{FS: disk})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	write := func() error {
		return db.Transact(t.Context(), func(tx kv.Transaction) error {
			tx.Set([]byte("key"), []byte("value"))
			return nil
		})
	}
	require.NoError(t, write())

	ended, end := context.WithCancel(t.Context())
	end()
	var log bytes.Buffer
	logWriteFailure(ended, db, zerolog.New(&log))
	assert.Empty(t, log.String())

	full.Store(true)
	require.ErrorIs(t, write(), syscall.ENOSPC)
	require.ErrorIs(t, write(), syscall.ENOSPC)
	logWriteFailure(t.Context(), db, zerolog.New(&log))
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")))
	assert.Contains(t, log.String(), `"level":"error"`)
	assert.Contains(t, log.String(), "no space left on device")
}
