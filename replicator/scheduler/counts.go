package scheduler

import (
	"sync"

	"settee/replicator"
)

// Counts has the number of events on this node since its start.
type Counts struct {
	// Starts counts runs that began, Stops those that ended to make room, for the node's shutdown or because the job
	// changed, and Crashes those that failed and are retried.
	Starts, Stops, Crashes int64
	// Parks counts runs of continuous jobs that ended because nothing was left to copy, and Wakes those that began after
	// such an end. Wakes are also Starts.
	Parks, Wakes int64
	// Completed and Failed count jobs that ended.
	Completed, Failed int64
	// Stats sums what runs have read and written.
	Stats replicator.Stats
	// BytesReceived and BytesSent went through connections to endpoints.
	BytesReceived, BytesSent int64
}

type counter struct {
	mu     sync.Mutex
	counts Counts
}

func (c *counter) update(change func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.counts)
}

// Counts returns the counts so far.
func (s *Server) Counts() Counts {
	s.counter.mu.Lock()
	defer s.counter.mu.Unlock()
	counts := s.counter.counts
	if s.opts.Traffic != nil {
		counts.BytesReceived, counts.BytesSent = s.opts.Traffic()
	}
	return counts
}

// statsCounter adds what one run reports to the counts.
type statsCounter struct {
	to   *counter
	last replicator.Stats
}

// count counts the statistics of the run so far.
func (c *statsCounter) count(now replicator.Stats) {
	more := now
	more.Subtract(c.last)
	c.last = now
	c.to.update(func(counts *Counts) { counts.Stats.Add(more) })
}
