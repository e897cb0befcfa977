package scheduler

import (
	"context"
	"sync"
	"time"
)

// heartbeats knows whether the heartbeats of this node's jobs are late: a node that has too little time for the jobs that it has
// must not take more. Its methods may be called concurrently. With the zero value they are on time.
type heartbeats struct {
	mu    sync.Mutex
	until time.Time     // they count as late until then
	by    time.Duration // the latest lateness
}

// saw notes a heartbeat of a run, which began and ended, after one that began before. before is zero for the first one. Each
// is due a heartbeat after the one before. It is late if it begins or ends more than a quarter of that after its time: half
// a heartbeat later the job would be lost.
func (b *heartbeats) saw(before, began, ended time.Time, heartbeat time.Duration) {
	by := ended.Sub(began)
	if !before.IsZero() {
		by = max(by, ended.Sub(before)-heartbeat)
	}
	if by <= heartbeat/4 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := ended.Add(heartbeat); until.After(b.until) {
		b.until, b.by = until, by
	}
}

// late returns for how long this node takes no jobs, and by how much a heartbeat was late. Zeros mean that they are on time:
// none was late for a whole heartbeat.
func (b *heartbeats) late(now time.Time) (wait, by time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.until.After(now) {
		return 0, 0
	}
	return b.until.Sub(now), b.by
}

// onTime waits while heartbeats of this node are late. It returns false if ctx ends.
func (s *Server) onTime(ctx context.Context) bool {
	for said := false; ; said = true {
		wait, by := s.heartbeats.late(time.Now())
		switch {
		case wait == 0 && said:
			s.opts.Log.Info().Msg("heartbeats are on time again, and this node takes jobs")
			return true
		case wait == 0:
			return true
		case !said:
			s.opts.Log.Warn().Str("late", by.Round(time.Millisecond).String()).
				Msg("this node takes no new jobs while heartbeats of those that it runs are late: its machine or its store is overloaded")
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}
