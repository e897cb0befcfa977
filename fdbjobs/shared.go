package fdbjobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"settee/pkg/kv"
)

// The updates, finishes and resubmissions of a process share transactions. Up to sharedAtOnce writers make them, one
// transaction after the other: each carries all writes that wait and fit. So nothing waits for a timer. A writer is
// started by a write that finds fewer, and ends when no write waits.
//
// Writes that keep a job alive or end its hold go first: on a machine without time to spare, a hold is lost if its renewal
// waits behind other writes. The other writes of a job become renewals after a sixth of the timeout, so they are not
// overtaken for longer.
//
// The writes of a transaction stand alone. Each reads its own row, so a job that is no longer held is an ErrHalt for
// its caller and changes nothing for the others. After an unknown result each recognises its own earlier commit. If a
// transaction fails, it is taken apart: each write runs alone. New calls do not wait for a transaction that must be
// repeated.

const (
	// sharedAtOnce is the number of transactions that are under way before a call waits. With one, a transaction whose
	// commit hangs would hold up all writes of the process.
	sharedAtOnce = 4
	// sharedWrites is the maximum number of writes in one transaction.
	sharedWrites = 128
	// sharedBytes limits the size of the jobs' rows and states in one transaction: a tenth of what a transaction may
	// have. What callers add is not known before. If that makes it too large, it is taken apart.
	sharedBytes = 1_000_000
	// rowsSize is about what a write has besides ids, owners and the state: keys, stamps and what the store adds.
	rowsSize = 4_000
	// sharedRuns is how often a shared transaction runs before it is taken apart. Reads of callers that conflict, or
	// that together take more than five seconds, can make it fail each time.
	sharedRuns = 3
)

var (
	// errApart ends a shared transaction that has run often enough.
	errApart = errors.New("a shared transaction is taken apart")
	// errPanic ends a transaction in which a caller's function panics, and errExit one in which it ends the goroutine.
	errPanic = errors.New("the function of a call panics")
	errExit  = errors.New("the function of a call, or of another one in its transaction, has ended the goroutine")
)

// write is a pending call that writes a held job.
type write struct {
	ctx  context.Context
	held *Held
	// next returns the row after the call, except for its facts. old is the job's row, under the lock of held.
	next func(old *row) *row
	// also, if not nil, makes the caller's writes, before next.
	also      func(kv.Transaction) error
	state     json.RawMessage // nil if it keeps the state
	facts     string          // of state, in the version of the job's row when it was taken
	renews    bool            // it renews the hold
	ends      bool            // it ends the hold
	resubmits *int64          // the time for which next queues the job; nil if it does not
	size      int             // of rows and state in bytes, roughly

	since     time.Time // when the call began
	attempted bool      // a run has found the job held
	halted    bool      // the latest run has not
	unknown   bool      // an earlier transaction may have been committed

	// Set before done is closed.
	ended  bool
	err    error
	panics any // what also panics with
	done   chan struct{}
}

// sharedWriter makes the writes of one queue in this process.
type sharedWriter struct {
	queue *Queue

	mu      sync.Mutex
	atOnce  int      // sharedAtOnce, except in tests
	writers int      // that run, without those whose transaction is repeated
	waiting []*write // the urgent ones first, and of each kind the longest waiting
}

// do makes a write. It returns ErrHalt if the job is not held. A panic of the caller's function is the caller's.
func (s *sharedWriter) do(w *write) error {
	w.done, w.since = make(chan struct{}), s.queue.layer.now()
	s.add(w)
	select {
	case <-w.done:
	case <-w.ctx.Done():
		s.leave(w)
		<-w.done // its transaction, if it is in one, ends with its context
	}
	s.queue.layer.pass(w.ctx)
	if w.panics != nil {
		panic(w.panics)
	}
	return w.err
}

// add makes a write wait, and starts a writer if there is room for one. Urgent writes wait before others.
func (s *sharedWriter) add(w *write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.waiting)
	if w.urgent() {
		if i := slices.IndexFunc(s.waiting, func(other *write) bool { return !other.urgent() }); i >= 0 {
			at = i
		}
	}
	s.waiting = slices.Insert(s.waiting, at, w)
	s.startWriter()
}

// urgent reports whether a job is lost to this process, or kept from others, while the write waits.
func (w *write) urgent() bool { return w.renews || w.ends }

// startWriter starts a writer if writes wait and there is room for one. The caller holds mu.
func (s *sharedWriter) startWriter() {
	if len(s.waiting) == 0 || s.writers >= s.atOnce {
		return
	}
	s.writers++
	// Its calls wait for it, and Layer.Close does not: held jobs can be finished after that.
	go s.work(s.queue.layer.named(context.WithoutCancel(s.waiting[0].ctx), "writer of "+s.queue.name))
}

// work is a writer: it makes transactions until no write waits, or until one was repeated, which another writer does
// not wait for.
func (s *sharedWriter) work(ctx context.Context) {
	s.queue.layer.pass(ctx) // a goroutine of a killed process ends here, and starts no other
	var taken []*write
	counted := true
	retire := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if counted {
			counted = false
			s.writers--
			s.startWriter()
		}
	}
	defer func() {
		for _, w := range taken {
			if !w.ended { // a function of a caller has called runtime.Goexit
				w.end(errExit)
			}
		}
		retire()
	}()
	for counted {
		if taken = s.take(); len(taken) == 0 {
			return
		}
		s.run(taken, retire)
	}
}

// leave ends a write that is not in a transaction, because its context has ended.
func (s *sharedWriter) leave(w *write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		w.end(fmt.Errorf("%w: the write waited for %s behind %d other writes of this process",
			context.Cause(w.ctx), s.queue.layer.now().Sub(w.since).Round(time.Millisecond), i))
	}
}

// end ends a write with the result of its transaction.
func (w *write) end(err error) {
	if w.unknown && w.ctx.Err() != nil && errors.Is(err, context.Cause(w.ctx)) && !errors.Is(err, kv.ErrCommitUnknown) {
		err = errors.Join(kv.ErrCommitUnknown, err)
	}
	w.err, w.ended = err, true
	close(w.done)
}

// take takes the writes of the next transaction out of waiting: the first, and as many others as fit. Those with a
// function of the caller come first.
func (s *sharedWriter) take() (taken []*write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs, size, full := map[string]bool{}, 0, false
	s.waiting = slices.DeleteFunc(s.waiting, func(w *write) bool {
		full = full || len(taken) == sharedWrites || len(taken) > 0 && size+w.size > sharedBytes
		if full || jobs[w.held.job.ID] { // a transaction writes a job once
			return false
		}
		taken, size = append(taken, w), size+w.size
		jobs[w.held.job.ID] = true
		return true
	})
	slices.SortStableFunc(taken, func(a, b *write) int { return cmp.Compare(a.place(), b.place()) })
	return taken
}

// place orders the writes of a transaction. A function of the caller may change other jobs, whose rows must not have
// been written by then.
func (w *write) place() int {
	if w.also != nil {
		return 0
	}
	return 1
}

// run runs a transaction with some writes, and ends them. repeats is called at the latest when it has run once.
func (s *sharedWriter) run(writes []*write, repeats func()) {
	err := s.transact(writes, repeats)
	repeats()
	for _, w := range writes {
		switch {
		case err == nil && w.halted:
			w.end(ErrHalt)
		case err == nil || len(writes) == 1:
			w.end(err)
		default:
			// A transaction that was repeated until it was taken apart does not say what became of its earlier runs.
			w.unknown = errors.Is(err, kv.ErrCommitUnknown) || errors.Is(err, errApart)
			if w.ctx.Err() != nil {
				w.end(context.Cause(w.ctx))
			} else {
				s.run([]*write{w}, repeats)
			}
		}
	}
}

// transact runs a transaction with some writes. repeats is called when the transaction runs again.
func (s *sharedWriter) transact(writes []*write, repeats func()) error {
	ctx := writes[0].ctx
	if len(writes) > 1 {
		// It ends with the first of the contexts: the caller's function must not run after its call has returned.
		shared, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		defer cancel(nil)
		for _, w := range writes {
			stop := context.AfterFunc(w.ctx, func() { cancel(context.Cause(w.ctx)) })
			defer stop()
		}
		ctx = shared
	}
	runs := 0
	return s.queue.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		if runs++; runs > 1 {
			repeats()
			if runs > sharedRuns && len(writes) > 1 {
				return errApart
			}
		}
		return s.apply(tx, writes)
	})
}

// apply makes some writes.
func (s *sharedWriter) apply(tx kv.Transaction, writes []*write) error {
	batch := s.queue.batch(tx)
	rows := make([]kv.Future[*row], len(writes))
	for i, w := range writes {
		rows[i] = s.queue.readRow(tx, w.held.job.ID)
		if w.resubmits != nil {
			batch.want(w.held.job.Owner, *w.resubmits)
		}
	}
	stale := false
	for i, w := range writes {
		if stale {
			rows[i] = s.queue.readRow(tx, w.held.job.ID) // the store's client has it
		}
		if w.also != nil {
			batch.writeTallies() // the caller's function may read them
		}
		if err := w.run(batch, rows[i]); err != nil {
			return err
		}
		if batch.full() && len(writes) > 1 {
			return errApart
		}
		stale = stale || w.also != nil
	}
	batch.writeTallies()
	return nil
}

// run makes a write in a transaction, if the job is held.
//
// When the holder ends the job, its lock stays in the row. Any other transaction that takes the job away clears or
// replaces the lock. So if an earlier run found the job held, and now it is not held but the row still has the lock,
// then the earlier run was committed.
func (w *write) run(b *batch, reading kv.Future[*row]) error {
	h := w.held
	old, err := reading.Await()
	w.halted, w.panics = true, nil
	switch {
	case err != nil:
		return err
	case old == nil || old.lock != h.lock:
		return nil
	case old.status != Running:
		w.halted = !w.attempted
		return nil
	case old.generation != h.job.generation:
		// Added again: the next run gets the new args.
		return b.gather(h.job.ID, old, h.queue.requeued(old))
	}
	w.attempted, w.halted = true, false
	if w.also != nil {
		if err := w.callAlso(b.tx); err != nil {
			return err
		}
	}
	return w.put(b, old, w.next(old))
}

// put writes the row after a call, and the state if the call has one.
func (w *write) put(b *batch, old, next *row) (err error) {
	q, id := w.held.queue, w.held.job.ID
	next.checked = true
	if w.state == nil {
		return b.gather(id, old, next)
	}
	if next.version != 0 && q.derivation == nil {
		return q.needsDerivation()
	}
	next.facts.state = w.facts
	if next.version != w.held.job.version {
		if next.facts.state, err = q.derivation.factsOfState(next.version, w.state); err != nil {
			return err
		}
	}
	q.setState(b.tx, id, w.state)
	return b.gather(id, old, next)
}

// callAlso calls the function of the caller, and keeps a panic for the caller's goroutine.
func (w *write) callAlso(tx kv.Transaction) (err error) {
	defer func() {
		if w.panics = recover(); w.panics != nil {
			err = errPanic
		}
	}()
	return w.also(tx)
}
