package fdbjobs

import (
	"context"
	"time"
)

// maxClaim is the maximum number of jobs that one transaction takes. Their args and states must be read within its five
// seconds.
const maxClaim = 128

// AcceptOptions says what [Queue.Accept] waits for. The zero value waits for one due job, without a time limit.
type AcceptOptions struct {
	// Count is the maximum number of jobs to take. Default: 1. Maximum: 128.
	Count int
	// Evictable, if not nil, are jobs that this process holds and that can make room. The jobs of one owner are in the
	// order in which they go. Accept takes at most as many jobs, each in exchange for a job of the owner with the highest
	// usage per weight. The new job's owner must have no higher usage, or be the same owner. [Job].Evicted names the job
	// that goes.
	Evictable []*Held
	// Wait is the maximum time to wait for the first job. Negative: do not wait. Default: until the context ends.
	Wait time.Duration
}

// Accept waits for jobs and takes them. The caller holds them, and must keep them alive and finish or resubmit them.
// Accept returns as soon as it has one, with all that are available at that moment, up to opts.Count. It returns no
// jobs and no error after opts.Wait. A job may be returned after ctx has ended: the caller must resubmit it. The errors
// are ctx's, ErrClosed, and the store's.
func (q *Queue) Accept(ctx context.Context, opts AcceptOptions) ([]*Held, error) {
	r := &request{
		count: min(max(opts.Count, 1), maxClaim), evictable: opts.Evictable, once: opts.Wait < 0,
		done: make(chan struct{}),
	}
	waits := ctx
	if opts.Wait > 0 {
		var cancel func()
		waits, cancel = context.WithTimeout(ctx, opts.Wait)
		defer cancel()
	}
	if !q.claimer.submit(r) {
		return nil, ErrClosed
	}
	select {
	case <-r.done:
	case <-waits.Done():
	}
	q.layer.pass(ctx)
	q.claimer.answer(r, nil, ctx.Err()) // without effect if it was answered
	return r.held, r.err
}
