package watch

import (
	"sync/atomic"
	"time"

	"settee/replicator/jobs"
)

// lateness says how far a watch is behind. With the zero value it is not behind. Its methods may be called
// concurrently.
type lateness struct {
	silent  atomic.Int64 // since when the server does not answer, in nanoseconds since the Unix epoch; 0: it answers
	overdue atomic.Int64 // how late the question is that is due for the longest time, in nanoseconds
}

// answered notes that the server has answered, or has not.
func (l *lateness) answered(it bool) {
	if it {
		l.silent.Store(0)
	} else {
		l.silent.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// due notes the rows whose questions are due, the earliest first.
func (l *lateness) due(rows []jobs.ParkedRow) {
	var late time.Duration
	if len(rows) > 0 {
		late = max(0, time.Since(rows[0].Ask))
	}
	l.overdue.Store(int64(late))
}

// lag returns the longer of the time since the server has not answered and the delay of questions.
func (l *lateness) lag() time.Duration {
	lag := time.Duration(l.overdue.Load())
	if since := l.silent.Load(); since != 0 {
		lag = max(lag, time.Since(time.Unix(0, since)))
	}
	return lag
}
