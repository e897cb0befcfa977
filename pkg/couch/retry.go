package couch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"settee/pkg/retry"
)

const (
	// MaxPause bounds the wait between two tries, also of callers that repeat more than a request. An answer that asks for a
	// longer wait is returned to the caller, which can do something else meanwhile.
	MaxPause = time.Minute
	// patience bounds the time during which a request is repeated after nothing but 429.
	patience = 90 * time.Second
	// toldFrom is the shortest wait before a first try that is reported to Config.Retrying.
	toldFrom = time.Second
)

// trial is a request and the state of its tries.
type trial struct {
	d *Database
	r *request

	failures int // failed tries that count
	backoff  retry.Backoff
	due      time.Duration // wait after the latest failure
	last     *Error        // the latest failure; nil before the first
	since    time.Time     // of the first failure, or wait
	refused  time.Time     // of the first 429 in a row; zero after another failure
	over     func()        // what Config.Retrying returned
}

// repeat runs try until it succeeds, fails for good, or has used up the request's retries. A try that succeeds or
// returns after an answer must call release, which frees the request's slot.
func (d *Database) repeat(ctx context.Context, r *request, try func(release func()) error) error {
	t := &trial{d: d, r: r, backoff: retry.Backoff{First: d.cfg.RetryBase, Most: MaxPause}, over: func() {}}
	defer func() { t.over() }()
	for {
		if err := t.wait(ctx); err != nil {
			return err
		}
		release, err := d.slot(ctx, r)
		if err != nil {
			return err
		}
		r.tries++
		if err = try(release); err == nil {
			return nil
		}
		release()
		if !t.again(ctx, err) {
			return err
		}
	}
}

// wait waits as the latest failure and the limiter require.
func (t *trial) wait(ctx context.Context) error {
	method := t.r.method
	if t.last != nil {
		method = t.last.Method // it may be a login
	}
	held, alone := t.d.limiter.wait(t.d.limitKey(method))
	due := max(t.due, held)
	switch refused := !t.refused.IsZero(); {
	case alone:
		return t.leaveAlone(fmt.Errorf("the wait between two requests has come up to %s", t.d.limiter.longest()))
	case refused && time.Since(t.refused)+due > patience:
		return t.leaveAlone(fmt.Errorf("refused for %s", time.Since(t.refused).Round(time.Second)))
	case due == 0:
		return nil
	}
	if t.since.IsZero() {
		t.since = time.Now()
	}
	if t.d.cfg.Retrying != nil && (t.last != nil || due >= toldFrom) {
		t.tell(ctx, due)
	}
	if retry.Wait(ctx, due) != nil {
		return t.d.interrupted(ctx, t.r)
	}
	return nil
}

// leaveAlone returns the error of a request to an endpoint that should be left alone.
func (t *trial) leaveAlone(why error) error {
	e := t.d.errorOf(t.r, t.d.where(t.r))
	if t.last != nil && t.last.Status == http.StatusTooManyRequests {
		e = t.last
	}
	e.Err = fmt.Errorf("%w: %w", ErrBackedOff, why)
	e.RetryAfter = max(e.RetryAfter, t.d.limiter.longest())
	return e
}

// tell calls Config.Retrying before a wait.
func (t *trial) tell(ctx context.Context, due time.Duration) {
	next := Retry{
		Err: t.last, Attempt: t.r.tries + 1, Attempts: t.d.cfg.Retries + 1, Since: t.since, Until: time.Now().Add(due),
	}
	if next.Err == nil {
		next.Err = t.d.errorOf(t.r, t.d.where(t.r))
		next.Err.Err = fmt.Errorf("%w: the server has refused other requests with 429", ErrTooManyRequests)
	}
	if errors.Is(next.Err, ErrTooManyRequests) {
		next.Attempts = 0
	}
	over := t.d.cfg.Retrying(ctx, next)
	t.over()
	t.over = over
}

// again reports whether repeating the request after err is safe and may help. If so, wait is next.
func (t *trial) again(ctx context.Context, err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || ctx.Err() != nil || !t.r.again() {
		return false
	}
	now := time.Now()
	if t.since.IsZero() || t.last == nil {
		t.since = now
	}
	t.last = e
	if e.Status == http.StatusTooManyRequests {
		// The server did nothing, so repeating is safe and this is no failure. The limiter determines the wait.
		if t.refused.IsZero() {
			t.refused = now
		}
		t.due = 0
		return e.RetryAfter <= MaxPause
	}
	t.refused = time.Time{}
	t.failures++
	wait := max(t.backoff.Next(), e.RetryAfter)
	if t.r.once || t.failures > t.d.cfg.Retries || wait > MaxPause || !e.Temporary() {
		return false
	}
	// Spread requests that failed at the same moment.
	t.due = wait + rand.N(wait/4+1)
	return true
}

// slot waits until another request may be made. The function that it returns may be called twice.
func (d *Database) slot(ctx context.Context, r *request) (func(), error) {
	if ctx.Err() != nil {
		return nil, d.interrupted(ctx, r)
	}
	if r.noSlot {
		return func() {}, nil
	}
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, d.interrupted(ctx, r)
	}
	var released bool
	return func() {
		if !released {
			released = true
			<-d.slots
		}
	}, nil
}

func (d *Database) interrupted(ctx context.Context, r *request) error {
	e := d.errorOf(r, d.where(r))
	e.Err = context.Cause(ctx)
	return e
}
