package kv_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/pkg/kv"
)

// TestTooMuch: which errors say that a transaction does too much at once.
func TestTooMuch(t *testing.T) {
	t.Parallel()
	ago, ahead, other := time.Now().Add(-time.Second), time.Now().Add(time.Hour), errors.New("other")
	old := fmt.Errorf("reading: %w", kv.ErrTransactionTooOld)
	for _, c := range []struct {
		until     time.Time
		err, want error
	}{
		{ahead, nil, nil}, {time.Time{}, nil, nil}, {ago, nil, kv.ErrSlow},
		{ahead, old, old}, {time.Time{}, old, old}, {ago, old, kv.ErrSlow},
		{ago, other, other}, {ago, kv.ErrNotCommitted, kv.ErrNotCommitted},
	} {
		assert.Equal(t, c.want, kv.InTime(c.until, c.err), "%v until %v", c.err, c.until)
	}
	for err, want := range map[error]bool{
		kv.ErrSlow: true, fmt.Errorf("writing: %w", kv.ErrTransactionTooLarge): true,
		old: false, other: false, nil: false,
	} {
		assert.Equal(t, want, kv.TooMuch(err), err)
	}
	assert.False(t, kv.Retryable(kv.ErrSlow), "the same work would be too much again")
}
