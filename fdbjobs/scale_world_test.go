package fdbjobs_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
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
)

var (
	scaleJobs     = flag.Int("scale.jobs", 0, "run TestScale with this number of running jobs alone")
	scaleClaimers = flag.Int("scale.claimers", 1, "with -scale.jobs: the number of processes")
)

// TestScale runs loads in virtual time and compares what the store has counted with the model.
//
// The order of what happens at one moment is not fixed. So each bound holds for every order: nothing that the layer
// does to a running job depends on other jobs, updates are so far apart that they share no transactions, and each claim
// reads and writes at least what its job needs, and in each of its runs at most what the model says.
func TestScale(t *testing.T) {
	t.Parallel()
	loads := []load{
		{jobs: 1_000, claimers: 1, update: 10 * time.Second, timeout: time.Minute, life: 1000 * time.Second},
		{jobs: 240, claimers: 8, update: 3 * time.Second, timeout: 36 * time.Second, life: 30 * time.Second},
	}
	if *scaleJobs > 0 {
		loads[0].jobs, loads[0].claimers = *scaleJobs, *scaleClaimers
		loads = loads[:1]
	}
	for _, l := range loads {
		t.Run(fmt.Sprintf("jobs=%d,claimers=%d", l.jobs, l.claimers), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newWorld(t, l).run() })
		})
	}
}

// kind is what a transaction is for. Those without one are of claimers.
type kind string

const (
	kindAdds     kind = "adds"
	kindWrites   kind = "updates and ends"
	kindClaims   kind = "claims"
	kindMonitors kind = "monitors"
)

var allKinds = []kind{kindAdds, kindWrites, kindClaims, kindMonitors}

func (k kind) context() context.Context { return context.WithValue(context.Background(), kind(""), k) }

// kinds is a store that counts transactions of each kind apart.
type kinds struct {
	kv.Database
	of map[kind]*enginetest.Controlled
}

func countKinds(db kv.Database) *kinds {
	k := &kinds{db, map[kind]*enginetest.Controlled{}}
	for _, kind := range allKinds {
		k.of[kind] = enginetest.Control(db)
	}
	return k
}

func (k *kinds) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	kind, ok := ctx.Value(kind("")).(kind)
	if !ok {
		kind = kindClaims
	}
	return k.of[kind].Transact(ctx, fn)
}

// counted is what the transactions of a kind have done.
type counted struct {
	step
	transactions, runs int
}

func (k *kinds) counts() map[kind]counted {
	counts := map[kind]counted{}
	for kind, store := range k.of {
		counts[kind] = counted{costs(store), int(store.Transactions.Load()), int(store.Runs.Load())}
	}
	return counts
}

func (c counted) minus(o counted) counted {
	return counted{c.step.minus(o.step), c.transactions - o.transactions, c.runs - o.runs}
}

// world is a load that runs.
type world struct {
	load
	t     *testing.T
	store *kinds
	procs []*proc
	// What has been done so far.
	added, updated, ended atomic.Int64
}

// proc is a process of a world.
type proc struct {
	*world
	number int
	layer  *fdbjobs.Layer
	jobs   *fdbjobs.Queue
	slots  []atomic.Pointer[fdbjobs.Held]
	tick   int // the number of the next one
	flying sync.WaitGroup
}

func newWorld(t *testing.T, l load) *world {
	w := &world{load: l, t: t, store: countKinds(enginetest.Memory(t))}
	for i := range l.claimers {
		opts := fdbjobs.Options{Seed: [32]byte{1, byte(i), byte(i >> 8)}, Timeout: l.timeout}
		p := &proc{world: w, number: i, layer: fdbjobs.Open(w.store, prefix, opts)}
		p.jobs, p.slots = p.layer.Queue("work"), make([]atomic.Pointer[fdbjobs.Held], l.jobs/l.claimers)
		w.procs = append(w.procs, p)
	}
	return w
}

// gap is the time between two updates of a process. They are evenly spread.
func (w *world) gap() time.Duration { return w.update / time.Duration(w.jobs/w.claimers) }

func (w *world) close() {
	for _, p := range w.procs {
		p.layer.Close()
	}
}

func (w *world) run() {
	defer w.close()
	require.Greater(w.t, modelAtOnce*w.gap(), modelRead+modelCommit, "no update shares a transaction")
	require.Zero(w.t, w.jobs%(w.claimers*w.every()), "a number of jobs ends in each process and period")
	monitored, stop := context.WithCancel(kindMonitors.context())
	var monitors sync.WaitGroup
	defer func() { stop(); monitors.Wait() }()
	for i, p := range w.procs {
		monitors.Go(func() {
			time.Sleep(w.timeout / 6 * time.Duration(i) / time.Duration(w.claimers))
			_ = p.jobs.RunMonitor(monitored, func(ids []string, _ time.Duration, err error) { // ends with its context
				w.check(err)
				if len(ids) > 0 {
					w.t.Errorf("queued again: %v", ids)
				}
			})
		})
	}
	for range w.timeout * 4 / 3 / time.Second { // from now on a look is complete
		time.Sleep(time.Second)
		w.check(w.store.Database.Transact(w.t.Context(), func(tx kv.Transaction) error {
			tx.Set([]byte("others"), nil)
			return nil
		}))
	}
	w.fill()
	w.delay()
	time.Sleep(w.timeout / 6) // the first update of each job renews its hold
	w.period(w.update)
	before, replaced := w.store.counts(), w.ended.Load()
	w.updated.Store(0)
	span := w.renewal()
	w.period(span)
	after := w.store.counts()
	measured := map[kind]counted{}
	for kind, c := range after {
		measured[kind] = c.minus(before[kind])
	}
	w.t.Log("\n" + w.report(measured, span))
	w.compare(measured, span, int(replaced))
}

func (w *world) check(err error) {
	if err != nil {
		w.t.Error(err)
	}
}

// fill adds jobs, and has each process take its share.
func (w *world) fill() {
	for left := w.jobs + 2*w.window(); left > 0; left -= addAtOnce {
		w.add(min(left, addAtOnce))
		time.Sleep(time.Millisecond)
	}
	for _, p := range w.procs {
		for n := 0; n < len(p.slots); {
			opts := fdbjobs.AcceptOptions{Count: min(len(p.slots)-n, fdbjobs.MaxClaim)}
			held, err := p.jobs.Accept(context.Background(), opts)
			require.NoError(w.t, err)
			for _, h := range held {
				p.slots[n].Store(h)
				n++
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// delay makes reads and commits take time from now on.
func (w *world) delay() {
	for _, store := range w.store.of {
		store.Delay.Store(int64(modelRead))
		store.CommitDelay.Store(int64(modelCommit))
	}
}

// add adds n jobs.
func (w *world) add(n int) {
	end := int(w.added.Add(int64(n)))
	specs := make([]fdbjobs.Spec, n)
	for i := range specs {
		specs[i] = modelJob(end - n + i)
	}
	w.check(w.store.Transact(kindAdds.context(), func(tx kv.Transaction) error {
		return w.procs[0].jobs.Add(tx, specs...)
	}))
}

// period lets all processes work for some time, and until what they have begun has ended.
func (w *world) period(length time.Duration) {
	var working sync.WaitGroup
	began := time.Now()
	for _, p := range w.procs {
		working.Go(func() { p.work(began, int(length/w.gap())) })
	}
	working.Wait()
	// The next period begins a little later. No update is that late.
	time.Sleep(100 * time.Millisecond)
}

// work makes some ticks.
func (p *proc) work(began time.Time, ticks int) {
	began = began.Add(p.gap() * time.Duration(p.number) / time.Duration(p.claimers))
	for i := range ticks {
		time.Sleep(time.Until(began.Add(time.Duration(i) * p.gap())))
		slot := &p.slots[p.tick%len(p.slots)]
		if p.ends() {
			p.flying.Go(func() { p.replace(slot) })
		} else {
			p.flying.Go(func() {
				p.updated.Add(1)
				p.check(slot.Load().Update(kindWrites.context(), object(modelState), nil))
			})
		}
		p.tick++
	}
	p.flying.Wait()
}

// every is the number of updates of a job. The last one ends it.
func (w *world) every() int { return int(w.life / w.update) }

// ends reports whether a job ends with this tick. One of every ticks does, in the middle half of them, at a place that
// looks random.
func (p *proc) ends() bool {
	every := p.every()
	place := scatter(p.tick/every*p.claimers+p.number) >> 33 % uint64(every/2)
	return every/4+int(place) == p.tick%every
}

// replace ends a job, and takes another one.
func (p *proc) replace(slot *atomic.Pointer[fdbjobs.Held]) {
	p.add(1)
	p.check(slot.Load().Finish(kindWrites.context(), object(modelState), nil))
	p.ended.Add(1)
	held, err := p.jobs.Accept(context.Background(), fdbjobs.AcceptOptions{})
	p.check(err)
	if err == nil {
		slot.Store(held[0])
	}
}

// compare compares a period with the model. Some jobs were replaced before it, after the first period began.
func (w *world) compare(measured map[kind]counted, span time.Duration, replaced int) {
	t, s, rates, seconds := w.t, modelSteps(), w.rates(), span.Seconds()
	updates, ends := int(w.updated.Load()), int(w.ended.Load())-replaced
	near := func(want float64, got, tolerance int, what string) {
		t.Helper()
		assert.InDelta(t, want*seconds, got, float64(tolerance)+0.01, what)
	}
	near(w.starts(), ends, 0, "ends")
	near(w.updates(), updates+ends, 0, "updates and ends")

	// A key of stripe 0 is a byte shorter than the model's.
	model, got := rates[kindAdds], measured[kindAdds]
	near(model.transactions, got.transactions, 0, "adds")
	near(model.keys, got.keys, 0, "keys of adds")
	near(model.bytes, got.bytes, 0, "bytes of adds")
	near(model.gets, got.gets, 0, "keys read by adds")
	assert.Zero(t, got.rows+got.ranges, "ranges of adds")

	// A job renews its hold once in the period. One that is replaced, and the one that replaces it, may not.
	model, got = rates[kindWrites], measured[kindWrites]
	missed := max(replaced, ends)
	near(model.transactions, got.transactions, 0, "updates and ends")
	near(model.keys, got.keys, missed*(s.renew.keys-s.update.keys), "keys of updates and ends")
	near(model.bytes, got.bytes, missed*(s.renew.bytes-s.update.bytes)+2*w.jobs+ends, "bytes of updates and ends")
	near(model.gets, got.gets, missed, "keys read by updates and ends")
	assert.Zero(t, got.rows+got.ranges, "ranges of updates and ends")

	// A claim takes one job, because the ends of a process are far apart. Each run of a claim, of which all except
	// the last are conflicts, reads at most one window, and all heartbeats.
	got = measured[kindClaims]
	conflicts := got.runs - got.transactions
	within := func(least, got, most int, what string) {
		t.Helper()
		assert.LessOrEqual(t, least, got, what)
		assert.GreaterOrEqual(t, most, got, what)
	}
	within(ends, got.transactions, 2*ends, "claims")
	most := s.accept.plus(s.heartbeat)
	within(ends*s.accept.keys, got.keys, (ends+conflicts)*most.keys, "keys of claims")
	within(ends*(s.accept.bytes-1), got.bytes, (ends+conflicts)*most.bytes, "bytes of claims")
	within(0, got.rows, got.runs*(s.later.rows+1+w.claimers+w.window()), "rows read by claims")

	// Looks that begin before the period or end after it count in part, and a monitor makes a little less than six in a
	// timeout.
	model, got = rates[kindMonitors], measured[kindMonitors]
	near(model.transactions, got.transactions, 3*w.claimers, "looks")
	near(model.gets, got.gets, s.look.gets*w.claimers, "keys read by looks")
	near(model.ranges, got.ranges, s.look.ranges*w.claimers, "ranges read by looks")
	within(0, got.rows, (got.transactions+w.claimers)*(s.look.rows+w.claimers-1+w.jobs), "rows read by looks")
	assert.LessOrEqual(t, got.keys, got.transactions, "keys of looks: one looks for all")
}

// report returns a table of what was measured and, behind it, what the model says.
func (w *world) report(measured map[kind]counted, span time.Duration) string {
	var b strings.Builder
	claims := measured[kindClaims]
	fmt.Fprintf(&b, "%d jobs in %d processes, per second, measured and by the model; %d conflicts in %v\n",
		w.jobs, w.claimers, claims.runs-claims.transactions, span)
	b.WriteString("| | transactions | keys written | bytes written | keys read | ranges read | rows of ranges |\n")
	rates := w.rates()
	for _, kind := range allKinds {
		c, r := measured[kind], rates[kind]
		fmt.Fprintf(&b, "| %s |", kind)
		for _, of := range []struct {
			got   int
			model float64
		}{
			{c.transactions, r.transactions}, {c.keys, r.keys}, {c.bytes, r.bytes},
			{c.gets, r.gets}, {c.ranges, r.ranges}, {c.rows, r.rows},
		} {
			fmt.Fprintf(&b, " %s, %s |", figure(float64(of.got)/span.Seconds()), figure(of.model))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestScaleShared compares the number of transactions that updates share with the model.
func TestScaleShared(t *testing.T) {
	const jobs, path = 1_000, modelRead + modelCommit
	for _, how := range []struct {
		name string
		gap  time.Duration
		most int
	}{
		// Four transactions carry at least one update, and then four at a time as many as they can.
		{"at once", 0, 4 * (1 + (jobs-4+255)/256)},
		{"in turn", 500 * time.Microsecond, 4 * int((jobs*500*time.Microsecond+path)/path+1)},
	} {
		testkit.RunBubble(t, how.name, func(t *testing.T) {
			w := newWorld(t, load{jobs: jobs, claimers: 1, timeout: fdbjobs.DefaultTimeout})
			defer w.close()
			w.fill()
			w.delay()
			p := w.procs[0]
			for i := range p.slots {
				p.flying.Go(func() {
					w.check(p.slots[i].Load().Update(kindWrites.context(), object(modelState), nil))
				})
				time.Sleep(how.gap)
			}
			p.flying.Wait()
			got := w.store.counts()[kindWrites]
			assert.Equal(t, jobs*modelSteps().update.keys, got.keys)
			assert.LessOrEqual(t, got.transactions, how.most)
			t.Logf("%d transactions for %d updates", got.transactions, jobs)
		})
	}
}

// TestScaleIdle adds jobs while all claimers wait. Each job wakes all of them.
func TestScaleIdle(t *testing.T) {
	const jobs, every = 100, 100 * time.Millisecond
	claimers := max(*scaleClaimers, 8)
	testkit.Bubble(t, func(t *testing.T) {
		w := newWorld(t, load{jobs: claimers, claimers: claimers})
		w.delay()
		var working sync.WaitGroup
		for _, p := range w.procs {
			working.Go(func() {
				for {
					held, err := p.jobs.Accept(context.Background(), fdbjobs.AcceptOptions{})
					if err != nil {
						return // the layer is closed
					}
					w.check(held[0].Finish(kindWrites.context(), object(modelState), nil))
					w.ended.Add(1)
				}
			})
		}
		for range jobs {
			time.Sleep(every)
			w.add(1)
		}
		time.Sleep(time.Second)
		got := w.store.counts()[kindClaims]
		w.close()
		working.Wait()
		assert.EqualValues(t, jobs, w.ended.Load())
		// Each claimer makes one claim for each job, and the one that gets the job two more. At the start each makes two.
		// Each ends the waiting of the owner at most once a second.
		seconds := int(jobs*every/time.Second) + 2
		assert.LessOrEqual(t, got.transactions, jobs*(claimers+2)+2*claimers+claimers*seconds)
		t.Logf("for each of %d jobs %d claimers ran %.3g transactions %.3g times", jobs, claimers,
			float64(got.transactions)/jobs, float64(got.runs)/jobs)
	})
}
