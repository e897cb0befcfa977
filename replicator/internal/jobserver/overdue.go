package jobserver

import (
	"sync/atomic"
	"time"
)

// deadline is the time when a loop has to be at its next step. Its methods may be called concurrently.
type deadline struct {
	began time.Time // has a monotonic clock
	after *atomic.Int64
}

func newDeadline() deadline { return deadline{time.Now(), new(atomic.Int64)} }

// set sets the deadline to d from now.
func (l deadline) set(d time.Duration) { l.after.Store(int64(time.Since(l.began) + d)) }

// overdue returns the time since the deadline, or 0 before it.
func (l deadline) overdue() time.Duration {
	return max(0, time.Since(l.began)-time.Duration(l.after.Load()))
}
