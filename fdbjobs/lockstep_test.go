//go:build !race

// In lock step there are no races: these tests would take a minute, and show nothing.

package fdbjobs_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/memkv"
)

// lockstep is a number of processes, each with a claimer, whose transactions run in rounds of fifty milliseconds: in each,
// all read the same version, and then commit one after the other. Those that are refused run again in the next round.
type lockstep struct {
	*bundle   // another process, whose transactions do not wait for rounds
	random    *rand.Rand
	processes []*stepping
	reads     *enginetest.Controlled
	before    step // what reads had counted when a run began
}

// stepping is the store and the queue of a process in lockstep.
type stepping struct {
	kv.Database
	jobs    *fdbjobs.Queue
	step    chan struct{} // lets a transaction begin to read, or commit
	waiting atomic.Int64  // transactions that wait for step
	free    chan struct{} // closed when transactions do not wait
	// claims is the number of runs of transactions that wrote jobs, others the number of all other runs.
	claims, others atomic.Int64
}

func (s *stepping) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	return s.Database.Transact(ctx, func(tx kv.Transaction) error {
		s.wait()
		run := &recordedTx{Transaction: tx}
		if err := fn(run); err != nil {
			return err
		}
		wrote := false
		for _, key := range run.keys {
			wrote = wrote || s.jobs.JobOf(key) != ""
		}
		if wrote {
			s.claims.Add(1)
		} else {
			s.others.Add(1)
		}
		s.wait()
		return nil
	})
}

func (s *stepping) wait() {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case <-s.step:
	case <-s.free:
	}
}

// newLockstep starts n processes that know of each other.
func newLockstep(t *testing.T, n int) *lockstep {
	store := enginetest.MemoryWith(t, memkv.Options{Pause: func(context.Context, time.Duration) {}})
	l := &lockstep{bundle: newBundle(t, store), random: rand.New(rand.NewPCG(1, 2)), reads: enginetest.Control(store)}
	free := make(chan struct{})
	close(free)
	for i := range n {
		s := &stepping{Database: l.reads, free: free}
		opts := fdbjobs.Options{}
		binary.BigEndian.PutUint64(opts.Seed[:], uint64(i+1))
		layer := fdbjobs.Open(s, prefix, opts)
		t.Cleanup(layer.Close)
		s.jobs = layer.Queue(l.jobs.Name())
		l.processes = append(l.processes, s)
		l.add(t, fdbjobs.Spec{ID: fmt.Sprint("first of ", i), Owner: "first"})
		held, err := s.jobs.Accept(t.Context(), doesNotWait)
		require.NoError(t, err)
		require.Len(t, held, 1)
		synctest.Wait()
		require.NoError(t, held[0].Finish(t.Context(), nil, nil))
	}
	after(1500 * time.Millisecond) // what they have read of each other is out of date
	return l
}

// backlog adds jobs of owners in turns.
func (l *lockstep) backlog(t *testing.T, jobs, owners int) {
	for n := 0; n < jobs; n += 100 {
		var specs []fdbjobs.Spec
		for i := n; i < min(n+100, jobs); i++ {
			specs = append(specs, fdbjobs.Spec{ID: fmt.Sprintf("%016x", l.random.Uint64()), Owner: fmt.Sprint("owner ", i%owners)})
		}
		l.add(t, specs...)
	}
}

// run has the processes take one job after the other, and calls done with each, until there were n. It returns the
// number of rounds, and of runs of transactions that wrote jobs.
func (l *lockstep) run(t *testing.T, n int, done func(s *stepping, h *fdbjobs.Held)) (rounds, claims int) {
	ctx, cancel := context.WithCancel(t.Context())
	free := make(chan struct{})
	var mu sync.Mutex
	var ended sync.WaitGroup
	taken := 0
	for _, s := range l.processes {
		s.step, s.free = make(chan struct{}), free
		s.claims.Store(0)
		s.others.Store(0)
		ended.Go(func() {
			for ctx.Err() == nil {
				held, _ := s.jobs.Accept(ctx, doesNotWait)
				for _, h := range held {
					mu.Lock()
					taken++
					mu.Unlock()
					done(s, h)
				}
			}
		})
	}
	synctest.Wait()
	l.before = costs(l.reads)
	for ; taken < n; rounds++ {
		require.Less(t, rounds, n)
		for range 2 { // read, commit
			var steps []chan<- struct{}
			for _, i := range l.random.Perm(len(l.processes)) {
				for range l.processes[i].waiting.Load() {
					steps = append(steps, l.processes[i].step)
				}
			}
			for _, step := range steps {
				step <- struct{}{}
				synctest.Wait()
			}
		}
		after(50 * time.Millisecond)
	}
	cancel()
	synctest.Wait()
	others := 0
	for _, s := range l.processes {
		claims, others = claims+int(s.claims.Load()), others+int(s.others.Load())
	}
	read := costs(l.reads).minus(l.before)
	t.Logf("%.2f runs of claims and %.2f of other transactions for each job, %d rounds of at least %d, %d rows and %d reads for each job",
		float64(claims)/float64(n), float64(others)/float64(n), rounds, n/len(l.processes), read.rows/n, (read.gets+read.ranges)/n)
	close(free)
	ended.Wait()
	return rounds, claims
}

// TestClaimersInLockstep: fifty claimers of one queue seldom take the same jobs, however many owners have them.
func TestClaimersInLockstep(t *testing.T) {
	testkit.SkipShort(t)
	const claimers, jobs = 50, 2_000
	for name, c := range map[string]struct {
		owners  int
		differ  bool  // each owner has another usage
		running int64 // Usage.Running
	}{
		"one owner":                {owners: 1},
		"owners":                   {owners: 200},
		"owners with usages":       {owners: 200, differ: true},
		"owners with running jobs": {owners: 200, differ: true, running: 1000},
		"many owners with usages":  {owners: 2_000, differ: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLockstep(t, claimers)
				l.backlog(t, jobs, c.owners)
				if c.running > 0 {
					_, err := l.jobs.RollUp(t.Context(), time.Minute, 0.5, c.running)
					require.NoError(t, err)
				}
				if c.differ {
					for i, rank := range l.random.Perm(c.owners) {
						owner := fmt.Sprint("owner ", i)
						l.transact(t, func(tx kv.Transaction) error { l.jobs.Charge(tx, owner, int64(1+100*rank)); return nil })
						l.weigh(t, owner, 1) // folds it
					}
				}
				rounds, claims := l.run(t, jobs, func(*stepping, *fdbjobs.Held) {})
				assert.Less(t, claims, jobs*13/10)
				assert.Less(t, rounds, jobs/claimers*14/10)
			})
		})
	}
}

// TestSharesOfManyClaimers: fifty claimers serve owners in proportion to their weights.
func TestSharesOfManyClaimers(t *testing.T) {
	testkit.SkipShort(t)
	for name, c := range map[string]struct {
		running int64
		off     float64 // for each claimer, the jobs that others do not know of yet
	}{
		"charged at the end": {running: 0, off: 2},
		"running jobs count": {running: 1000, off: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const claimers, jobs, owners, sum = 50, 3_000, 12, 28
				weight := func(i int) float64 { return float64(int(1) << (i % 3)) }
				l := newLockstep(t, claimers)
				l.backlog(t, jobs/sum*4*owners*3/2, owners)
				for i := range owners {
					l.weigh(t, fmt.Sprint("owner ", i), weight(i))
				}
				if c.running > 0 {
					_, err := l.jobs.RollUp(t.Context(), time.Hour, 0.5, c.running)
					require.NoError(t, err)
				}
				var mu sync.Mutex
				served := map[string]int{}
				l.run(t, jobs, func(s *stepping, h *fdbjobs.Held) {
					owner := h.Job().Owner
					mu.Lock()
					served[owner]++
					mu.Unlock()
					_ = h.Finish(context.Background(), nil, func(tx kv.Transaction) error {
						s.jobs.Charge(tx, owner, 1000)
						return nil
					})
				})
				for i := range owners {
					assert.InDelta(t, jobs/sum*weight(i), served[fmt.Sprint("owner ", i)], c.off*claimers)
				}
			})
		})
	}
}

// TestColdClaim: a claim of one job by a process that has read nothing reads few rows, however many claimers there are.
func TestColdClaim(t *testing.T) {
	testkit.SkipShort(t)
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		for i := range 99 {
			b.transact(t, func(tx kv.Transaction) error { b.jobs.AddClaimer(tx, fmt.Sprint(i), time.Now()); return nil })
		}
		for i := range 20 {
			b.addMany(t, fmt.Sprint("owner ", i), 1_000)
		}
		store := enginetest.Control(db)
		newBundle(t, store).accept(t)
		assert.Less(t, store.KeysRead.Load(), int64(3_000))
	})
}
