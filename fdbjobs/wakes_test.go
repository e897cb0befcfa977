package fdbjobs_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// accepted is a job that was accepted.
type accepted struct {
	by   *bundle
	held *fdbjobs.Held
	at   time.Time
}

// accepting accepts jobs until the test ends. taken must have room for all.
func (b *bundle) accepting(t *testing.T, opts fdbjobs.AcceptOptions, taken chan<- accepted) {
	go func() {
		for {
			held, err := b.jobs.Accept(t.Context(), opts)
			if err != nil {
				return
			}
			for _, h := range held {
				taken <- accepted{b, h, time.Now()}
			}
		}
	}()
}

// onTime checks that a job was accepted when it was due. Claimers add a random part of a second.
func (a accepted) onTime(t *testing.T) {
	t.Helper()
	late := a.at.Sub(a.held.Job().Scheduled)
	assert.GreaterOrEqual(t, late, time.Duration(0), a.held.Job().ID)
	assert.Less(t, late, 2*time.Second, a.held.Job().ID)
}

// TestDelayedJobsWakeOnce: a delayed job wakes idle claimers if it comes before all others, each of them once. All jobs
// are taken when they are due.
func TestDelayedJobsWakeOnce(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		const claimers, jobs = 50, 60
		store := enginetest.Control(db)
		taken := make(chan accepted, jobs+1)
		for range claimers {
			newBundle(t, store).accepting(t, fdbjobs.AcceptOptions{}, taken)
		}
		after(time.Second)
		b := newBundle(t, db)
		claims := func(do func()) int64 {
			before := store.Transactions.Load()
			do()
			return store.Transactions.Load() - before
		}
		due := time.Now().Add(time.Hour)
		assert.EqualValues(t, claimers, claims(func() {
			for i := range jobs {
				b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Scheduled: due.Add(time.Duration(i%3) * time.Second)})
				after(100 * time.Millisecond)
			}
		}), "for the first")
		assert.EqualValues(t, claimers, claims(func() {
			b.add(t, fdbjobs.Spec{ID: "before", Scheduled: due.Add(-10 * time.Minute)})
			after(100 * time.Millisecond)
		}))

		after(time.Until(due.Add(-10*time.Minute)) - time.Millisecond)
		// The claimers do not wake at one moment. One finds the job due, and the others see that it was taken.
		runs := store.Runs.Load()
		all := claims(func() { after(2 * time.Second) })
		assert.LessOrEqual(t, all, int64(claimers+10))
		assert.Equal(t, all, store.Runs.Load()-runs)
		(<-taken).onTime(t)
		after(time.Until(due) - time.Second)
		assert.Empty(t, taken)
		for range jobs {
			(<-taken).onTime(t)
		}
	})
}

// TestEarlierJobGoes: a job that is delayed for longer than another wakes claimers that have begun to wait after that one
// has gone.
func TestEarlierJobGoes(t *testing.T) {
	holding := func(t *testing.T, b *bundle) *fdbjobs.Held {
		b.add(t, fdbjobs.Spec{ID: "later"})
		defer synctest.Wait() // for what the claimer does after that
		return b.accept(t)
	}
	for how, prepare := range map[string]func(t *testing.T, b *bundle) (delay func(time.Time)){
		"added": func(t *testing.T, b *bundle) func(time.Time) {
			return func(at time.Time) { b.add(t, fdbjobs.Spec{ID: "later", Scheduled: at}) }
		},
		"added together": func(t *testing.T, b *bundle) func(time.Time) {
			return func(at time.Time) {
				specs := []fdbjobs.Spec{{ID: "last", Scheduled: at.Add(time.Hour)}, {ID: "later", Scheduled: at}}
				b.transact(t, func(tx kv.Transaction) error { return b.jobs.Add(tx, specs...) })
			}
		},
		"resubmitted": func(t *testing.T, b *bundle) func(time.Time) {
			h := holding(t, b)
			return func(at time.Time) { require.NoError(t, h.Resubmit(t.Context(), at, nil, nil)) }
		},
		"added while it ran": func(t *testing.T, b *bundle) func(time.Time) {
			h := holding(t, b)
			return func(at time.Time) {
				newBundle(t, b.db.(*enginetest.Controlled).Database).add(t, fdbjobs.Spec{ID: "later", Scheduled: at})
				require.ErrorIs(t, h.Update(t.Context(), nil, nil), fdbjobs.ErrHalt)
			}
		},
	} {
		for goes, gone := range map[string]func(t *testing.T, b *bundle){
			"removed": func(t *testing.T, b *bundle) { assert.True(t, b.remove(t, "earlier")) },
			"made due": func(t *testing.T, b *bundle) {
				b.transact(t, func(tx kv.Transaction) error {
					_, err := b.jobs.MakeDue(tx, []string{"earlier"}, "", "")
					return err
				})
				b.accept(t)
			},
			"delayed for longer": func(t *testing.T, b *bundle) {
				b.add(t, fdbjobs.Spec{ID: "earlier", Scheduled: time.Now().Add(time.Hour)})
			},
		} {
			t.Run(how+", "+goes, func(t *testing.T) {
				enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
					store := enginetest.Control(db)
					other, taken := newBundle(t, db), make(chan accepted, 10)
					delay := prepare(t, newBundle(t, store))
					other.add(t, fdbjobs.Spec{ID: "earlier", Scheduled: time.Now().Add(5 * time.Second)})
					store.BeforeCommit(func() {
						gone(t, other)
						newBundle(t, db).accepting(t, fdbjobs.AcceptOptions{}, taken)
						synctest.Wait()
					})
					runs := store.Runs.Load()
					delay(time.Now().Add(10 * time.Second))
					assert.EqualValues(t, 2, store.Runs.Load()-runs)
					a := <-taken
					assert.Equal(t, "later", a.held.Job().ID)
					a.onTime(t)
				})
			})
		}
	}
}

// TestDelayedTogether: a transaction that delays several jobs reads one row of another, and wakes claimers only for the
// first.
func TestDelayedTogether(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c, waits := newHolders(t, db, 20), enginetest.Control(db)
		newBundle(t, waits).accepting(t, fdbjobs.AcceptOptions{}, nil)
		after(2 * time.Minute) // it has updated the waiting owners
		store := enginetest.Control(db)
		b, now := newBundle(t, store), time.Now()
		b.add(t, fdbjobs.Spec{ID: "first", Scheduled: now.Add(10 * time.Minute)})
		after(time.Second)
		wakes := func(want int, minutes int) {
			t.Helper()
			var specs []fdbjobs.Spec
			for i := range 20 {
				specs = append(specs, fdbjobs.Spec{
					ID: fmt.Sprint(minutes, i), Scheduled: now.Add(time.Duration(minutes+i) * time.Minute),
				})
			}
			claims, reads := waits.Transactions.Load(), store.KeysRead.Load()
			b.transact(t, func(tx kv.Transaction) error { return b.jobs.Add(tx, specs...) })
			assert.EqualValues(t, len(specs)+1, store.KeysRead.Load()-reads)
			after(time.Second)
			assert.EqualValues(t, want, waits.Transactions.Load()-claims)
		}
		wakes(0, 10)
		wakes(1, 5)
		wakes(0, 6)

		// So do resubmissions that share a transaction.
		claims := waits.Transactions.Load()
		var calls []func()
		for i, h := range c.held[1:] {
			calls = append(calls, func() {
				assert.NoError(t, h.Resubmit(t.Context(), now.Add(time.Duration(4+i%2*10)*time.Minute), nil, nil))
			})
		}
		c.gather(calls...)()
		assert.EqualValues(t, 2, c.store.ended.Load(), "the first, and one for all others")
		after(time.Second)
		assert.EqualValues(t, 1, waits.Transactions.Load()-claims)
	})
}

// TestReadyJobsWakeInTurn: the claimer that took the latest job takes the next one at once. The others pause, and find it
// taken without a conflict.
func TestReadyJobsWakeInTurn(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		const claimers = 20
		store, taken := enginetest.Control(db), make(chan accepted, 100)
		for range claimers {
			newBundle(t, store).accepting(t, fdbjobs.AcceptOptions{}, taken)
		}
		b := newBundle(t, db)
		var first accepted
		for i := range 10 {
			after(2 * time.Second)
			added, runs, transactions := time.Now(), store.Runs.Load(), store.Transactions.Load()
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i)})
			next := <-taken
			assert.Zero(t, next.at.Sub(added))
			if i == 0 {
				first = next
				continue
			}
			assert.Same(t, first.by, next.by)
			after(time.Second)
			assert.Equal(t, store.Transactions.Load()-transactions, store.Runs.Load()-runs)
		}
	})
}

// TestPromoteApart: claimers that know of each other promote different jobs, and do not conflict.
func TestPromoteApart(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		const jobs = 1_000
		store := enginetest.Control(db)
		b, other := newBundle(t, store), newBundle(t, db)
		var specs []fdbjobs.Spec
		for i := range jobs {
			specs = append(specs, fdbjobs.Spec{ID: fmt.Sprint("delayed ", i), Scheduled: time.Now().Add(4 * time.Second)})
		}
		other.transact(t, func(tx kv.Transaction) error { return other.jobs.Add(tx, specs...) })
		for i := range 3 {
			for j, by := range []*bundle{b, other} {
				b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i, j)})
				by.accept(t)
			}
			after(1500 * time.Millisecond)
		}
		require.Equal(t, 2, b.jobs.Partitions())
		require.Equal(t, 2, other.jobs.Partitions())
		runs := store.Runs.Load()
		store.BeforeCommit(func() { require.NoError(t, other.jobs.Promote(t.Context())) })
		require.NoError(t, b.jobs.Promote(t.Context()))
		assert.EqualValues(t, 1, store.Runs.Load()-runs)

		// Claimers that do not know of each other conflict, and then go apart too.
		b, other = newBundle(t, store), newBundle(t, db)
		runs = store.Runs.Load()
		store.BeforeCommit(func() { require.NoError(t, other.jobs.Promote(t.Context())) })
		require.NoError(t, b.jobs.Promote(t.Context()))
		assert.EqualValues(t, 2, store.Runs.Load()-runs)
		taken := 0
		for held := b.take(t, 64); len(held) > 0; held = b.take(t, 64) {
			taken += len(held)
		}
		assert.Equal(t, jobs, taken)
	})
}

// TestClaimsAreCounted: claims, those that took no job, and the jobs that the others took.
func TestClaimsAreCounted(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b, taken := newBundle(t, db), make(chan accepted, 3)
		counted := func(wantMade, wantEmpty, wantJobs int64) {
			t.Helper()
			made, empty, jobs := b.jobs.Claims()
			assert.Equal(t, []int64{wantMade, wantEmpty, wantJobs}, []int64{made, empty, jobs})
		}
		counted(0, 0, 0)
		b.accepting(t, fdbjobs.AcceptOptions{Count: 2}, taken)
		after(time.Second)
		counted(1, 1, 0)
		specs := []fdbjobs.Spec{{ID: "a"}, {ID: "b"}, {ID: "c"}}
		b.transact(t, func(tx kv.Transaction) error { return b.jobs.Add(tx, specs...) })
		after(time.Second)
		assert.Len(t, taken, 3)
		counted(4, 2, 3)
	})
}

// TestFewClaimersTakeFewJobs: while some claimers take the jobs, the others look rarely, the more of them there are. They
// look again soon after those have stopped.
func TestFewClaimersTakeFewJobs(t *testing.T) {
	for _, claimers := range []int{5, 40} {
		t.Run(fmt.Sprint(claimers), func(t *testing.T) {
			enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
				const jobs = 600
				taken, all := make(chan accepted, 2*jobs), make([]*bundle, claimers)
				for i := range all {
					all[i] = newBundleWith(t, db, fdbjobs.Options{Claimers: func() int { return claimers }})
					all[i].accepting(t, fdbjobs.AcceptOptions{}, taken)
				}
				b := newBundle(t, db)
				add := func(n int) {
					b.add(t, fdbjobs.Spec{ID: fmt.Sprint(n)})
					after(50 * time.Millisecond)
				}
				for n := range jobs {
					add(n)
				}
				var empty, took int64
				for _, one := range all {
					_, none, some := one.jobs.Claims()
					empty, took = empty+none, took+some
				}
				assert.EqualValues(t, jobs, took)
				assert.LessOrEqual(t, empty, 2*took)
				for len(taken) > 0 {
					(<-taken).by.layer.Close()
				}
				began := time.Now()
				add(jobs)
				assert.LessOrEqual(t, (<-taken).at.Sub(began), 150*time.Millisecond*time.Duration(claimers))
			})
		})
	}
}
