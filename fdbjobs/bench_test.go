package fdbjobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/pebblekv"
)

// Each of two compared things runs for a turn before the other's turn, several times, because the machine may have
// other users.
const (
	turn  = 500 * time.Millisecond
	turns = 3
)

// BenchmarkLifeCycle adds, accepts, updates and finishes jobs, and compares that with plain commits on the same store
// by as many goroutines: cycles/commit is life cycles per second over plain commits per second. With one commit for
// each step it is at most 0.25, if these commits cost no more than plain ones. If each processor has a claimer of its
// own, like a process, there is a backlog: otherwise they mostly compete for a few jobs.
//
// On a disk that syncs in a fraction of a millisecond a cycle is limited by the processor: it is about forty writes in
// four commits, while plain commits are hardly any work, so the ratio is low. So it is also measured with slower syncs
// of the log.
//
// conflicts/commit is the number of commits of life cycles that were refused with a conflict, for each one that was
// not. each one that was not.
func BenchmarkLifeCycle(b *testing.B) {
	for _, disk := range []struct {
		name string
		sync time.Duration
	}{{"", 0}, {",sync=+1ms", time.Millisecond}, {",sync=+5ms", 5 * time.Millisecond}} {
		for _, how := range []cycling{
			{name: "claimer=own", own: true, add: 1, take: 1},
			{name: "claimer=shared", add: 1, take: 1},
			{name: "claimer=shared,add=100", add: 100, take: 1},
			{name: "claimer=shared,add=100,take=16", add: 100, take: 16},
		} {
			b.Run(how.name+disk.name, func(b *testing.B) {
				for _, n := range []int{1, 8, 64, 256} {
					b.Run(fmt.Sprintf("processors=%d", n), func(b *testing.B) { how.compare(b, n, disk.sync) })
				}
			})
		}
	}
}

// cycling is a way to run jobs through their life cycle.
type cycling struct {
	name string
	own  bool // each processor has a claimer of its own, like a process
	add  int  // jobs in one transaction
	take int  // jobs in one call of Accept
}

// compare runs n processors, on a disk whose syncs take longer by sync, if that is not zero.
func (c cycling) compare(b *testing.B, n int, sync time.Duration) {
	var db kv.Database
	if sync == 0 {
		db = enginetest.ClusterOr(b, enginetest.Disk)
	} else {
		db = openSlowDisk(b, sync)
	}
	store := &committing{Database: db}
	supply := &supply{low: int64(n * c.take)}
	processors := make([]*processor, n)
	var layer *fdbjobs.Layer
	for i := range processors {
		if c.own || layer == nil {
			layer = openLayer(b, store)
		}
		processors[i] = &processor{cycling: c, db: store, jobs: layer.Queue("work"), supply: supply}
	}
	if c.own {
		backlog := *processors[0]
		backlog.add = 100
		for range n {
			require.NoError(b, backlog.addJobs(b.Context()))
		}
	}
	cycle := func(i int) (int, error) { return processors[i].step(b.Context()) }
	var keys atomic.Int64
	plain := func(int) (int, error) {
		key := fmt.Appendf(nil, "plain/%d", keys.Add(1))
		return 1, db.Transact(b.Context(), func(tx kv.Transaction) error {
			tx.Set(key, key)
			return nil
		})
	}
	var cycles, commits rate
	work(b, n, cycle) // until the processors are anywhere in the cycle, and the claimers know each other
	store.committed.Store(0)
	store.refused.Store(0)
	for b.Loop() {
		for range turns {
			commits.add(work(b, n, plain))
			cycles.add(work(b, n, cycle))
		}
	}
	b.ReportMetric(0, "ns/op") // it would include all turns
	b.ReportMetric(cycles.perSecond(), "cycles/s")
	b.ReportMetric(commits.perSecond(), "commits/s")
	b.ReportMetric(cycles.perSecond()/commits.perSecond(), "cycles/commit")
	b.ReportMetric(float64(store.refused.Load())/float64(store.committed.Load()), "conflicts/commit")
}

// committing counts the commits of transactions that write.
type committing struct {
	kv.Database
	committed, refused atomic.Int64 // refused: runs before the committed one
}

func (c *committing) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	wrote, refused := false, int64(-1)
	err := c.Database.Transact(ctx, func(tx kv.Transaction) error {
		run := enginetest.Control(oneRun{tx: tx})
		err := run.Transact(ctx, fn)
		wrote, refused = run.KeysWritten.Load() > 0, refused+1
		return err
	})
	if err == nil && wrote {
		c.committed.Add(1)
		c.refused.Add(refused)
	}
	return err
}

// oneRun is a store of one transaction, which runs once.
type oneRun struct {
	kv.Database
	tx kv.Transaction
}

func (r oneRun) Transact(_ context.Context, fn func(kv.Transaction) error) error { return fn(r.tx) }

// processor runs jobs through their life cycle, one commit after the other.
type processor struct {
	cycling
	db      kv.Database
	jobs    *fdbjobs.Queue
	supply  *supply
	added   bool // a job, which it or another processor takes
	held    []*fdbjobs.Held
	updated bool // held[0] was
}

// supply is the jobs of all processors.
type supply struct {
	low     int64        // the number to keep, so that no processor waits
	left    atomic.Int64 // not yet chosen by a processor
	adding  atomic.Bool
	numbers atomic.Int64
}

// step makes the next commit and returns the number of jobs that it finished.
func (p *processor) step(ctx context.Context) (finished int, err error) {
	switch {
	case len(p.held) > 0 && !p.updated:
		p.updated = true
		return 0, p.held[0].Update(ctx, text(`{"s":1}`), nil)
	case len(p.held) > 0:
		done := p.held[0]
		p.held, p.updated = p.held[1:], false
		return 1, done.Finish(ctx, text(`{"s":2}`), nil)
	case p.add == 1 && !p.added:
		p.added = true
		return 0, p.addJobs(ctx)
	case p.add > 1:
		if err := p.keepSupplied(ctx); err != nil {
			return 0, err
		}
	}
	p.added = false
	p.held, err = p.jobs.Accept(ctx, fdbjobs.AcceptOptions{Count: p.take})
	p.supply.left.Add(int64(p.take - len(p.held)))
	return 0, err
}

// keepSupplied adds jobs if few are left and no other processor adds some.
func (p *processor) keepSupplied(ctx context.Context) error {
	s := p.supply
	s.left.Add(-int64(p.take))
	// A processor that finds another one adding leaves it to that one, which therefore checks again.
	for s.left.Load() < s.low && s.adding.CompareAndSwap(false, true) {
		err := p.addJobs(ctx)
		s.left.Add(int64(p.add))
		s.adding.Store(false)
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *processor) addJobs(ctx context.Context) error {
	end := p.supply.numbers.Add(int64(p.add))
	begin := end - int64(p.add)
	return p.db.Transact(ctx, func(tx kv.Transaction) error {
		for n := begin; n < end; n++ {
			id := fmt.Sprint(n)
			err := p.jobs.Add(tx, fdbjobs.Spec{
				ID: id, Owner: fmt.Sprint("owner ", n%10), Args: text(`{"n":1}`), Token: id,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkAcceptConflicts has 16 claimers, each for 16 acceptors, take jobs of one owner with many, and
// finish them at once. A conflict is a repeated run of a claim's transaction: conflicts-% is the number per 100 claims,
// and first-% the number before the claimers knew of each other.
func BenchmarkAcceptConflicts(b *testing.B) {
	const claimers, acceptors, length = 16, 16, 20_000
	db := enginetest.Disk(b)
	claims := &claims{Controlled: enginetest.Control(db)}
	queues := make([]*fdbjobs.Queue, claimers)
	for i := range queues {
		queues[i] = openLayer(b, claims).Queue("work")
	}
	finishing := context.WithValue(b.Context(), finishes{}, true)
	accept := func(i int) (int, error) {
		held, err := queues[i%claimers].Accept(b.Context(), fdbjobs.AcceptOptions{})
		if err != nil {
			return 0, err
		}
		return 1, held[0].Finish(finishing, nil, nil)
	}

	full := backlog{db: db, jobs: queues[0], owners: 1}
	full.add(b, length)
	taken, _ := work(b, claimers*acceptors, accept)
	first := claims.conflicts()
	claims.reset()
	var jobs rate
	for b.Loop() {
		b.StopTimer()
		full.add(b, taken)
		b.StartTimer()
		var took time.Duration
		taken, took = work(b, claimers*acceptors, accept)
		jobs.add(taken, took)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(first, "first-%")
	b.ReportMetric(claims.conflicts(), "conflicts-%")
	b.ReportMetric(float64(jobs.done)/float64(claims.transactions.Load()), "jobs/claim")
	b.ReportMetric(jobs.perSecond(), "jobs/s")
}

// claims counts the transactions of claims, and their runs. Other transactions have a context with the key finishes.
type claims struct {
	*enginetest.Controlled
	transactions atomic.Int64
}

type finishes struct{}

func (c *claims) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if ctx.Value(finishes{}) != nil {
		return c.Database.Transact(ctx, fn)
	}
	c.transactions.Add(1)
	return c.Controlled.Transact(ctx, fn)
}

func (c *claims) conflicts() (percent float64) {
	n := float64(c.transactions.Load())
	return 100 * (float64(c.Runs.Load()) - n) / n
}

func (c *claims) reset() {
	c.transactions.Store(0)
	c.Runs.Store(0)
}

// BenchmarkAcceptLatency adds a job while an acceptor waits at an empty queue, and compares the time until it is held
// with the time of a plain commit. This time includes two commits, the addition and the claim, and the end of a watch.
// add-to-held/commit is the median of the whole time, added-to-held/commit that from the end of the addition on.
// p99/commit compares the 99th percentile of the whole time with the median of plain commits, p99/p99 with their 99th
// percentile.
func BenchmarkAcceptLatency(b *testing.B) {
	db := enginetest.ClusterOr(b, enginetest.Disk)
	idle := &idle{Controlled: enginetest.Control(db), watching: make(chan struct{}, 1)}
	jobs := openLayer(b, idle).Queue("work")
	accepted := make(chan acceptance)
	var plain, adding, added durations
	for n := 0; b.Loop(); n++ {
		go func() {
			held, err := jobs.Accept(b.Context(), fdbjobs.AcceptOptions{})
			accepted <- acceptance{held, time.Now(), err}
		}()
		idle.await()
		began := time.Now()
		key := fmt.Appendf(nil, "plain/%d", n)
		require.NoError(b, db.Transact(b.Context(), func(tx kv.Transaction) error {
			tx.Set(key, key)
			return nil
		}))
		plain.add(time.Since(began))
		began = time.Now()
		require.NoError(b, db.Transact(b.Context(), func(tx kv.Transaction) error {
			return jobs.Add(tx, fdbjobs.Spec{ID: fmt.Sprint(n), Owner: "owner"})
		}))
		ended := time.Now()
		a := <-accepted
		require.NoError(b, a.err)
		adding.add(a.at.Sub(began))
		added.add(a.at.Sub(ended))
		require.NoError(b, a.held[0].Finish(b.Context(), nil, nil))
	}
	commit := plain.median()
	b.ReportMetric(0, "ns/op") // it would include more than is measured
	b.ReportMetric(float64(adding.median())/float64(commit), "add-to-held/commit")
	b.ReportMetric(float64(added.median())/float64(commit), "added-to-held/commit")
	b.ReportMetric(float64(adding.at(0.99))/float64(commit), "p99/commit")
	b.ReportMetric(float64(adding.at(0.99))/float64(plain.at(0.99)), "p99/p99")
	b.ReportMetric(float64(commit.Microseconds()), "commit-µs")
	b.ReportMetric(float64(adding.median().Microseconds()), "add-to-held-µs")
	b.ReportMetric(float64(adding.at(0.99).Microseconds()), "p99-µs")
}

// BenchmarkClaimers has one claimer, eight and fifty take 3,000 due jobs of some owners, each one after the other. runs/claim is
// the number of runs of a claim's transaction, and tidying counts as a claim. p99-ms is of the calls that take a job.
func BenchmarkClaimers(b *testing.B) {
	const jobs = 3_000
	for _, owners := range []int{1, 200, 2_000} {
		for _, claimers := range []int{1, 8, 50} {
			b.Run(fmt.Sprintf("owners=%d/claimers=%d", owners, claimers), func(b *testing.B) {
				db := enginetest.ClusterOr(b, enginetest.Disk)
				store := enginetest.Control(db)
				queues := make([]*fdbjobs.Queue, claimers)
				for i := range queues {
					queues[i] = openLayer(b, store).Queue("work")
				}
				full := backlog{db: db, jobs: queues[0], owners: owners}
				var taken rate
				var accepts durations
				var mu sync.Mutex
				for b.Loop() {
					b.StopTimer()
					full.add(b, jobs)
					b.StartTimer()
					var left atomic.Int64
					left.Store(jobs)
					began := time.Now()
					var wg sync.WaitGroup
					for _, q := range queues {
						wg.Go(func() {
							for left.Load() > 0 {
								called := time.Now()
								held, err := q.Accept(b.Context(), fdbjobs.AcceptOptions{Wait: -1})
								if err != nil {
									b.Error(err)
									return
								}
								left.Add(-int64(len(held)))
								mu.Lock()
								accepts.add(time.Since(called))
								mu.Unlock()
							}
						})
					}
					wg.Wait()
					taken.add(jobs, time.Since(began))
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(taken.perSecond(), "jobs/s")
				b.ReportMetric(float64(accepts.at(0.99).Microseconds())/1000, "p99-ms")
				b.ReportMetric(float64(store.Runs.Load())/float64(taken.done), "runs/claim")
				b.ReportMetric(float64(store.Rows.Load())/float64(taken.done), "rows/claim")
				b.ReportMetric(float64(store.Gets.Load()+store.Ranges.Load())/float64(taken.done), "reads/claim")
			})
		}
	}
}

type acceptance struct {
	held []*fdbjobs.Held
	at   time.Time
	err  error
}

// idle reports when a claimer waits.
type idle struct {
	*enginetest.Controlled
	watching chan struct{} // holds a token when a transaction has armed a watch
}

func (i *idle) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	before := i.Watches.Load()
	err := i.Controlled.Transact(ctx, fn)
	if i.Watches.Load() > before {
		select {
		case i.watching <- struct{}{}:
		default:
		}
	}
	return err
}

// await waits until a watch was armed, and no other for a while.
func (i *idle) await() {
	<-i.watching
	for {
		select {
		case <-i.watching:
		case <-time.After(5 * time.Millisecond):
			return
		}
	}
}

// openSlowDisk opens a store on disk whose syncs of the log take longer by a delay.
func openSlowDisk(b *testing.B, sync time.Duration) kv.Database {
	b.Helper()
	fs := vfs.Default
	if sync != 0 {
		fs = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, ".log") {
				time.Sleep(sync)
			}
			return nil
		}))
	}
	db, err := pebblekv.Open(b.TempDir(), pebblekv.Options{FS: fs})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	return db
}

func openLayer(b *testing.B, db kv.Database) *fdbjobs.Layer {
	b.Helper()
	layer := fdbjobs.Open(db, prefix, fdbjobs.Options{})
	b.Cleanup(layer.Close)
	return layer
}

// work has n goroutines repeat step for a turn. It returns the sum of its results and the elapsed time.
func work(b *testing.B, n int, step func(worker int) (done int, err error)) (int, time.Duration) {
	b.Helper()
	var all atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i := range n {
		wg.Go(func() {
			for time.Since(began) < turn {
				done, err := step(i)
				if err != nil {
					b.Error(err)
					return
				}
				all.Add(int64(done))
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	if b.Failed() {
		b.FailNow()
	}
	return int(all.Load()), took
}

// rate is an amount of work and the time that it took.
type rate struct {
	done int
	took time.Duration
}

func (r *rate) add(done int, took time.Duration) {
	r.done += done
	r.took += took
}

func (r *rate) perSecond() float64 { return float64(r.done) / r.took.Seconds() }

// durations are the durations of repetitions of one thing.
type durations []time.Duration

func (d *durations) add(took time.Duration) { *d = append(*d, took) }

func (d durations) median() time.Duration { return d.at(0.5) }

func (d durations) at(quantile float64) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[int(quantile*float64(len(sorted)-1))]
}

// backlog is a number of pending jobs.
type backlog struct {
	db     kv.Database
	jobs   *fdbjobs.Queue
	owners int
	added  int
}

// addAtOnce is the number of jobs that one transaction adds.
const addAtOnce = 100

// add adds n jobs, whose ids are in the order of addition, except those that are added at the same time.
func (l *backlog) add(b *testing.B, n int) {
	b.Helper()
	var wg sync.WaitGroup
	next, end := atomic.Int64{}, l.added+n
	next.Store(int64(l.added))
	for range 4 {
		wg.Go(func() {
			for {
				from := int(next.Add(addAtOnce)) - addAtOnce
				if from >= end {
					return
				}
				if err := l.addSome(b.Context(), from, min(from+addAtOnce, end)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	l.added = end
	if b.Failed() {
		b.FailNow()
	}
}

func (l *backlog) addSome(ctx context.Context, from, to int) error {
	return l.db.Transact(ctx, func(tx kv.Transaction) error {
		for n := from; n < to; n++ {
			err := l.jobs.Add(tx, fdbjobs.Spec{
				ID: fmt.Sprintf("%08d", n), Owner: fmt.Sprint("owner ", n%l.owners),
				Args: text(`{"n":1}`),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
