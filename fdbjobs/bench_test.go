package fdbjobs_test

import (
	"context"
	"errors"
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
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/pebblekv"
)

// Of two things that are compared each goes on for a turn before it is the other's, some
// times: the machine may have other users.
const (
	turn  = 500 * time.Millisecond
	turns = 3
)

// BenchmarkLifeCycle adds, accepts, updates and finishes jobs, and compares that with
// plain commits of the same store by as many goroutines: cycles/commit is life cycles
// per second over plain commits per second. With each step a commit of its own it can
// be 0.25 at most, if they cost no more than the plain ones. Where each processor has a
// claimer of its own, as if all were processes, there is a backlog: without one they do
// little else than compete for the few jobs that there are.
//
// On a disk that syncs in a fraction of a millisecond, the processor's time for a cycle bounds
// it, about forty writes in four commits, and the ratio is low because plain commits are
// hardly any work. So it is also measured where each sync of the log takes longer.
//
// conflicts/commit is how many commits of the life cycles were refused with a conflict, for
// each one that was not.
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

// cycling is a way to take jobs through their life.
type cycling struct {
	name string
	own  bool // each processor has a claimer of its own, as if it were a process
	add  int  // jobs in one transaction
	take int  // jobs in one call of Accept
}

// compare has n processors work, on a disk whose syncs take so much longer, if they are to.
func (c cycling) compare(b *testing.B, n int, sync time.Duration) {
	var db kv.Database
	if sync == 0 {
		db = openStore(b)
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
		processors[i] = &processor{cycling: c, db: store, jobs: layer.Type("work"), supply: supply}
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
	b.ReportMetric(0, "ns/op") // it is of turns
	b.ReportMetric(cycles.perSecond(), "cycles/s")
	b.ReportMetric(commits.perSecond(), "commits/s")
	b.ReportMetric(cycles.perSecond()/commits.perSecond(), "cycles/commit")
	b.ReportMetric(float64(store.refused.Load())/float64(store.committed.Load()), "conflicts/commit")
}

// committing counts the commits of transactions that write.
type committing struct {
	kv.Database
	committed, refused atomic.Int64 // refused: with a conflict
}

func (c *committing) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	var runs []kv.Future[kv.Versionstamp]
	err := c.Database.Transact(ctx, func(tx kv.Transaction) error {
		runs = append(runs, tx.Versionstamp())
		return fn(tx)
	})
	for _, run := range runs {
		switch _, err := run.Await(); {
		case err == nil:
			c.committed.Add(1)
		case errors.Is(err, kv.ErrNotCommitted):
			c.refused.Add(1)
		}
	}
	return err
}

// processor takes jobs through their life, one commit after the other.
type processor struct {
	cycling
	db      kv.Database
	jobs    *fdbjobs.Type
	supply  *supply
	added   bool // a job, for itself to take or another
	held    []*fdbjobs.Held
	updated bool // held[0] was
}

// supply is the jobs of all processors.
type supply struct {
	low     int64        // there are to be as many, so that nobody waits
	left    atomic.Int64 // that nobody is about to take
	adding  atomic.Bool
	numbers atomic.Int64
}

// step makes the next commit and returns how many jobs were finished by it.
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

// keepSupplied counts on jobs to take, and adds some if few are left and nobody else does.
func (p *processor) keepSupplied(ctx context.Context) error {
	s := p.supply
	s.left.Add(-int64(p.take))
	// Who finds another one adding leaves it to that one, who therefore looks again.
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
				ID: id, Owner: fmt.Sprint("owner ", n%10), Args: text(`{"n":1}`), Token: id, Order: uint16(n - begin),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkAcceptConflicts has 16 claimers, each for 16 acceptors, take jobs from the
// queue of one owner, which is long, and finish them at once. A conflict is a run of a
// claim's transaction that has to be repeated: conflicts-% is how many there are for
// 100 claims, and first-% how many while the claimers did not know of each other.
func BenchmarkAcceptConflicts(b *testing.B) {
	const claimers, acceptors, length = 16, 16, 20_000
	db := openDisk(b)
	claims := &claims{counted: counted{Database: db}}
	types := make([]*fdbjobs.Type, claimers)
	for i := range types {
		types[i] = openLayer(b, claims).Type("work")
	}
	finishing := context.WithValue(b.Context(), finishes{}, true)
	accept := func(i int) (int, error) {
		held, err := types[i%claimers].Accept(b.Context(), fdbjobs.AcceptOptions{})
		if err != nil {
			return 0, err
		}
		return 1, held[0].Finish(finishing, nil, nil)
	}

	full := queue{db: db, jobs: types[0], owners: 1}
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

// claims counts the transactions of claims, and their runs. What else goes through it
// has a context with the key finishes.
type claims struct {
	counted
	transactions atomic.Int64
}

type finishes struct{}

func (c *claims) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	if ctx.Value(finishes{}) != nil {
		return c.Database.Transact(ctx, fn)
	}
	c.transactions.Add(1)
	return c.counted.Transact(ctx, fn)
}

func (c *claims) conflicts() (percent float64) {
	n := float64(c.transactions.Load())
	return 100 * (float64(c.runs.Load()) - n) / n
}

func (c *claims) reset() {
	c.transactions.Store(0)
	c.runs.Store(0)
}

// BenchmarkAcceptLatency adds a job while an acceptor waits at an empty queue, and
// compares the time until it is held with that of a plain commit. Two commits lie in
// that time, the addition and the claim, and a watch that ends: add-to-held/commit is
// for all of it, added-to-held/commit from the end of the addition on, in the median.
// p99/commit compares the 99th percentile of all of it with the median of plain commits,
// p99/p99 with their 99th percentile.
func BenchmarkAcceptLatency(b *testing.B) {
	db := openStore(b)
	idle := &idle{counted: counted{Database: db}, watching: make(chan struct{}, 1)}
	jobs := openLayer(b, idle).Type("work")
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
	b.ReportMetric(0, "ns/op") // it is of more than is measured
	b.ReportMetric(float64(adding.median())/float64(commit), "add-to-held/commit")
	b.ReportMetric(float64(added.median())/float64(commit), "added-to-held/commit")
	b.ReportMetric(float64(adding.at(0.99))/float64(commit), "p99/commit")
	b.ReportMetric(float64(adding.at(0.99))/float64(plain.at(0.99)), "p99/p99")
	b.ReportMetric(float64(commit.Microseconds()), "commit-µs")
	b.ReportMetric(float64(adding.median().Microseconds()), "add-to-held-µs")
	b.ReportMetric(float64(adding.at(0.99).Microseconds()), "p99-µs")
}

type acceptance struct {
	held []*fdbjobs.Held
	at   time.Time
	err  error
}

// idle tells when a claimer waits.
type idle struct {
	counted
	watching chan struct{} // holds a token when a transaction has armed a watch
}

func (i *idle) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	before := i.watches.Load()
	err := i.counted.Transact(ctx, fn)
	if i.watches.Load() > before {
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

// openStore opens a store that is closed at the end of the benchmark: on FoundationDB, if
// there is one, else on the disk.
func openStore(b *testing.B) kv.Database {
	b.Helper()
	db, ok := kvtest.Cluster(b)
	if !ok {
		return openDisk(b)
	}
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	return db
}

// openDisk opens a store that is closed at the end of the benchmark.
func openDisk(b *testing.B) kv.Database {
	b.Helper()
	return openSlowDisk(b, 0)
}

// openSlowDisk is openDisk, with syncs of the log that take so much longer.
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
	layer := fdbjobs.Open(db, prefix)
	b.Cleanup(layer.Close)
	return layer
}

// work has n goroutines do step after step for a turn. It returns how much was done,
// by what the steps say, and how long it took.
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

// rate is how much was done in how long.
type rate struct {
	done int
	took time.Duration
}

func (r *rate) add(done int, took time.Duration) {
	r.done += done
	r.took += took
}

func (r *rate) perSecond() float64 { return float64(r.done) / r.took.Seconds() }

// durations are of one thing that was done several times.
type durations []time.Duration

func (d *durations) add(took time.Duration) { *d = append(*d, took) }

func (d durations) median() time.Duration { return d.at(0.5) }

func (d durations) at(quantile float64) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[int(quantile*float64(len(sorted)-1))]
}

// queue is a number of pending jobs.
type queue struct {
	db     kv.Database
	jobs   *fdbjobs.Type
	owners int
	added  int
}

// addAtOnce is how many jobs one transaction adds.
const addAtOnce = 100

// add adds n jobs, whose ids are in the order in which they are added, but for those
// that are added at the same time.
func (q *queue) add(b *testing.B, n int) {
	b.Helper()
	var wg sync.WaitGroup
	next, end := atomic.Int64{}, q.added+n
	next.Store(int64(q.added))
	for range 4 {
		wg.Go(func() {
			for {
				from := int(next.Add(addAtOnce)) - addAtOnce
				if from >= end {
					return
				}
				if err := q.addSome(b.Context(), from, min(from+addAtOnce, end)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	q.added = end
	if b.Failed() {
		b.FailNow()
	}
}

func (q *queue) addSome(ctx context.Context, from, to int) error {
	return q.db.Transact(ctx, func(tx kv.Transaction) error {
		for n := from; n < to; n++ {
			err := q.jobs.Add(tx, fdbjobs.Spec{
				ID: fmt.Sprintf("%08d", n), Owner: fmt.Sprint("owner ", n%q.owners),
				Args: text(`{"n":1}`), Order: uint16(n - from),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
