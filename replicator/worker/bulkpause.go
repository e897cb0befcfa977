package worker

import (
	"sync"
	"time"

	"settee/pkg/retry"
)

const (
	// maxBulkFailures is the number of failed _bulk_get requests in a row after which documents are read one by one for a
	// while. Those of one batch count as one.
	maxBulkFailures = 3
	// firstBulkPause is how long, and lastBulkPause the longest: each further failure doubles the time.
	firstBulkPause = 30 * time.Second
	lastBulkPause  = 10 * time.Minute
)

// bulkPauseAfter returns how long documents are read one by one after a number of failed _bulk_get requests in a row.
func bulkPauseAfter(failures int) time.Duration {
	if failures < maxBulkFailures {
		return 0
	}
	return retry.Backoff{First: firstBulkPause, Most: lastBulkPause}.After(failures-maxBulkFailures, 0)
}

// bulkPause remembers the failed _bulk_get requests of a run to one of its databases.
type bulkPause struct {
	mu       sync.Mutex
	failures int // in a row
	until    time.Time
}

// over reports whether _bulk_get may be tried.
func (p *bulkPause) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !time.Now().Before(p.until)
}

// failed counts a request that failed. Those that were under way when a pause began do not make it longer.
func (p *bulkPause) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.until) {
		return
	}
	p.failures++
	p.until = now.Add(bulkPauseAfter(p.failures))
}

func (p *bulkPause) succeeded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures, p.until = 0, time.Time{}
}
