package jobserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"settee/fdbjobs"
	"settee/pkg/retry"
)

// KeepAlive keeps a job alive until ctx ends, and returns nil then: it calls update at least every heartbeat of the job. It
// returns fdbjobs.ErrHalt if update does. Another error is logged and does not end the run: the job's context ends when no
// update has succeeded for too long. KeepAlive is for runs that report nothing by themselves, others call [Server.Beat].
func (s *Server[J]) KeepAlive(ctx context.Context, job J, update func(context.Context) error) error {
	r := job.base()
	last := time.Now()
	for {
		_ = retry.Wait(ctx, time.Until(nextBeat(s.began, last, r.held.Heartbeat())))
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the run has ended, see above
		}
		last = time.Now()
		switch err := s.Beat(job, func() error { return update(ctx) }); {
		case errors.Is(err, fdbjobs.ErrHalt):
			return err
		case err != nil && ctx.Err() == nil:
			r.Log.Error().Err(err).Msg("the state of a job could not be written, and is tried again")
		}
	}
}

// nextBeat returns when to update a job whose latest update began at last: between half a heartbeat and a whole one later.
// Earlier it would not renew the hold (fdbjobs.Held.Update). If possible, it is a whole number of heartbeats after origin,
// when other jobs of the node are updated, too: they share transactions.
func nextBeat(origin, last time.Time, heartbeat time.Duration) time.Time {
	wait := heartbeat - last.Sub(origin)%heartbeat
	if wait < heartbeat/2 {
		wait = (wait + heartbeat) / 2 // the same wait again leads to a common time
	}
	return last.Add(wait)
}

// Beat calls update, which keeps a job alive, and sees whether that is late. It must not be called concurrently for one job.
func (s *Server[J]) Beat(job J, update func() error) error {
	r := job.base()
	began := time.Now()
	err := update()
	s.heartbeats.observe(r.beaten, began, time.Now(), r.held.Heartbeat())
	r.beaten = began
	return err
}

// heartbeats knows whether the heartbeats of this node's jobs are late: a node that has too little time for the jobs that it has
// must not take more. Its methods may be called concurrently. With the zero value they are on time.
type heartbeats struct {
	mu    sync.Mutex
	until time.Time     // they count as late until then
	by    time.Duration // the latest lateness
}

// observe records a heartbeat of a run, which began and ended, after one that began before. before is zero for the first one.
// Each is due a heartbeat after the one before. It is late if it begins or ends more than a quarter of that after its time:
// half a heartbeat later the job would be lost.
func (b *heartbeats) observe(before, began, ended time.Time, heartbeat time.Duration) {
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
