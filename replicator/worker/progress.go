package worker

import (
	"sync"
	"time"

	"settee/replicator"
)

// progress is how far a run is, and when it reports that. mu guards it, except started and interval, which do not change.
type progress struct {
	mu       sync.Mutex
	started  time.Time
	interval time.Duration    // Config.ReportInterval
	known    string           // Progress.ReplicationID
	base     replicator.Stats // of earlier runs
	stats    replicator.Stats // of this run
	position                  // in the changes feed
	ends     *replicator.Ends // Progress.Ends
	times
	reporting
}

func (p *progress) init(s *settings, job *Job) {
	p.started, p.interval = time.Now(), s.reportInterval
	p.known, p.base, p.position = job.ReplicationID, job.Stats, newPosition()
}

// allStats returns the statistics of all runs with this replication id. The caller holds mu.
func (p *progress) allStats() replicator.Stats {
	stats := p.base
	stats.Add(p.stats)
	return stats
}

func (p *progress) count(add replicator.Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Add(add)
	if add.Attempted() {
		p.tried = time.Now()
	}
	p.tellSoon()
}

func (p *progress) note(moment *time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*moment = time.Now()
	p.tellSoon()
}

// setLeft records that left changes followed the last one read when that many rows were read. With a filter it is at
// most so many, because each row that was read since stands for itself and for those that the filter left out before it.
func (p *progress) setLeft(left, rows int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left = max(0, left-(p.rowsRead-rows))
	if p.left == nil || *p.left != left {
		p.tellSoon()
	}
	p.left, p.leftAt = &left, rows
}

// tellSoon records that there is something to report. The caller holds mu.
func (p *progress) tellSoon() {
	if !p.unreported.IsZero() {
		return
	}
	p.unreported = time.Now()
	if p.reports != nil {
		p.reports.in(time.Until(p.nextReport()))
	}
}

// nextReport returns when the next report is due. The runs of a node report together, so that they share transactions:
// at a whole second without changes, else at a fifth of a second. The caller holds mu.
func (p *progress) nextReport() time.Time {
	due := later(p.started, p.reported).Add(p.interval)
	if p.interval > time.Second {
		due = down(due, time.Second)
	}
	if p.unreported.IsZero() {
		return due
	}
	soon := down(later(p.unreported.Add(mergeChanges), p.changes.Add(busyInterval)), time.Second/5)
	if soon.Before(due) {
		return soon
	}
	return due
}
