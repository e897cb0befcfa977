package worker

import (
	"cmp"
	"context"
	"time"
)

const (
	// mergeChanges is the time from a change to the report of it. It leaves the rest of a second for the report itself.
	mergeChanges = 800 * time.Millisecond
	// busyInterval is the least time between two reports of changes. Reports that cannot wait, such as the claim of a target, do
	// not count: what a short run does after one is reported soon.
	busyInterval = 2 * time.Second
)

// reporting says when the next report is due. progress.mu guards it.
type reporting struct {
	unreported time.Time  // when the first change since the last report was; zero if there is none
	reported   time.Time  // when the last report began
	changes    time.Time  // when the last report began that could wait
	reports    *recurring // nil before the run has begun
}

// beginReports begins to call Report.
func (r *run) beginReports(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports = recur(time.Until(r.nextReport()), func(again func(time.Duration)) {
		if r.tell(ctx, r.reportDue) != nil {
			return // the run ends
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		again(time.Until(r.nextReport()))
	})
}

// down returns t rounded down to a multiple of d, a part of a second, with its monotonic clock.
func down(t time.Time, d time.Duration) time.Time { return t.Add(-time.Duration(t.Nanosecond()) % d) }

// tell calls say, which calls the Reporter, and waits for earlier calls. An error of the Reporter ends the run.
func (r *run) tell(ctx context.Context, say func(context.Context) error) error {
	leave, err := r.telling.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if ctx.Err() == nil {
		err = say(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		r.giveUp(err)
	}
	return err
}

// giveUp ends the run with an error that Run returns unchanged.
func (r *run) giveUp(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = cmp.Or(r.ended, err)
	r.end(err)
}

// reportDue makes a report unless one has been made meanwhile.
func (r *run) reportDue(ctx context.Context) error {
	r.mu.Lock()
	now := time.Now()
	early := now.Before(r.nextReport())
	if !early {
		r.changes = now
	}
	r.mu.Unlock()
	if early {
		return nil
	}
	return r.report(ctx)
}

// report makes a report. Only tell calls it.
func (r *run) report(ctx context.Context) error {
	if err := r.refusals.tell(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	r.reported, r.unreported = time.Now(), time.Time{}
	r.mu.Unlock()
	return r.reporter.Report(ctx, r.snapshot())
}
