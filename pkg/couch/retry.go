package couch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	// maxPause bounds one wait between two tries. A server that asks for a longer one has its answer
	// returned to the caller, who can do something else meanwhile.
	maxPause = time.Minute
	// patience bounds how long a request goes on that is refused with 429 and nothing else.
	patience = 90 * time.Second
	// toldFrom is the shortest wait worth telling of before a request has failed.
	toldFrom = time.Second
)

// trial is a request with the tries that it takes.
type trial struct {
	d *Database
	r *request

	failures int           // of tries that count
	pause    time.Duration // the next wait, which doubles
	due      time.Duration // what the latest failure is worth in waiting
	last     *Error        // the latest failure; nil before the first
	since    time.Time     // of the first failure, or wait
	refused  time.Time     // of the first 429 in a row; zero if the latest failure was another
	over     func()        // what Config.Retrying returned
}

// repeat runs try until it succeeds, fails for good, or has used up the request's retries. A try that
// succeeds, or that returns after it got an answer, owns release, which gives the request's slot back.
func (d *Database) repeat(ctx context.Context, r *request, try func(release func()) error) error {
	t := &trial{d: d, r: r, pause: d.cfg.RetryBase, over: func() {}}
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

// wait lets the time pass that the latest failure and the endpoint's rate demand.
func (t *trial) wait(ctx context.Context) error {
	method := t.r.method
	if t.last != nil {
		method = t.last.Method // it may have been a login's
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
	if pass(ctx, due) != nil {
		return t.d.interrupted(ctx, t.r)
	}
	return nil
}

// pass waits, unless ctx ends before.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leaveAlone is the error of a request to an endpoint that is to be left alone.
func (t *trial) leaveAlone(why error) error {
	e := t.d.errorOf(t.r, t.d.where(t.r.path))
	if t.last != nil && t.last.Status == http.StatusTooManyRequests {
		e = t.last
	}
	e.Err = fmt.Errorf("%w: %w", ErrBackedOff, why)
	e.RetryAfter = max(e.RetryAfter, t.d.limiter.longest())
	return e
}

// tell tells of the wait to come.
func (t *trial) tell(ctx context.Context, due time.Duration) {
	next := Retry{
		Err: t.last, Attempt: t.r.tries + 1, Attempts: t.d.cfg.Retries + 1, Since: t.since, Until: time.Now().Add(due),
	}
	if next.Err == nil {
		next.Err = t.d.errorOf(t.r, t.d.where(t.r.path))
		next.Err.Err = fmt.Errorf("%w: the server has refused other requests with 429", ErrTooManyRequests)
	}
	if errors.Is(next.Err, ErrTooManyRequests) {
		next.Attempts = 0
	}
	over := t.d.cfg.Retrying(ctx, next)
	t.over()
	t.over = over
}

// again reports whether the request may be made again after err, and whether that could help. If so, wait
// is next.
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
		// The server has not done anything: that is safe to repeat, and no failure. The limiter knows for
		// how long to wait.
		if t.refused.IsZero() {
			t.refused = now
		}
		t.due = 0
		return e.RetryAfter <= maxPause
	}
	t.refused = time.Time{}
	t.failures++
	wait := max(t.pause, e.RetryAfter)
	if t.r.once || t.failures > t.d.cfg.Retries || wait > maxPause || !passing(e) {
		return false
	}
	// Many that failed at the same moment are not to come back at the same moment.
	t.due = wait + rand.N(wait/4+1)
	t.pause = min(2*t.pause, maxPause)
	return true
}

// passing reports whether another try could help.
func passing(e *Error) bool {
	switch {
	case e.Status == http.StatusRequestTimeout:
		return true
	case e.Status == http.StatusNotImplemented:
		return false
	case e.Status >= 500:
		return true
	case e.Status >= 300, e.Err == nil:
		return false
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](e.Err); ok {
		return false
	}
	if connect, ok := errors.AsType[*ConnectError](e.Err); ok && connect.final() {
		return false
	}
	for _, final := range []error{ErrRedirect, ErrLimit, ErrMalformed, ErrCertificates, ErrTooSlow} {
		if errors.Is(e.Err, final) {
			return false
		}
	}
	return true
}

// slot waits until another request may be made. The function it returns may be called twice.
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
	e := d.errorOf(r, d.where(r.path))
	e.Err = context.Cause(ctx)
	return e
}
