package scheduler

import (
	"sync"

	"settee/replicator"
)

// Counts are how often things have happened on this node since it started.
type Counts struct {
	// Starts are runs that began, Stops those that ended for want of room, for the node's end
	// or because the job was changed, Crashes those that failed and are tried again.
	Starts, Stops, Crashes int64
	// Completed and Failed are jobs that ended.
	Completed, Failed int64
	// Stats are what runs have read and written.
	Stats replicator.Stats
}

// counter keeps Counts.
type counter struct {
	mu     sync.Mutex
	counts Counts
}

// add changes the counts.
func (c *counter) add(change func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.counts)
}

// Counts returns what has happened so far.
func (s *Server) Counts() Counts {
	s.counter.mu.Lock()
	defer s.counter.mu.Unlock()
	return s.counter.counts
}

// statsCounter counts what one run reports, whose statistics go on from those of earlier runs.
type statsCounter struct {
	to   *counter
	last replicator.Stats
}

func (c *statsCounter) count(now replicator.Stats) {
	more := now
	more.Subtract(c.last)
	if more.DocsRead < 0 || more.DocsWritten < 0 || more.RevisionsChecked < 0 {
		more = now // of another replication id, and begun anew
	}
	c.last = now
	c.to.add(func(counts *Counts) { counts.Stats.Add(more) })
}
