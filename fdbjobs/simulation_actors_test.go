//go:build !race

package fdbjobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/fdbjobs/internal/turnstile"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// populate starts about n goroutines that use the layer.
func (s *simulation) populate(p *simProcess, n int) {
	for i := range n {
		queue := p.queues[s.intN(len(p.queues))]
		switch u := s.intN(100); {
		case i < 2:
			s.acceptor(p, p.queues[i%len(p.queues)])
		case u < 1 || i == 2 && s.intN(2) == 0:
			for _, queue := range p.queues {
				s.monitor(p, queue)
			}
		case u < 20:
			s.acceptor(p, queue)
		case u < 45:
			s.creator(p, queue)
		case u < 48:
			s.hastener(p, queue)
		case u < 55:
			s.remover(p, queue)
		case u < 80:
			s.waiter(p, queue)
		case u < 92:
			s.follower(p, queue)
		case u < 96:
			s.reader(p, queue)
		case u < 98:
			s.tidier(p, queue)
		default:
			s.governor(p, queue)
		}
	}
}

// actor starts a goroutine.
func (s *simulation) actor(p *simProcess, kind string, f func(ctx context.Context)) {
	s.counts["actors"]++
	p.Go(s.name(kind), f)
}

// repeat calls f a number of times, at random times of the creating phase.
func (s *simulation) repeat(ctx context.Context, n int, f func()) {
	for range n {
		s.gate.Sleep(ctx, s.upTo(2*s.plan.creating/time.Duration(n)))
		if s.draining {
			return
		}
		f()
	}
}

// must ends the simulation if err is not nil.
func (s *simulation) must(err error, what string) bool {
	if err != nil {
		s.fail("%s: %v", what, err)
	}
	return err == nil
}

func (s *simulation) id() string { return fmt.Sprintf("%x job", s.intN(s.plan.ids)) }

func (s *simulation) ids() []string {
	var ids []string
	for range 1 + max(0, s.intN(6)-3) {
		if id := s.id(); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// creator adds jobs, sometimes several in one transaction.
func (s *simulation) creator(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "creator", func(ctx context.Context) {
		s.repeat(ctx, 5, func() {
			s.names++
			by := &intent{does: adds, ids: s.ids(), n: s.names, committed: map[string]bool{}}
			var specs []fdbjobs.Spec
			for _, id := range by.ids {
				spec := fdbjobs.Spec{
					ID: id, Owner: fmt.Sprint("owner ", s.intN(s.plan.owners)),
					Args: text(fmt.Sprintf(`{"n":%d}`, by.n)), Token: fmt.Sprint("token ", by.n), State: text(fmt.Sprintf(`{"s":%d}`, by.n%50)),
				}
				if by.n%3 > 0 {
					spec.Listed = text(fmt.Sprintf(`{"l":"%d"}`, by.n%2))
				}
				if s.intN(2) == 0 {
					spec.Scheduled = p.now().Add(time.Duration(s.intN(10+s.plan.later)-10) * time.Second)
				}
				specs = append(specs, spec)
			}
			err := p.db.Transact(by.in(ctx), func(tx kv.Transaction) error {
				for _, spec := range specs {
					if err := queue.Add(tx, spec); err != nil {
						return err
					}
				}
				return nil
			})
			if s.must(err, "add") && len(by.committed) != len(by.ids) {
				s.fail("%v were added, and are not there", by.ids)
			}
		})
	})
}

// delayed returns the ids of the delayed jobs.
func (s *simulation) delayed(queue *fdbjobs.Queue) (ids []string) {
	for id, e := range s.ledger.book(queue.Name()).entries {
		if e.row.Waits {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// hastener makes delayed jobs due.
func (s *simulation) hastener(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "hastener", func(ctx context.Context) {
		s.repeat(ctx, 5, func() {
			id := s.id()
			if delayed := s.delayed(queue); len(delayed) > 0 {
				id = delayed[s.intN(len(delayed))]
			}
			by := &intent{does: hastens, ids: []string{id}, committed: map[string]bool{}}
			err := p.db.Transact(by.in(ctx), func(tx kv.Transaction) error {
				_, err := queue.MakeDue(tx, by.ids, "", "")
				return err
			})
			s.must(err, "make due")
		})
	})
}

func (s *simulation) remover(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "remover", func(ctx context.Context) {
		s.repeat(ctx, 3, func() {
			id := s.id()
			by := &intent{does: removes, ids: []string{id}, committed: map[string]bool{}}
			since := s.ledger.commits
			err := p.db.Transact(by.in(ctx), func(tx kv.Transaction) error {
				_, err := queue.Remove(tx, id)
				return err
			})
			if s.must(err, "remove") && !s.ledger.book(queue.Name()).entry(id).had(fdbjobs.Removed, since) {
				s.fail("%q was removed, and is there", id)
			}
		})
	})
}

// waiter waits for the end of jobs.
func (s *simulation) waiter(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "waiter", func(ctx context.Context) {
		s.repeat(ctx, 3, func() {
			w := &waiting{
				name: turnstile.NameOf(ctx), process: p, book: s.ledger.book(queue.Name()), id: s.id(),
				since: s.ledger.commits, began: time.Now(),
			}
			s.waiters = append(s.waiters, w)
			job, err := queue.Wait(ctx, w.id, nil)
			s.waiters = slices.DeleteFunc(s.waiters, func(v *waiting) bool { return v == w })
			s.told(w, job, err)
		})
	})
}

// told checks the result of a wait.
func (s *simulation) told(w *waiting, job *fdbjobs.Job, err error) {
	switch {
	case errors.Is(err, fdbjobs.ErrNotFound):
		s.counts["waits for none"]++
		if !w.book.entry(w.id).had(fdbjobs.Removed, w.since) {
			s.fail("%s got an error for jobs that exist: %v", w, err)
		}
	case s.must(err, "wait"):
		s.counts["waits"]++
		e := w.book.entry(job.ID)
		if job.ID != w.id || !e.had(fdbjobs.Finished, w.since) {
			s.fail("%s was told of the end of %q", w, job.ID)
		}
		if job.Status == fdbjobs.Finished && e.row.Status == fdbjobs.Finished && e.ended[fdbjobs.Finished] <= w.since &&
			string(job.State) != e.state {
			s.fail("%s was told that the state of %q is %s, not %s", w, job.ID, job.State, e.state)
		}
	}
}

// follower follows a job until it has ended.
func (s *simulation) follower(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "follower", func(ctx context.Context) {
		s.repeat(ctx, 2, func() {
			id, since, last := s.id(), s.ledger.commits, fdbjobs.Job{}
			e := s.ledger.book(queue.Name()).entry(id)
			_, err := queue.Wait(ctx, id, func(job *fdbjobs.Job) bool {
				if !e.had(job.Status, since) {
					s.fail("%q never was %s", id, job.Status)
				}
				last = *job
				return job.Status == fdbjobs.Finished
			})
			if errors.Is(err, fdbjobs.ErrNotFound) {
				if !e.had(fdbjobs.Removed, since) {
					s.fail("%q was followed, and never removed", id)
				}
				return
			}
			if s.must(err, "follow") && last.Status != fdbjobs.Finished {
				s.fail("%q was followed until it was %s", id, last.Status)
			}
		})
	})
}

// reader checks in one transaction that lists and counts agree.
func (s *simulation) reader(p *simProcess, queue *fdbjobs.Queue) {
	if queue.Name() == otherQueue && s.plan.unlisted {
		return
	}
	s.actor(p, "reader", func(ctx context.Context) {
		s.repeat(ctx, 4, func() {
			status := []fdbjobs.Status{fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished}[s.intN(3)]
			var n, listed int64
			err := p.db.Transact(ctx, func(tx kv.Transaction) error {
				jobs, err := queue.List(tx.Snapshot(), fdbjobs.Selection{Parts: fdbjobs.Parts(status)}, fdbjobs.Position{}, s.plan.ids+1)
				if err != nil {
					return err
				}
				listed = int64(len(jobs))
				n, err = queue.Count(tx.Snapshot(), fdbjobs.Selection{Parts: fdbjobs.Parts(status)})
				return err
			})
			if s.must(err, "list") && n != listed {
				s.fail("%d jobs are counted as %s, and %d are listed", n, status, listed)
			}
		})
	})
}

// tidier removes expired jobs.
func (s *simulation) tidier(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "tidier", func(ctx context.Context) {
		s.repeat(ctx, 5, func() {
			by := &intent{does: expires, committed: map[string]bool{}}
			_, _, err := removeExpired(by.in(ctx), p.db, queue)
			s.must(err, "remove what has expired")
		})
	})
}

// deriver changes the version of the derivation of new rows, and gives it to the others.
func (s *simulation) deriver(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "deriver", func(ctx context.Context) {
		s.repeat(ctx, 6, func() {
			version := int64(s.intN(3))
			s.must(p.db.Transact(ctx, func(tx kv.Transaction) error {
				tx.Set(versionKey, rows.Int(version))
				return nil
			}), "set the version")
			s.gate.Sleep(ctx, s.upTo(s.plan.creating/12))
			for next := []byte{}; next != nil; {
				by := &intent{does: rederives, committed: map[string]bool{}}
				from := next
				if len(from) == 0 {
					from = nil
				}
				then, err := kv.TransactValue(by.in(ctx), p.db, func(tx kv.Transaction) ([]byte, error) {
					return queue.Rederive(tx, from)
				})
				if !s.must(err, "rederive") {
					return
				}
				next = then
			}
		})
	})
}

// governor sets weights, and rolls up usage.
func (s *simulation) governor(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "governor", func(ctx context.Context) {
		s.repeat(ctx, 3, func() {
			owner, weight := fmt.Sprint("owner ", s.intN(s.plan.owners)), float64(s.intN(5))
			if weight == 0 {
				s.counts["paused"]++
			}
			s.must(p.db.Transact(ctx, func(tx kv.Transaction) error { return queue.SetWeight(tx, owner, weight) }), "set a weight")
			_, err := queue.RollUp(ctx, 10*time.Second, 0.5, int64(10*s.intN(3)))
			s.must(err, "roll up")
		})
	})
}

// resumer resumes paused owners.
func (s *simulation) resumer(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "resumer", func(ctx context.Context) {
		for {
			s.must(p.db.Transact(ctx, func(tx kv.Transaction) error {
				weights, err := queue.Weights(tx)
				for _, owner := range slices.Sorted(maps.Keys(weights)) {
					if err == nil && weights[owner] == 0 {
						err = queue.SetWeight(tx, owner, 2)
					}
				}
				return err
			}), "resume")
			s.gate.Sleep(ctx, s.upTo(10*time.Second))
		}
	})
}

func (s *simulation) monitor(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "monitor", func(ctx context.Context) {
		by := &intent{does: monitors, committed: map[string]bool{}}
		s.monitors = append(s.monitors, &monitoring{process: p, book: s.ledger.book(queue.Name()), began: time.Now()})
		err := queue.RunMonitor(by.in(ctx), func(_ []string, _ time.Duration, err error) {
			if err != nil {
				s.fail("monitor: %v", err)
			}
		})
		turnstile.Pass(ctx, "monitor ended") // it ends at once with its context
		s.fail("a monitor ended: %v", err)
	})
}

// acceptor takes jobs, as long as the process lives.
func (s *simulation) acceptor(p *simProcess, queue *fdbjobs.Queue) {
	s.actor(p, "acceptor", func(ctx context.Context) {
		for {
			s.accept(ctx, p, queue)
			s.gate.Sleep(ctx, s.upTo(2*time.Second))
		}
	})
}

func (s *simulation) accept(ctx context.Context, p *simProcess, queue *fdbjobs.Queue) {
	opts := fdbjobs.AcceptOptions{Count: 1 + max(0, s.intN(6)-3)}
	if s.intN(8) == 0 {
		opts.Evictable = s.evictable(p, queue)
	}
	if s.intN(2) == 0 || opts.Evictable != nil {
		opts.Wait = time.Duration(s.intN(10)-2) * time.Second
	}
	// Sometimes it gives up, whether or not a job is on the way.
	ctx = p.Name(ctx, s.name("accept"))
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.intN(3) == 0 {
		waiting, cancel = context.WithTimeout(waiting, s.upTo(4*time.Second))
		defer cancel()
	}
	held, err := queue.Accept(waiting, opts)
	if errors.Is(err, context.DeadlineExceeded) {
		s.counts["cancelled accepts"]++
	} else {
		s.must(err, "accept")
	}
	s.exchanged(held, opts)
	for _, h := range held {
		s.handed(p, h)
		s.actor(p, "hold", func(ctx context.Context) { s.hold(ctx, p, queue, h) })
	}
}

// evictable are the jobs that a process holds, as it offers them.
func (s *simulation) evictable(p *simProcess, queue *fdbjobs.Queue) []*fdbjobs.Held {
	offered := []*fdbjobs.Held{}
	for _, lock := range slices.Sorted(maps.Keys(s.ledger.holdings)) {
		h := s.ledger.holdings[lock]
		if h.by == p && s.ledger.book(queue.Name()).entries[h.entry.id] == h.entry && h.held.Context().Err() == nil {
			offered = append(offered, h.held)
		}
	}
	return offered
}

// exchanged checks that each job was taken in exchange for a different one of those offered.
func (s *simulation) exchanged(held []*fdbjobs.Held, opts fdbjobs.AcceptOptions) {
	if opts.Evictable == nil {
		return
	}
	offered := slices.Clone(opts.Evictable)
	for _, h := range held {
		s.counts["exchanged"]++
		i := slices.IndexFunc(offered, func(y *fdbjobs.Held) bool { return y.Job().ID == h.Job().Evicted })
		if i < 0 {
			s.fail("%q was taken in exchange for %q, which was not offered or is gone", h.Job().ID, h.Job().Evicted)
			return
		}
		offered = slices.Delete(offered, i, i+1)
	}
}

// handed checks a job that was accepted.
func (s *simulation) handed(p *simProcess, h *fdbjobs.Held) {
	job, holding := h.Job(), s.ledger.holdings[h.Job().Lock]
	switch {
	case holding == nil || holding.entry.id != job.ID || holding.process != p.String():
		s.fail("%q was accepted under a lock that was not committed", job.ID)
		return
	case holding.held != nil:
		s.fail("%q was accepted twice", job.ID)
	case job.Scheduled.After(time.Now().Add(s.plan.clocks / 2)):
		s.fail("%q was accepted %v before its time", job.ID, time.Until(job.Scheduled))
	}
	holding.held, holding.by = h, p
}

// hold works on a job until some end.
func (s *simulation) hold(ctx context.Context, p *simProcess, queue *fdbjobs.Queue, h *fdbjobs.Held) {
	var args struct{ N int }
	s.must(json.Unmarshal(h.Job().Args, &args), "args")
	for range s.intN(4) {
		if !s.rest(ctx, h) {
			return
		}
		if s.write(ctx, h, args.N, false, h.Update) != nil {
			return
		}
	}
	if !s.rest(ctx, h) {
		return
	}
	switch u := s.intN(12); {
	case s.draining || u > 4:
		_ = s.write(ctx, h, args.N, true, h.Finish)
	case u == 0:
		h.Expires = p.now().Add(time.Duration(s.intN(10)) * time.Second)
		_ = s.write(ctx, h, args.N, true, func(ctx context.Context, state json.RawMessage, also func(kv.Transaction) error) error {
			return h.Finish(ctx, state, also)
		})
	case u < 3:
		at := p.now().Add(time.Duration(s.intN(10+s.plan.later)-10) * time.Second)
		_ = s.write(ctx, h, args.N, true, func(ctx context.Context, _ json.RawMessage, _ func(kv.Transaction) error) error {
			return h.Resubmit(ctx, at, nil, nil)
		})
	case u == 3: // dies
	case u == 4: // sleeps for so long that it must lose the job
		slept := time.Now()
		s.gate.Sleep(ctx, 3*slices.Max(s.plan.timeouts))
		// A frozen process may wake before the timer that ends the context.
		if p.disturbed.Before(slept) && !errors.Is(context.Cause(h.Context()), fdbjobs.ErrHalt) {
			s.fail("%q was not updated, and its holder goes on", h.Job().ID)
		}
		_ = s.write(ctx, h, args.N, true, h.Finish)
	}
}

// rest waits until the next update, by sleeping or until the job is lost, and reports whether the job may still be
// held.
func (s *simulation) rest(ctx context.Context, h *fdbjobs.Held) bool {
	d := s.upTo(h.Heartbeat())
	switch s.intN(4) {
	case 0:
		resting, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		if err := h.Lost(resting); !errors.Is(err, fdbjobs.ErrHalt) {
			if !errors.Is(err, context.DeadlineExceeded) {
				s.fail("lost: %v", err)
			}
			return true
		}
		s.counts["lost"]++
		if err := s.write(ctx, h, 0, false, h.Update); !errors.Is(err, fdbjobs.ErrHalt) {
			s.fail("%q was lost, and could be updated", h.Job().ID)
		}
		return false
	case 1, 2:
		s.gate.Sleep(ctx, d)
	default:
		// Holders that wake at the same moment write in one transaction.
		s.gate.Sleep(ctx, time.Until(time.Now().Truncate(4*time.Second).Add(4*time.Second)))
	}
	return true
}

var errAdded = errors.New("what the holder adds fails")

// write is what a holder writes, with another write in the same transaction.
func (s *simulation) write(
	ctx context.Context, h *fdbjobs.Held, args int, ends bool,
	do func(context.Context, json.RawMessage, func(kv.Transaction) error) error,
) error {
	s.names++
	by := &intent{
		does: holds, lock: h.Job().Lock, args: args, ends: ends, state: fmt.Sprintf(`{"s":%d}`, s.names),
		committed: map[string]bool{},
	}
	by.fails = s.intN(20) == 0
	s.ledger.writing[by.lock] = by
	state := text(by.state)
	if by.keeps = !ends && s.names%4 == 0; by.keeps {
		state = nil
	}
	err := do(by.in(ctx), state, func(tx kv.Transaction) error {
		tx.Set(append(slices.Clone(fencePrefix), by.lock...), nil)
		if by.fails {
			return errAdded
		}
		return nil
	})
	delete(s.ledger.writing, by.lock)
	switch {
	case errors.Is(err, fdbjobs.ErrHalt):
		s.counts["halts"]++
		if h.Context().Err() == nil {
			s.fail("%q is not held, and its holder goes on", h.Job().ID)
		}
		if now := s.ledger.holdings[h.Job().Lock].entry.row; by.done && now.Lock == h.Job().Lock && now.Status != fdbjobs.Running {
			s.fail("%q was ended by its holder, and its call returned ErrHalt", h.Job().ID)
		}
	case by.fails && errors.Is(err, errAdded):
		s.counts["failed alone"]++
	case s.must(err, "write") && !by.committed[h.Job().ID] && (!by.keeps || by.written == 0):
		s.fail("%q was written, and nothing was committed", h.Job().ID)
	case ends && by.written > 0:
		s.counts["last words"]++
	}
	return err
}
