package watch

import (
	"context"
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

// answered records that the server has answered, or has not.
func (l *lateness) answered(it bool) {
	if it {
		l.silent.Store(0)
	} else {
		l.silent.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// due records the rows whose questions are due, the earliest first.
func (l *lateness) due(rows []jobs.ParkedRow) {
	var late time.Duration
	if len(rows) > 0 {
		late = max(0, time.Since(rows[0].Ask))
	}
	l.overdue.Store(int64(late))
}

// lag returns the longer of the time since the server has not answered and the delay of questions.
func (l *lateness) lag() time.Duration {
	return max(time.Duration(l.overdue.Load()), l.silence())
}

// silence returns the time since the server has not answered, 0 if it answers.
func (l *lateness) silence() time.Duration {
	if since := l.silent.Load(); since != 0 {
		return time.Since(time.Unix(0, since))
	}
	return 0
}

// asked says how well a watch keeps up with its questions. The zero value is of a watch that does not ask. What was due
// when it began to ask does not count: the watch has askLast for that.
type asked struct {
	began time.Time     // when it began to ask
	from  time.Time     // questions count from then on
	worst time.Duration // the longest time since then for which a job was not asked

	// planned has the longest times until next questions: of the present askLast, and of the one before. Each job that is parked is
	// asked in that time. window is when the present one began.
	planned [2]time.Duration
	window  time.Time
}

// plan records the time until the next question to a job.
func (a *asked) plan(now time.Time, wait time.Duration) {
	if now.Sub(a.window) >= askLast {
		a.planned[1], a.planned[0], a.window = a.planned[0], 0, now
	}
	a.planned[0] = max(a.planned[0], wait)
}

const (
	// pauseStep is the ratio of two pauses that are shown, so that they are seldom written, and askLatest the time for which a question
	// that is due waits for others.
	pauseStep = 1.25
	askLatest = 2 * time.Second
)

// longestPause returns the longest time for which a job is not asked, rounded up. late is how late the question is that is due for longest.
func (a *asked) longestPause(late time.Duration) time.Duration {
	longest := max(a.planned[0], a.planned[1], askFirst) + late + askLatest
	shown := float64(askFirst)
	for shown < float64(longest) {
		shown *= pauseStep
	}
	return time.Duration(shown).Round(time.Second)
}

// begin begins, unless it has begun.
func (a *asked) begin(now time.Time) {
	if a.began.IsZero() {
		*a = asked{began: now, from: now.Add(askLast)}
	}
}

// recordQuestion records a question to a job that has been parked for a time, and how late the question is.
func (a *asked) recordQuestion(now time.Time, parked, late time.Duration) {
	if now.After(a.from) {
		a.worst = max(a.worst, min(notAsked(parked, late), now.Sub(a.began)))
	}
}

// notAsked returns for how long a job was not asked, at least. late is how late its question is.
func notAsked(parked, late time.Duration) time.Duration {
	wasParked := float64(max(parked-late, 0)) / (1 + askFactor) // at the last question
	return late + nextAsk(time.Duration(wasParked), 1)
}

// lateSince decides whether the questions of a watch are late, and returns since when. The zero time means that they are
// in time: each parked job is asked within askLast. was is the last decision, and worst the longest time since then for
// which a job was not asked or the server did not answer.
func lateSince(was time.Time, worst time.Duration, now time.Time) time.Time {
	switch {
	case worst <= askLast:
		return time.Time{}
	case !was.IsZero():
		return was
	}
	return now.Add(askLast - worst).UTC().Truncate(time.Second)
}

// showLate writes into the state how often jobs are asked, and each askLast whether the questions are late. why is why there are questions.
func (w *watch) showLate(ctx context.Context, why error) {
	now := time.Now()
	status, silence := w.currentState().WatchStatus, w.late.silence()
	status.Pause = w.asked.longestPause(w.late.lag())
	if now.Before(w.asked.from.Add(askLast)) {
		w.showStatus(ctx, status)
		return
	}
	late := jobs.Late{Since: lateSince(status.Late.Since, max(w.asked.worst, silence), now), Code: noFeedOf(why, silence)}
	if !late.Since.IsZero() {
		var err error
		if late.Jobs, err = w.countAsked(ctx); err != nil {
			w.storeFailed(ctx, err)
			return
		}
	}
	if late.Jobs == 0 {
		late = jobs.Late{} // it is there for mirrors
	}
	w.asked.from, w.asked.worst = now, 0
	status.Late = late
	w.showStatus(ctx, status)
}

// countPage is the number of questions that countAsked reads at a time.
const countPage = 1_000

// countAsked returns the number of the parked jobs that are asked.
func (w *watch) countAsked(ctx context.Context) (n int, err error) {
	for after := (jobs.ParkedRow{}); ; {
		rows, err := w.watcher.opts.Jobs.Watches.AskedAfter(ctx, w.server, after, time.Now().Add(2*askLast), countPage)
		n += len(rows)
		if err != nil || len(rows) < countPage {
			return n, err
		}
		after = rows[len(rows)-1]
	}
}
