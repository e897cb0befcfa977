package fdbjobs_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

func (b *bundle) owners(t *testing.T) map[string]fdbjobs.Owner {
	t.Helper()
	owners, err := kv.TransactValue(t.Context(), b.db, func(tx kv.Transaction) ([]fdbjobs.Owner, error) {
		return b.jobs.Owners(tx, "", 10_000)
	})
	require.NoError(t, err)
	found := map[string]fdbjobs.Owner{}
	for _, o := range owners {
		if o.Pending+o.Running > 0 { // a monitor has not yet forgotten the others
			found[o.Name] = o
		}
	}
	return found
}

func (b *bundle) weigh(t *testing.T, owner string, weight float64) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error { return b.jobs.SetWeight(tx, owner, weight) })
}

// addMany adds n jobs of an owner.
func (b *bundle) addMany(t *testing.T, owner string, n int) {
	t.Helper()
	for i := range n {
		b.add(t, fdbjobs.Spec{ID: fmt.Sprintf("%s %03d", owner, i), Owner: owner})
	}
}

// serve takes n jobs, one or several at a time, charges each at its end, and returns how many each owner had. A second
// passes with each claim.
func (b *bundle) serve(t *testing.T, n, atOnce int, charge int64) map[string]int {
	t.Helper()
	served := map[string]int{}
	for done := 0; done < n; {
		held := b.acceptBy(t, fdbjobs.AcceptOptions{Count: min(atOnce, n-done), Wait: -1})
		require.NotEmpty(t, held)
		for _, h := range held {
			served[h.Job().Owner]++
			done++
			require.NoError(t, h.Finish(t.Context(), nil, func(tx kv.Transaction) error {
				b.jobs.Charge(tx, h.Job().Owner, charge)
				return nil
			}))
		}
		after(time.Second)
	}
	return served
}

// countOf returns the number of an owner's jobs with a status and a tag.
func (b *bundle) countOf(t *testing.T, owner string, status fdbjobs.Status, tag string) int64 {
	t.Helper()
	n, err := kv.TransactValue(t.Context(), b.db, func(tx kv.Transaction) (int64, error) {
		return b.jobs.Count(tx, fdbjobs.Selection{Owner: &owner, Parts: []fdbjobs.Part{{Status: status, Tag: tag}}})
	})
	require.NoError(t, err)
	return n
}

// TestShares: owners are served in proportion to their weights, however many jobs each has.
func TestShares(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ atOnce, off int }{
		"one at a time":  {1, 1},
		"taken together": {16, 16},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
				b := newBundle(t, db)
				b.weigh(t, "two", 2)
				b.weigh(t, "half", 0.5)
				b.addMany(t, "one", 300)
				b.addMany(t, "two", 150)
				b.addMany(t, "half", 150)
				served := b.serve(t, 140, c.atOnce, 1000)
				assert.InDelta(t, 80, served["two"], float64(c.off))
				assert.InDelta(t, 40, served["one"], float64(c.off))
				assert.InDelta(t, 20, served["half"], float64(c.off))
				o := b.owners(t)["two"]
				assert.InDelta(t, 1000*served["two"], o.Usage, 0.1)
				assert.InDelta(t, 2, o.Weight, 0)
				assert.EqualValues(t, 150-served["two"], o.Pending)
				assert.EqualValues(t, served["two"], b.countOf(t, "two", fdbjobs.Finished, ""))
			})
		})
	}
}

// TestRunningCounts: running jobs count at once, even if jobs are taken faster than a claim reads all owners again.
func TestRunningCounts(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.weigh(t, "two", 2)
		for _, owner := range []string{"one", "two"} {
			b.addMany(t, owner, 100)
		}
		_, err := b.jobs.RollUp(t.Context(), time.Minute, 0.5, 100)
		require.NoError(t, err)
		running := map[string]int{}
		for range 60 { // no time passes
			running[b.accept(t).Job().Owner]++
		}
		assert.InDelta(t, 20, running["one"], 1)
		assert.InDelta(t, 40, running["two"], 1)
	})
}

// TestIdleOwner: for an owner that returns, neither its earlier usage nor its absence counts.
func TestIdleOwner(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.monitor(t)
		b.addMany(t, "steady", 200)
		b.addMany(t, "greedy", 1)
		b.serve(t, 2, 1, 1_000_000) // greedy's one, and one of steady's
		b.addMany(t, "greedy", 0)
		after(time.Minute)
		assert.NotContains(t, b.owners(t), "greedy", "an owner without jobs has no row")

		b.addMany(t, "greedy", 100)
		b.addMany(t, "new", 100)
		served := b.serve(t, 90, 1, 1000)
		assert.InDelta(t, 30, served["greedy"], 1)
		assert.InDelta(t, 30, served["new"], 1)
		assert.InDelta(t, 30, served["steady"], 1)
	})
}

// TestRollUp: usage decays once per interval, however many processes call it.
func TestRollUp(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b, other := newBundle(t, db), newBundle(t, db)
		for i := range 250 { // more than one transaction takes
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint("owner ", i)})
		}
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "o"})
		charge := func(n int64) {
			b.transact(t, func(tx kv.Transaction) error { b.jobs.Charge(tx, "o", n); return nil })
		}
		rollUp := func(b *bundle) bool {
			rolled, err := b.jobs.RollUp(t.Context(), time.Minute, 0.5, 0)
			require.NoError(t, err)
			return rolled
		}
		usage := func() float64 { return b.owners(t)["o"].Usage }
		charge(1000)
		assert.True(t, rollUp(b))
		assert.InDelta(t, 1000, usage(), 0, "what was charged until then has not aged")
		assert.False(t, rollUp(other))
		after(time.Minute)
		charge(100)
		assert.True(t, rollUp(other))
		assert.False(t, rollUp(b))
		assert.InDelta(t, 600, usage(), 0)
		for range 3 {
			after(time.Minute)
			assert.True(t, rollUp(b))
		}
		assert.InDelta(t, 75, usage(), 0)
		_, err := b.jobs.RollUp(t.Context(), time.Minute, 1.5, 0)
		require.ErrorIs(t, err, fdbjobs.ErrInvalid)
		_, err = b.jobs.RollUp(t.Context(), time.Minute, math.NaN(), 0)
		require.ErrorIs(t, err, fdbjobs.ErrInvalid)
	})
}

// TestRollUpWithDifferentClocks: processes that call RollUp in turns decay usage once per interval, whatever time their
// clocks show, and also when one of them ends or its clock is put right.
func TestRollUpWithDifferentClocks(t *testing.T) {
	for _, ahead := range []time.Duration{15 * time.Second, -15 * time.Second, 5 * time.Minute, 365 * 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
				skew := ahead
				right := newBundle(t, db)
				wrong := newBundleWith(t, db, fdbjobs.Options{Now: func() time.Time { return time.Now().Add(skew) }})
				const interval = 15 * time.Second
				rolled := 0
				minutes := func(n int, nodes ...*bundle) {
					rolled = 0
					for range n * int(time.Minute/interval) {
						for _, b := range nodes {
							after(interval / time.Duration(len(nodes)))
							did, err := b.jobs.RollUp(t.Context(), interval, 0.5, 0)
							require.NoError(t, err)
							if did {
								rolled++
							}
						}
					}
				}
				minutes(5, right, wrong)
				assert.Equal(t, 20, rolled)
				minutes(5, right)
				assert.InDelta(t, 20, rolled, 1)
				minutes(5, wrong)
				assert.InDelta(t, 20, rolled, 1)
				skew = 0
				minutes(5, wrong, right)
				assert.InDelta(t, 20, rolled, 1)
			})
		})
	}
}

// TestBehindManyEmptyOwners: another claim follows one that gives up after many owners without ready jobs.
func TestBehindManyEmptyOwners(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		const owners = 1300
		b := newBundle(t, db)
		for i := range owners {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint("owner ", i)})
		}
		b.add(t, fdbjobs.Spec{ID: "last", Owner: "z"})
		b.transact(t, func(tx kv.Transaction) error { b.jobs.Charge(tx, "z", 1000); return nil })
		b.weigh(t, "z", 1) // folds the charge
		for taken := 0; taken < owners; {
			held := b.acceptBy(t, fdbjobs.AcceptOptions{Count: min(64, owners-taken)})
			for _, h := range held {
				require.NotEqual(t, "last", h.Job().ID)
			}
			taken += len(held)
		}
		held := b.acceptBy(t, fdbjobs.AcceptOptions{Wait: -1})
		require.Len(t, held, 1)
	})
}

// TestRollUpOfUnknownResult: the roll-up is not done twice.
func TestRollUpOfUnknownResult(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db))
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "o", Token: "t"})
		plain := newBundle(t, db)
		plain.transact(t, func(tx kv.Transaction) error { plain.jobs.Charge(tx, "o", 1000); return nil })
		for i := range 3 {
			rolled, err := b.jobs.RollUp(t.Context(), time.Minute, 0.5, 0)
			require.NoError(t, err)
			assert.True(t, rolled)
			assert.InDelta(t, 1000*math.Pow(0.5, float64(i)), b.owners(t)["o"].Usage, 0)
			after(time.Minute)
		}
	})
}

func TestWeights(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		for _, weight := range []float64{-1, math.NaN(), math.Inf(1)} {
			err := db.Transact(t.Context(), func(tx kv.Transaction) error { return b.jobs.SetWeight(tx, "o", weight) })
			require.ErrorIs(t, err, fdbjobs.ErrInvalid)
			require.ErrorContains(t, err, "weight")
		}
		// A weight can be set before the owner has jobs, and moves a waiting owner.
		b.weigh(t, "heavy", 10)
		b.add(t, fdbjobs.Spec{ID: "1", Owner: "heavy"}, fdbjobs.Spec{ID: "2", Owner: "light"})
		b.transact(t, func(tx kv.Transaction) error {
			b.jobs.Charge(tx, "heavy", 50)
			b.jobs.Charge(tx, "light", 10)
			return nil
		})
		assert.InDelta(t, 10, b.owners(t)["heavy"].Weight, 0)
		waiting := func() []string {
			owners, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]string, error) { return b.jobs.WaitingOwners(tx) })
			require.NoError(t, err)
			return owners
		}
		b.weigh(t, "light", 1) // folds its charges
		b.weigh(t, "heavy", 10)
		assert.Equal(t, []string{"heavy", "light"}, waiting())
		b.weigh(t, "heavy", 2)
		assert.Equal(t, []string{"light", "heavy"}, waiting())
		b.weigh(t, "light", fdbjobs.DefaultWeight)
		weights, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) (map[string]float64, error) {
			return b.jobs.Weights(tx)
		})
		require.NoError(t, err)
		assert.Equal(t, map[string]float64{"heavy": 2}, weights, "the default is not stored")
		b.check(t)
	})
}

// The jobs of an owner with the weight 0 are not taken, however they became ready, until it has another weight. Then a
// waiting claimer takes them at once, and the owner owes nothing.
func TestPausedOwners(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.weigh(t, "new", 0)
		b.addMany(t, "old", 3)
		b.addMany(t, "new", 2)
		b.add(t, fdbjobs.Spec{ID: "later", Owner: "new", Scheduled: time.Now().Add(time.Hour)})
		run := b.accept(t)
		assert.Equal(t, "old", run.Job().Owner)
		b.weigh(t, "old", 0)
		assert.Zero(t, b.owners(t)["old"].Weight)
		for _, opts := range []fdbjobs.AcceptOptions{
			{}, {Evictable: []*fdbjobs.Held{run}},
		} {
			opts.Count, opts.Wait = 10, -1
			assert.Empty(t, b.acceptBy(t, opts), "%+v", opts)
		}
		require.NoError(t, run.Resubmit(t.Context(), time.Now(), nil, func(tx kv.Transaction) error {
			b.jobs.Charge(tx, "old", 1000)
			return nil
		}))
		assert.Empty(t, b.take(t, 10))
		b.check(t)

		accepted := make(chan []*fdbjobs.Held)
		go func() {
			held, err := b.jobs.Accept(t.Context(), fdbjobs.AcceptOptions{Count: 2})
			assert.NoError(t, err)
			accepted <- held
		}()
		b.weigh(t, "new", 3)
		held := <-accepted
		for len(held) < 2 {
			held = append(held, b.accept(t))
		}
		for _, h := range held {
			assert.Equal(t, "new", h.Job().Owner)
		}
		b.weigh(t, "old", fdbjobs.DefaultWeight)
		assert.InDelta(t, 0, b.owners(t)["old"].Usage, 0, "as low as the lowest of the others")
		for range 3 {
			assert.Equal(t, "old", b.accept(t).Job().Owner)
		}
		b.check(t)
	})
}

// TestTaggedCounts: an owner's jobs are counted by tag, as long as it has some.
func TestTaggedCounts(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		for i := range 6 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: "o"})
		}
		for i, h := range b.take(t, 5) {
			h.Tag = []string{"good", "bad"}[i%2]
			if i == 0 {
				require.NoError(t, h.Resubmit(t.Context(), time.Now().Add(time.Hour), nil, nil))
			} else {
				require.NoError(t, h.Finish(t.Context(), nil, nil))
			}
		}
		assert.Equal(t, map[string]int64{"good": 1}, b.owners(t)["o"].Tagged)
		assert.EqualValues(t, 2, b.countOf(t, "o", fdbjobs.Finished, "good"))
		assert.EqualValues(t, 2, b.countOf(t, "o", fdbjobs.Finished, "bad"))
	})
}

// TestOwnersLeave: nothing is left of owners whose jobs have ended or were removed in any way.
func TestOwnersLeave(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.monitor(t)
		for i := range 150 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint(i), Scheduled: time.Now().Add(time.Duration(i%3) * time.Second)})
		}
		for i := range 50 {
			b.remove(t, fmt.Sprint(i))
		}
		taken := 0
		for taken < 100 {
			held := b.acceptBy(t, fdbjobs.AcceptOptions{Count: 64})
			for _, h := range held {
				h.Expires = time.Now().Add(time.Minute)
				require.NoError(t, h.Finish(t.Context(), nil, func(tx kv.Transaction) error {
					b.jobs.Charge(tx, h.Job().Owner, 5)
					return nil
				}))
			}
			taken += len(held)
		}
		after(5 * time.Minute)
		for more := true; more; {
			var err error
			_, more, err = removeExpired(t.Context(), db, b.jobs)
			require.NoError(t, err)
		}
		b.take(t, 1)
		after(5 * time.Minute)
		b.check(t)
		n, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) (int, error) { return b.jobs.OwnerKeys(tx) })
		require.NoError(t, err)
		assert.Zero(t, n)
	})
}

// TestDeadClaimers: claimers find each other among many that have died, which are forgotten. One that is closed leaves.
func TestDeadClaimers(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.addMany(t, "o", 2_000)
		b.transact(t, func(tx kv.Transaction) error {
			for i := range 300 {
				b.jobs.AddClaimer(tx, fmt.Sprint("0", i), time.Now().Add(-30*time.Second))
			}
			return nil
		})
		known := func() int {
			n, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]string, error) { return b.jobs.Claimers(tx) })
			require.NoError(t, err)
			return len(n)
		}
		live := []*bundle{b, newBundle(t, db), newBundle(t, db)}
		partitions := func() (n []int) {
			for range 3 {
				n = nil
				after(1500 * time.Millisecond)
				for _, b := range live {
					b.take(t, 64)
					synctest.Wait()
					n = append(n, b.jobs.Partitions())
				}
			}
			return n
		}
		assert.Equal(t, []int{3, 3, 3}, partitions())
		assert.Equal(t, 303, known())
		waiting := make(chan error)
		b.weigh(t, "o", 0)
		go func() { _, err := live[2].jobs.Accept(t.Context(), fdbjobs.AcceptOptions{}); waiting <- err }()
		synctest.Wait()
		live[2].layer.Close()
		require.ErrorIs(t, <-waiting, fdbjobs.ErrClosed)
		b.weigh(t, "o", fdbjobs.DefaultWeight)
		live = live[:2]
		assert.Equal(t, 302, known())
		assert.Equal(t, []int{2, 2}, partitions())
		b.monitor(t)
		after(time.Minute)
		assert.Zero(t, known())
	})
}

// TestManyClaimers: claimers of several processes take all jobs, each once, even those in the partition of a claimer that
// has ended.
func TestManyClaimers(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		var all []*bundle
		for range 5 {
			all = append(all, newBundle(t, db))
		}
		all[0].addMany(t, "o", 400)
		taken := 0
		for _, b := range all { // so that each knows of the others
			taken += len(b.take(t, 10))
		}
		for i := 0; taken < 400; i++ {
			taken += len(all[i%2].take(t, 10))
		}
		synctest.Wait()
		assert.EqualValues(t, 400, all[0].count(t, fdbjobs.Running))
		all[0].check(t)
	})
}

func TestCounts(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		for i := range 9 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint("owner ", i%2), Scheduled: time.Now().Add(time.Duration(i/3) * time.Hour)})
		}
		require.NoError(t, b.accept(t).Finish(t.Context(), nil, nil))
		b.accept(t)
		b.transact(t, func(tx kv.Transaction) error {
			total := int64(0)
			var ids []string
			for _, owner := range []string{"owner 0", "owner 1", "no owner"} {
				n, err := b.jobs.Count(tx, fdbjobs.Selection{Owner: &owner, Parts: fdbjobs.Parts(fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished)})
				require.NoError(t, err)
				total += n
				for after := ""; ; {
					page, err := b.jobs.List(tx, fdbjobs.Selection{Owner: &owner, Parts: fdbjobs.Parts(fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished)}, fdbjobs.Position{ID: after}, 2)
					require.NoError(t, err)
					for _, job := range page {
						assert.Equal(t, owner, job.Owner)
						ids = append(ids, job.ID)
						after = job.ID
					}
					if len(page) < 2 {
						break
					}
				}
			}
			assert.EqualValues(t, 9, total)
			assert.Len(t, ids, 9)
			return nil
		})
		// A pending job can change its owner.
		b.transact(t, func(tx kv.Transaction) error { return b.jobs.Add(tx, fdbjobs.Spec{ID: "8", Owner: "other"}) })
		b.check(t)
		assert.EqualValues(t, 1, b.owners(t)["other"].Pending)
	})
}

// TestExpiry: finished jobs are removed when they expire, unless they were added again.
func TestExpiry(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db))
		for i := range 260 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Token: fmt.Sprint(i), Args: text(`{"a":1}`)})
		}
		for taken := 0; taken < 260; {
			for _, h := range b.take(t, 64) {
				keep := time.Minute
				if h.Job().ID == "7" {
					keep = time.Hour
				}
				h.Expires = time.Now().Add(keep)
				require.NoError(t, h.Finish(t.Context(), text(`{"s":2}`), nil))
				taken++
			}
		}
		b.add(t, fdbjobs.Spec{ID: "8", Token: "again"})
		expire := func() (total int) {
			for more := true; more; {
				var n int
				var err error
				n, more, err = removeExpired(t.Context(), db, b.jobs)
				require.NoError(t, err)
				total += n
			}
			return total
		}
		after(50 * time.Second)
		assert.Zero(t, expire())
		after(10 * time.Second)
		expire()
		assert.EqualValues(t, 1, b.count(t, fdbjobs.Finished))
		assert.EqualValues(t, 1, b.count(t, fdbjobs.Pending))
		after(time.Hour)
		expire()
		assert.Zero(t, b.count(t, fdbjobs.Finished))
		b.check(t)
	})
}

// TestJobWithAnotherOwnerIsTakenOnce: a job that gets another owner while it waits is taken there.
func TestJobWithAnotherOwnerIsTakenOnce(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t,
			fdbjobs.Spec{ID: "a1", Owner: "a"}, fdbjobs.Spec{ID: "a2", Owner: "a"}, fdbjobs.Spec{ID: "moved", Owner: "a"},
			fdbjobs.Spec{ID: "b1", Owner: "b"}, fdbjobs.Spec{ID: "b2", Owner: "b"})
		accept := func(count int) (ids []string) {
			for _, h := range b.take(t, count) {
				ids = append(ids, h.Job().ID)
			}
			return ids
		}
		require.Equal(t, []string{"a1"}, accept(1))
		b.transact(t, func(tx kv.Transaction) error { b.jobs.Charge(tx, "a", 100); return nil })
		after(2 * time.Second)
		require.Equal(t, []string{"b1"}, accept(1)) // the owners after b come next
		require.True(t, b.remove(t, "moved"))
		b.add(t, fdbjobs.Spec{ID: "moved", Owner: "c"})
		after(2 * time.Second)
		assert.Equal(t, []string{"moved", "b2", "a2"}, accept(10))
		b.check(t)
	})
}
