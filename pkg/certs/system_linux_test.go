package certs

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Callers that begin at the same time share one reading.
func TestSystemIsReadOnce(t *testing.T) {
	t.Parallel()
	var readings [8]*System
	var all sync.WaitGroup
	now := time.Now()
	for i := range readings {
		all.Go(func() { readings[i] = LoadSystem(now) })
	}
	all.Wait()
	for _, reading := range readings {
		require.Same(t, readings[0], reading)
		require.NotNil(t, reading.Pool)
	}
}
