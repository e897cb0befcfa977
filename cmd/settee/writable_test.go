package main

import (
	"bytes"
	"context"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"

	"settee/pkg/kv"
)

// stopper is a store that may stop writing.
type stopper struct {
	kv.Database
	writable context.Context
}

func (s stopper) Writable() context.Context { return s.writable }

// A store that has stopped writing is said once, in the log.
func TestLogOfFailedWrite(t *testing.T) {
	t.Parallel()
	writable, stop := context.WithCancelCause(t.Context())
	db := stopper{writable: writable}
	ended, end := context.WithCancel(t.Context())
	end()
	var log bytes.Buffer
	logWriteFailure(ended, db, zerolog.New(&log))
	assert.Empty(t, log.String())

	stop(syscall.ENOSPC)
	logWriteFailure(t.Context(), db, zerolog.New(&log))
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")))
	assert.Contains(t, log.String(), `"level":"error"`)
	assert.Contains(t, log.String(), "no space left on device")
}
