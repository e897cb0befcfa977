package worker

import (
	"context"
	"time"
)

const (
	// mergeChanges is the time from a change to the report of it. It leaves the rest of a second for the report itself.
	mergeChanges = 800 * time.Millisecond
	// busyInterval is the least time between two reports of changes.
	busyInterval = 2 * time.Second
)

// news says when the next report is due. run.mu guards it.
type news struct {
	unreported time.Time     // when the first change since the last report was; zero if there is none
	reported   time.Time     // when the last report began
	wake       chan struct{} // to the goroutine that calls the Reporter; has a buffer of one
}

// tellSoon records that there is something to report. The caller holds run.mu.
func (r *run) tellSoon() {
	if !r.unreported.IsZero() {
		return
	}
	r.unreported = time.Now()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// nextReport returns when the next report is due. The runs of a node report together, so that they share transactions:
// at a whole second without changes, else at a fifth of a second.
func (r *run) nextReport() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := later(r.started, r.reported).Add(r.reportInterval)
	if r.reportInterval > time.Second {
		due = down(due, time.Second)
	}
	if r.unreported.IsZero() {
		return due
	}
	soon := down(later(r.unreported.Add(mergeChanges), r.reported.Add(busyInterval)), time.Second/5)
	if soon.Before(due) {
		return soon
	}
	return due
}

// down returns t rounded down to a multiple of d, a part of a second, with its monotonic clock.
func down(t time.Time, d time.Duration) time.Time { return t.Add(-time.Duration(t.Nanosecond()) % d) }

// call is a function for the goroutine that calls the Reporter.
type call struct {
	say    func(context.Context, Reporter) error
	answer chan error // has a buffer of one
}

// report calls the Reporter until the run is done or the Reporter returns an error. No other goroutine calls the
// Reporter.
func (r *run) report(ctx context.Context, reporter Reporter, done <-chan struct{}) error {
	timer := time.NewTimer(time.Until(r.nextReport()))
	defer timer.Stop()
	for {
		var err error
		select {
		case <-done:
			return nil
		case <-timer.C:
			// On a stack of its own: that of a goroutine which waits stays as large as it was needed once.
			reported := make(chan error)
			go func() { reported <- r.reportTo(ctx, reporter) }()
			err = <-reported
		case c := <-r.calls:
			err = c.say(ctx, reporter)
			c.answer <- err
		case <-r.wake:
		}
		if err != nil {
			return err
		}
		timer.Reset(time.Until(r.nextReport()))
	}
}

// reportTo makes a report. Only the goroutine of report calls it.
func (r *run) reportTo(ctx context.Context, reporter Reporter) error {
	if err := r.refusals.tell(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	r.reported, r.unreported = time.Now(), time.Time{}
	r.mu.Unlock()
	return reporter.Report(ctx, r.progress())
}

// tell runs say on the goroutine that calls the Reporter and returns its error.
func (r *run) tell(ctx context.Context, say func(context.Context, Reporter) error) error {
	c := call{say: say, answer: make(chan error, 1)}
	select {
	case r.calls <- c:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tellRefused lists the refused revisions on that goroutine.
func (r *run) tellRefused(ctx context.Context) error {
	return r.tell(ctx, func(ctx context.Context, _ Reporter) error { return r.refusals.tell(ctx) })
}
