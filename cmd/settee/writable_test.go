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

// stopper is a store that can stop accepting writes.
type stopper struct {
	kv.Database
	writable context.Context
}

func (s stopper) Writable() context.Context { return s.writable }

// The log says once that the store no longer accepts writes.
func TestLogOfFailedWrite(t *testing.T) {
	t.Parallel()
	writable, stop := context.WithCancelCause(t.Context())
	db := stopper{writable: writable}
	ended, end := context.WithCancel(t.Context())
	end()
	var log bytes.Buffer
	n := node{db: db, log: zerolog.New(&log)}
	n.logWriteFailure(ended)
	assert.Empty(t, log.String())

	stop(syscall.ENOSPC)
	n.logWriteFailure(t.Context())
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")))
	assert.Contains(t, log.String(), `"level":"error"`)
	assert.Contains(t, log.String(), "no space left on device")
}
