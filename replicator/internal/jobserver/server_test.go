package jobserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// toyJob is a job that does nothing until it is to stop, the server's time is over, or it is told to end.
type toyJob struct {
	Run
	held *fdbjobs.Held
	end  chan error
}

// toy is a server of toy jobs in a bubble.
type toy struct {
	*testing.T
	db       kv.Database
	queue    *fdbjobs.Queue
	server   *Server[*toyJob]
	cfg      *config.Config
	log      testkit.Journal
	limit    atomic.Int64
	minTurn  time.Duration // a job yields after this time
	stubborn bool          // jobs stop only when the server's time is over

	mu      sync.Mutex
	ended   map[string]error // why the jobs have stopped that were given back
	running sync.WaitGroup
	kill    context.CancelFunc
}

// layer opens the jobs of a store.
func layer(t *testing.T, db kv.Database) *fdbjobs.Queue {
	l := fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{})
	t.Cleanup(l.Close)
	return l.Queue("toys")
}

func newToy(t *testing.T, db kv.Database, limit int) *toy {
	cfg, _, err := config.Load(config.Options{})
	require.NoError(t, err)
	y := &toy{T: t, db: db, queue: layer(t, db), cfg: cfg, ended: map[string]error{}, minTurn: time.Minute}
	y.limit.Store(int64(limit))
	y.server = New(Options[*toyJob]{
		Queue: y.queue, Config: func() *config.Config { return y.cfg },
		Accept: AcceptFrom(y.queue, y.newJob, func(job *toyJob) *fdbjobs.Held { return job.held }), Run: y.run, GiveBack: y.giveBack,
		Limiter: &AtMost[*toyJob]{Max: func() int { return int(y.limit.Load()) }}, Interval: func(*config.Config) time.Duration { return 10 * time.Second }, MakesRoom: y.makesRoom, Log: zerolog.New(&y.log),
	})
	ctx, cancel := context.WithCancel(context.Background())
	y.kill = cancel
	y.running.Go(func() { assert.ErrorIs(t, y.server.Run(ctx), ctx.Err()) })
	t.Cleanup(func() {
		cancel()
		y.running.Wait()
	})
	return y
}

// shutdown drains the server within a time.
func (y *toy) shutdown(within time.Duration) error {
	defer y.kill()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := y.server.Shutdown(ctx)
	y.running.Wait()
	return err
}

func (y *toy) add(ids ...string) {
	y.Helper()
	require.NoError(y, y.db.Transact(y.Context(), func(tx kv.Transaction) error {
		for _, id := range ids {
			if err := y.queue.Add(tx, fdbjobs.Spec{ID: id, Owner: "o", Token: "once"}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// runs returns the ids of the jobs that run after a time.
func (y *toy) runs(after time.Duration) []string {
	time.Sleep(after)
	synctest.Wait()
	var ids []string
	for _, job := range y.server.List() {
		ids = append(ids, job.ID)
	}
	slices.Sort(ids)
	return ids
}

// job returns a job that runs.
func (y *toy) job(id string) (job *toyJob) {
	y.server.View(func() { job = y.server.jobs[id] })
	return job
}

func (y *toy) newJob(h *fdbjobs.Held) *toyJob {
	return &toyJob{Run: NewRun(h.Job().ID, h.Job().Evicted, h, &y.server.opts.Log), held: h, end: make(chan error, 1)}
}

func (y *toy) run(ctx context.Context, job *toyJob) (Outcome, error) {
	working, end := y.server.Working(ctx)
	defer end()
	var keeping sync.WaitGroup
	defer keeping.Wait()
	beating, cancel := context.WithCancel(working)
	defer cancel()
	keeping.Go(func() {
		_ = y.server.KeepAlive(beating, job, func(ctx context.Context) error { return job.held.Update(ctx, nil, nil) })
	})
	stopping := job.Stopping().Done()
	if y.stubborn {
		stopping = nil
	}
	select {
	case err := <-job.end:
		if err == nil {
			err = job.held.Finish(ctx, nil, nil)
		}
		return Recorded, err
	case <-stopping:
	case <-working.Done():
	}
	return Stopped, nil
}

func (y *toy) giveBack(ctx context.Context, job *toyJob) error {
	y.mu.Lock()
	y.ended[job.ID] = context.Cause(job.Stopping())
	y.mu.Unlock()
	return job.held.Resubmit(ctx, time.Now(), nil, nil)
}

func (y *toy) why(id string) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.ended[id]
}

func (y *toy) makesRoom(_ *config.Config, list []*toyJob, full bool, at time.Time) Turn[*toyJob] {
	if excess := len(list) - int(y.limit.Load()); excess > 0 {
		return Turn[*toyJob]{Excess: excess, Stop: [][]*toyJob{nil, list}}
	}
	if !full {
		return Turn[*toyJob]{}
	}
	return Turn[*toyJob]{Most: 1, Yielding: slices.DeleteFunc(list, func(job *toyJob) bool { return at.Sub(job.Began) < y.minTurn })}
}

// faulty is a store whose transactions conflict and whose commits are unknown at times.
func faulty(t *testing.T, db kv.Database) kv.Database {
	return faultkv.Wrap(db, faultkv.Options{Seed: 1, Rates: faultkv.Rates{
		faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.05,
	}})
}

// A server takes as many jobs as it may have, another one at once when one ends, and keeps them alive.
func TestAccept(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		y := newToy(t, faulty(t, enginetest.Memory(t)), 2)
		y.minTurn = time.Hour
		y.add("a", "b")
		require.Equal(t, []string{"a", "b"}, y.runs(time.Second))
		first := y.job("a").held.Job().Lock
		y.add("c")
		require.Equal(t, []string{"a", "b"}, y.runs(10*time.Minute))
		require.Equal(t, first, y.job("a").held.Job().Lock, "it was kept alive")
		y.job("b").end <- nil
		require.Equal(t, []string{"a", "c"}, y.runs(time.Second))
		require.NoError(t, y.shutdown(time.Minute))
	})
}

// Jobs that a server gives back when it is shut down are due at once for other nodes, and not taken again by itself.
func TestDrain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		y := newToy(t, faulty(t, db), 5)
		y.add("a", "b", "c")
		require.Len(t, y.runs(time.Second), 3)
		began := time.Now()
		require.NoError(t, y.shutdown(time.Minute))
		require.Less(t, time.Since(began), 5*time.Second)
		require.ErrorIs(t, y.why("a"), ErrNodeStops)
		other := newToy(t, db, 5)
		require.Equal(t, []string{"a", "b", "c"}, other.runs(time.Second))
		require.NoError(t, other.shutdown(time.Minute))
	})
}

// Runs that do not stop are cut off when the time for shutting down is over, and their jobs are given back, too.
func TestDrainInHurry(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		y := newToy(t, db, 5)
		y.stubborn = true
		y.add("a")
		require.Len(t, y.runs(time.Second), 1)
		began := time.Now()
		require.ErrorIs(t, y.shutdown(time.Minute), context.DeadlineExceeded)
		require.InDelta(t, time.Minute, time.Since(began), float64(2*time.Second))
		other := newToy(t, db, 5)
		require.Len(t, other.runs(time.Second), 1)
		require.NoError(t, other.shutdown(time.Minute))
	})
}

// What a server drops is queued again by another one.
func TestDrop(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		y := newToy(t, db, 5)
		y.add("a")
		require.Len(t, y.runs(time.Second), 1)
		y.kill()
		y.running.Wait()
		require.NoError(t, y.why("a"))
		other := newToy(t, db, 5)
		require.Empty(t, other.runs(fdbjobs.DefaultTimeout/2))
		require.Len(t, other.runs(fdbjobs.DefaultTimeout), 1)
		require.Contains(t, other.log.String(), "queued jobs again")
		require.NoError(t, other.shutdown(time.Minute))
	})
}

// Jobs take turns: one that has had its turn makes room for a due one, and not before.
func TestRotate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		y := newToy(t, faulty(t, enginetest.Memory(t)), 1)
		y.add("a")
		require.Equal(t, []string{"a"}, y.runs(time.Second))
		y.add("b")
		require.Equal(t, []string{"a"}, y.runs(58*time.Second))
		require.Equal(t, []string{"b"}, y.runs(12*time.Second))
		require.ErrorIs(t, y.why("a"), ErrMadeRoom)
		require.Equal(t, []string{"a"}, y.runs(75*time.Second))
		require.NoError(t, y.shutdown(time.Minute))
	})
}

// When there are too many jobs, some stop after a second, or at a turn that comes sooner.
func TestShrink(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		y := newToy(t, enginetest.Memory(t), 3)
		y.add("a", "b", "c")
		require.Len(t, y.runs(time.Second), 3)
		y.limit.Store(1)
		y.server.Update(func() {})
		left := y.runs(overTime)
		require.Len(t, left, 1)
		for _, id := range []string{"a", "b", "c"} {
			if id != left[0] {
				require.ErrorIs(t, y.why(id), ErrTooMany)
			}
		}
		require.NoError(t, y.shutdown(time.Minute))
	})
}

// A job that was removed is not kept alive any more, and its run ends.
func TestLost(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		y := newToy(t, enginetest.Memory(t), 3)
		y.add("a")
		require.Len(t, y.runs(time.Second), 1)
		require.NoError(t, y.db.Transact(t.Context(), func(tx kv.Transaction) error {
			_, err := y.queue.Remove(tx, "a")
			return err
		}))
		require.Empty(t, y.runs(fdbjobs.DefaultTimeout/3))
		require.NoError(t, y.why("a"))
		require.NotContains(t, y.log.String(), "could not be")
		require.NoError(t, y.shutdown(time.Minute))
	})
}

// An end that could not be recorded is logged, and the job is taken up again.
func TestUnrecorded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		y := newToy(t, enginetest.Memory(t), 3)
		y.add("a")
		require.Len(t, y.runs(time.Second), 1)
		y.job("a").end <- errors.New("the store is broken")
		require.Empty(t, y.runs(time.Second))
		require.Contains(t, y.log.String(), "the end of a run could not be recorded")
		require.Len(t, y.runs(2*fdbjobs.DefaultTimeout), 1)
		require.NoError(t, y.shutdown(time.Minute))
	})
}

// fixedLimiter allows free more jobs.
type fixedLimiter struct {
	Limiter[*toyJob]
	free int
}

func (r *fixedLimiter) Settle(time.Time) Allowance { return Allowance{Free: r.free, Over: r.free < 0} }

// What accept waits for is withdrawn when fewer jobs are allowed, and it is woken when some are again.
func TestAwaitFree(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 0))
		limiter := new(fixedLimiter)
		s := New(Options[*toyJob]{Limiter: limiter})
		var waiting context.Context
		for i := range 500 {
			what := fmt.Sprintf("seed %d, step %d", seed, i)
			had := limiter.free
			if had > 0 && random.IntN(2) == 0 {
				var n int
				waiting, n = s.awaitFree(t.Context()) //nolint:fatcontext // the context of this step
				require.Equal(t, had, n, what)
				require.NoError(t, waiting.Err(), what)
			}
			select {
			case <-s.freed:
			default:
			}
			offered := s.offered
			s.Update(func() { limiter.free = random.IntN(8) - 3 })
			require.LessOrEqual(t, s.offered, max(0, limiter.free), what)
			require.Equal(t, limiter.free <= 0, s.Full(), what)
			if limiter.free > 0 {
				require.Len(t, s.freed, 1, "it is not woken: "+what)
			}
			if limiter.free < 0 {
				require.Len(t, s.over, 1, what)
			}
			if offered > 0 && limiter.free < offered {
				require.Error(t, waiting.Err(), what)
			}
		}
	}
}
