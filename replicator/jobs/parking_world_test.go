package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/jobs"
)

const (
	feedServer    = "http://feed.example/" // has a feed of updates
	askedServer   = "http://asked.example/"
	parkDatabases = 3
	parkRunners   = 3 // fewer than jobs
	parkRounds    = 5
	parkChanges   = 25              // in each round
	parkTimeout   = 5 * time.Second // of jobs and watches
	// parkQuiet is the time after the last change of each round, within which it must be copied. It is much shorter than
	// the time after which a parked job runs by itself.
	parkQuiet = 2 * time.Minute
)

// errDied ends a run or a watch when its node dies. The run or watch makes no more calls.
var errDied = errors.New("died")

// place is a database of a source server.
type place struct{ server, database string }

// change is a row of a server's feed.
type change struct {
	database string
	at       time.Time // from when on the feed shows it
}

// parkWorld has two servers whose databases change, continuous jobs that copy and park, and the watches of the servers.
type parkWorld struct {
	*bundle   // without faults
	processes []*process
	jobs      int  // the number of jobs: two, whose watches often end, or more than there are runners
	drops     bool // the feed leaves out changes, and watches compare update_seqs

	mu      sync.Mutex // guards the fields below
	random  *rand.Rand
	quiet   bool           // nothing changes, and nothing dies
	seqs    map[place]int  // the number of changes of each database
	feed    []change       // of feedServer
	copied  map[string]int // the target's checkpoint of each job: it has the changes up to this one
	targets map[string]int // the instance of each job's target, which has lost everything when it changes
	places  map[string]place
	names   map[string]*replicator.Replication
	counts  map[string]int // of observed events
	missing []string       // what is wrong in the end
}

func newParkWorld(t *testing.T, seed uint64, wrap func(kv.Database) kv.Database) *parkWorld {
	db := enginetest.Memory(t)
	opts := jobs.Options{UUID: serverUUID, Documents: docsPrefix}
	w := &parkWorld{
		bundle: setupWith(t, db, fdbjobs.Options{Timeout: parkTimeout}, opts), jobs: []int{2, 12}[seed%2], drops: seed%3 == 2, random: rand.New(rand.NewPCG(seed, 2)), seqs: map[place]int{},
		copied: map[string]int{}, targets: map[string]int{}, places: map[string]place{}, names: map[string]*replicator.Replication{}, counts: map[string]int{},
	}
	for i := range uint64(3) {
		faulty := wrap(faultkv.Wrap(db, faultkv.Options{Seed: seed<<8 | i, Rates: faultkv.Rates{
			faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.1, faultkv.UnknownNotCommitted: 0.05,
			faultkv.TooOld: 0.01, faultkv.Delay: 0.2,
			faultkv.LostWatch: 0.05, faultkv.LateWatch: 0.1, faultkv.SpuriousWatch: 0.1,
		}}))
		p := &process{layer: fdbjobs.Open(faulty, []byte("jobs"), fdbjobs.Options{Timeout: parkTimeout, Derive: jobs.Derivations()})}
		t.Cleanup(p.layer.Close)
		var err error
		p.jobs, err = jobs.Open(t.Context(), faulty, p.layer, opts)
		require.NoError(t, err)
		w.processes = append(w.processes, p)
	}
	return w
}

func (w *parkWorld) intN(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *parkWorld) process() *process { return w.processes[w.intN(len(w.processes))] }

// pause sleeps for a random time below limit, on the bubble's clock.
func (w *parkWorld) pause(limit time.Duration) { <-time.After(time.Duration(w.intN(int(limit)))) }

func (w *parkWorld) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// dies reports whether the node dies at a step of its protocol.
func (w *parkWorld) dies(step string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet || w.random.IntN(15) > 0 {
		return nil
	}
	w.counts["died "+step]++
	return errDied
}

// seq returns the number of changes of a database, which is its update_seq.
func (w *parkWorld) seq(at place) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seqs[at]
}

// change changes a random database.
func (w *parkWorld) change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changeAt(place{[]string{feedServer, askedServer}[w.random.IntN(2)], fmt.Sprint("d", w.random.IntN(parkDatabases))})
}

// meanwhile lets a while pass, in which a database may change.
func (w *parkWorld) meanwhile(at place) {
	w.pause([]time.Duration{time.Millisecond, 50 * time.Millisecond, 2 * time.Second}[w.intN(3)])
	w.mu.Lock()
	changes := !w.quiet && w.random.IntN(5) == 0
	if changes {
		w.changeAt(at)
	}
	if !w.quiet && w.random.IntN(10) == 0 {
		w.loseTarget()
	}
	w.mu.Unlock()
	if changes {
		w.pause(500 * time.Millisecond)
	}
}

// changeAt changes a database. A feed that drops changes leaves out some. The caller holds mu.
func (w *parkWorld) changeAt(at place) {
	w.seqs[at]++
	if at.server != feedServer || w.drops && w.random.IntN(2) == 0 {
		return
	}
	late := time.Now()
	if w.random.IntN(5) == 0 {
		late = late.Add(time.Duration(w.random.IntN(int(3 * time.Second))))
	}
	if n := len(w.feed); n > 0 && late.Before(w.feed[n-1].at) {
		late = w.feed[n-1].at // rows stay in order
	}
	w.feed = append(w.feed, change{at.database, late})
}

// visible returns the databases of the feed's rows from one on, as far as the feed shows them, and where it goes on.
func (w *parkWorld) visible(since int) (databases []string, next int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for next = since; next < len(w.feed) && !w.feed[next].at.After(time.Now()); next++ {
		databases = append(databases, w.feed[next].database)
	}
	return databases, next
}

func (w *parkWorld) placeOf(jobID string) place {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.places[jobID]
}

func (w *parkWorld) behind(jobID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.copied[jobID] < w.seqs[w.places[jobID]]
}

// copy copies up to n changes, and writes the checkpoint.
func (w *parkWorld) copy(jobID string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.copied[jobID] = min(w.copied[jobID]+n, w.seqs[w.places[jobID]])
}

// replicate adds a continuous job for a database, or changes the options of an existing one.
func (w *parkWorld) replicate(n int) {
	server, database := feedServer, fmt.Sprint("d", n%parkDatabases)
	if n%2 == 1 {
		server = askedServer
	}
	text := fmt.Sprintf(`{"source": %q, "target": "http://b.example/t%d", "continuous": true, "worker_batch_size": %d}`,
		server+database, n, 100+w.intN(3))
	request, err := replicator.ParseRequest([]byte(text), replicator.ParseOptions{})
	require.NoError(w, err)
	job, err := w.process().jobs.Requests.Replicate(w.Context(), request.Replication, nil)
	w.must(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places[job.ID], w.names[job.ID] = place{server, database}, request.Replication
}

// must reports an error that is not expected, and returns whether there was none.
func (w *parkWorld) must(err error, but ...error) bool {
	for _, expected := range but {
		if errors.Is(err, expected) {
			return false
		}
	}
	if err != nil {
		w.Errorf("unexpected: %v", err)
	}
	return err == nil
}

// run returns what is wrong in the end.
func (w *parkWorld) run() []string {
	for n := range w.jobs {
		w.replicate(n)
	}
	ctx, cancel := context.WithCancel(w.Context())
	var others sync.WaitGroup
	for range parkRunners {
		others.Go(func() { w.runner(ctx) })
	}
	for range 2 {
		others.Go(func() { w.watcher(ctx) })
	}
	for _, p := range w.processes {
		for _, queue := range []*fdbjobs.Queue{p.jobs.Jobs, p.jobs.Watches.Queue} {
			others.Go(func() {
				_ = queue.RunMonitor(ctx, func(_ []string, _ time.Duration, err error) {
					if err != nil {
						w.Errorf("monitor: %v", err)
					}
				})
			})
		}
	}
	for round := range parkRounds {
		w.setQuiet(false)
		var changing sync.WaitGroup
		changing.Go(w.changer)
		changing.Go(w.meddler)
		changing.Wait()
		w.loseLast()
		w.setQuiet(true)
		<-time.After(parkQuiet)
		for _, id := range slices.Sorted(maps.Keys(w.places)) {
			if w.behind(id) {
				job := w.get(id)
				w.missing = append(w.missing, fmt.Sprintf("after round %d %s of %v has %d of %d changes: %s, parked %v",
					round, id, w.places[id], w.copied[id], w.seqs[w.places[id]], job.Condition(), job.Parked()))
			}
		}
	}
	for id := range w.places {
		w.cancel(id)
	}
	kinds := []string{"parked", "asks", "watched"}
	left := func() bool {
		return slices.ContainsFunc(kinds, func(kind string) bool { return len(w.rows(kind)) > 0 })
	}
	for waited := 0; left() && waited < 10; waited++ {
		<-time.After(time.Minute) // the watches end; one whose process has died is taken over first
	}
	cancel()
	others.Wait()
	for _, kind := range kinds {
		if rows := w.rows(kind); len(rows) > 0 {
			w.missing = append(w.missing, fmt.Sprintf("rows are left of jobs that are gone: %s %v", kind, rows))
		}
	}
	return w.missing
}

func (w *parkWorld) setQuiet(quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = quiet
}

// changer changes databases: at times all at once, at times one after a while.
func (w *parkWorld) changer() {
	for range parkChanges {
		w.pause([]time.Duration{time.Millisecond, 100 * time.Millisecond, 5 * time.Second}[w.intN(3)])
		w.change()
		if w.intN(10) == 0 {
			w.mu.Lock()
			w.loseTarget()
			w.mu.Unlock()
		}
	}
}

// meddler does what users do with jobs.
func (w *parkWorld) meddler() {
	for range parkChanges / 3 {
		w.pause(3 * time.Second)
		n := w.intN(w.jobs)
		switch w.intN(3) {
		case 0:
			w.replicate(n) // perhaps with other options
		case 1:
			id := w.anyJob()
			before, err := w.process().jobs.Requests.RunNow(w.Context(), id)
			if w.must(err) && !before.Parked().IsZero() {
				w.count("run now")
			}
		default:
			id := w.anyJob()
			job, err := w.process().jobs.Requests.Cancel(w.Context(), id, nil)
			if w.must(err) && !job.Parked().IsZero() {
				w.count("cancelled")
			}
			w.mu.Lock()
			again := w.names[id]
			w.mu.Unlock()
			_, err = w.process().jobs.Requests.Replicate(w.Context(), again, nil)
			w.must(err)
		}
	}
}

func (w *parkWorld) anyJob() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := slices.Sorted(maps.Keys(w.places))
	return ids[w.random.IntN(len(ids))]
}

// runner runs one job after another.
func (w *parkWorld) runner(ctx context.Context) {
	for ctx.Err() == nil {
		run, err := accept(ctx, w.process().jobs)
		if !w.must(err, context.Canceled) {
			return
		}
		if err := w.work(ctx, run); errors.Is(err, fdbjobs.ErrHalt) {
			w.count("halted")
		} else {
			w.must(err, errDied, context.Canceled)
		}
	}
}

// work runs a job until it parks, stops or dies.
func (w *parkWorld) work(ctx context.Context, run *jobs.Run) error {
	id := run.Job().ID
	if err := w.dies("before start"); err != nil {
		return err
	}
	if err := run.Start(w.Context(), "node", "pid"); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := run.Check(); err != nil {
			return err
		}
		if w.behind(id) {
			w.pause(200 * time.Millisecond)
			w.copy(id, 1+w.intN(3))
			if err := errors.Join(w.dies("copying"), run.Update(w.Context(), func(s *replicator.JobState) { s.Stats.DocsRead++ })); err != nil {
				return err
			}
			continue
		}
		w.pause(time.Second)
		if err := run.Update(w.Context(), func(*replicator.JobState) {}); err != nil {
			return err
		}
		if w.behind(id) {
			continue
		}
		var ended bool
		var err error
		switch w.intN(6) {
		case 0:
			return run.Stop(w.Context(), "", "", nil)
		case 1:
			return run.Crash(w.Context(), time.Now().Add(time.Second), 1, replicator.TextFault("", "crashed"))
		default:
			ended, err = w.park(run)
		}
		if ended || err != nil {
			return err
		}
	}
	return nil
}

// park follows the protocol of a run that parks. Any step may take a while, and the source changes meanwhile, or the target is
// lost.
func (w *parkWorld) park(run *jobs.Run) (ended bool, err error) {
	id, ctx := run.Job().ID, w.Context()
	at := w.placeOf(id)
	noted, target := fmt.Sprint(w.seq(at)), w.targetOf(id)
	w.meanwhile(at)
	if err := w.dies("before parking"); err != nil {
		return false, err
	}
	if err := run.Parking(ctx, replicator.Parked{Server: at.server, Database: at.database, UpdateSeq: noted, Target: target}); err != nil {
		return false, err
	}
	if err := w.dies("after parking"); err != nil {
		return false, err
	}
	w.meanwhile(at)
	if w.behind(id) {
		w.count("did not park")
		if w.intN(2) == 0 {
			err = run.Parking(ctx, replicator.Parked{})
		}
		return false, err
	}
	w.meanwhile(at)
	if err := w.dies("after the last look"); err != nil {
		return false, err
	}
	woken, err := run.Park(ctx, nil)
	switch {
	case err != nil:
		return false, err
	case woken:
		w.count("woken before it parked")
	default:
		w.count("parked")
	}
	return true, w.dies("after it parked")
}

// watcher runs one watch after another.
func (w *parkWorld) watcher(ctx context.Context) {
	for ctx.Err() == nil {
		p := w.process()
		held, err := p.jobs.Watches.Queue.Accept(ctx, fdbjobs.AcceptOptions{})
		if !w.must(err, context.Canceled) {
			return
		}
		for _, h := range held {
			watch := w.watchFeed
			if h.Job().ID == askedServer {
				watch = w.watchQuestions
			}
			err := watch(ctx, p.jobs, h)
			w.must(err, errDied, fdbjobs.ErrHalt, context.Canceled)
		}
	}
}

// errNeeded is returned by the function that would end a watch, if jobs are parked.
var errNeeded = errors.New("jobs are parked")

// unwatch ends a watch that is not needed.
func (w *parkWorld) unwatch(store *jobs.Store, held *fdbjobs.Held) (ended bool, err error) {
	held.Expires = time.Now().Add(10 * time.Second)
	err = held.Finish(w.Context(), nil, func(tx kv.Transaction) error {
		ended, err := store.Watches.Unwatch(tx, held.Job().ID)
		if err == nil && !ended {
			err = errNeeded
		}
		return err
	})
	if errors.Is(err, errNeeded) {
		return false, nil
	}
	if err == nil {
		w.count("unwatched")
	}
	return err == nil, err
}

// watchFeed is the watch of a server with a feed, which is late and repeats rows.
func (w *parkWorld) watchFeed(ctx context.Context, store *jobs.Store, held *fdbjobs.Held) error {
	var state struct {
		Since *int `json:"since"`
	}
	require.NoError(w, json.Unmarshal(held.Job().State, &state))
	save := func(since int) error {
		state.Since = &since
		text, err := json.Marshal(state)
		require.NoError(w, err)
		return held.Update(w.Context(), text, nil)
	}
	if state.Since == nil {
		// A feed that begins now does not have the changes of databases that are parked already.
		_, since := w.visible(0)
		w.pause(50 * time.Millisecond)
		if err := w.compare(store, held.Job().ID); err != nil {
			return err
		}
		if err := save(since); err != nil {
			return err
		}
	}
	for compared, looked := time.Now(), (time.Time{}); ctx.Err() == nil; w.pause(200 * time.Millisecond) {
		if err := w.lookAtTargets(store, held.Job().ID, &looked); err != nil {
			return err
		}
		databases, next := w.visible(*state.Since)
		if len(databases) > 0 && w.intN(4) == 0 {
			databases, next = w.visible(max(*state.Since-w.intN(4), 0)) // it repeats some
		}
		if err := w.dies("before a wake"); err != nil {
			return err
		}
		n, err := store.Watches.Wake(w.Context(), held.Job().ID, databases)
		if err != nil {
			return err
		}
		for range n {
			w.count("woken by the feed")
		}
		if err := w.dies("after a wake"); err != nil {
			return err
		}
		if w.drops && time.Since(compared) > 8*time.Second {
			if err := w.compare(store, held.Job().ID); err != nil {
				return err
			}
			compared = time.Now()
		}
		if err := save(next); err != nil {
			return err
		}
		if len(databases) == 0 && w.intN(w.jobs) == 0 {
			if ended, err := w.unwatch(store, held); ended || err != nil {
				return err
			}
		}
	}
	return nil
}

// compare wakes the databases whose update_seq is not the noted one.
func (w *parkWorld) compare(store *jobs.Store, server string) error {
	var after jobs.ParkedRow
	for {
		rows, err := store.Watches.ParkedOf(w.Context(), server, after, 3)
		if err != nil {
			return err
		}
		var changed []string
		for _, row := range rows {
			if !row.Woken && row.UpdateSeq != fmt.Sprint(w.seq(place{server, row.Database})) {
				changed = append(changed, row.Database)
			}
		}
		n, err := store.Watches.Wake(w.Context(), server, changed)
		if err != nil || len(rows) < 3 {
			return err
		}
		for range n {
			w.count("woken by a comparison")
		}
		after = rows[2]
	}
}

// watchQuestions is the watch of a server without a feed.
func (w *parkWorld) watchQuestions(ctx context.Context, store *jobs.Store, held *fdbjobs.Held) error {
	server, looked := held.Job().ID, time.Time{}
	for ctx.Err() == nil {
		if err := w.lookAtTargets(store, server, &looked); err != nil {
			return err
		}
		parks, err := store.Watches.AwaitParked(w.Context(), server)
		if err != nil {
			return err
		}
		rows, next, err := store.Watches.Asks(w.Context(), server, time.Now(), 3)
		if err != nil {
			parks.Cancel()
			return err
		}
		var changed []string
		for _, row := range rows {
			if w.behind(row.JobID) {
				changed = append(changed, row.Database)
			}
		}
		err = errors.Join(w.dies("asking"), held.Update(w.Context(), nil, nil))
		if err == nil && len(rows) > 0 {
			var n int
			n, err = store.Watches.Wake(w.Context(), server, changed)
			for range n {
				w.count("woken by a question")
			}
			err = errors.Join(err, w.dies("after an answer"), store.Watches.Ask(w.Context(), rows, func(jobs.ParkedRow) time.Time {
				return time.Now().Add(time.Duration(1+w.intN(20)) * time.Second)
			}))
		}
		if err != nil {
			parks.Cancel()
			return err
		}
		until := time.Now().Add(parkTimeout / 4)
		if !next.IsZero() && next.Before(until) {
			until = next
		}
		kv.AwaitChange(ctx, parks, kv.AwaitOptions{Until: until})
		if len(rows) == 0 && w.intN(w.jobs) == 0 {
			if ended, err := w.unwatch(store, held); ended || err != nil {
				return err
			}
		}
	}
	return nil
}

// sleepy is a store in which no row of a parked job is woken for who reads it alone, as [jobs.Run.Park] does.
type sleepy struct{ kv.Database }

func (s sleepy) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	return s.Database.Transact(ctx, func(tx kv.Transaction) error { return fn(sleepyTransaction{tx}) })
}

type sleepyTransaction struct{ kv.Transaction }

func (t sleepyTransaction) Get(key []byte) kv.Future[[]byte] {
	future := t.Transaction.Get(key)
	if e, err := tuple.NewSubspace("replicator", "parked").Unpack(key); err != nil || len(e) != 3 {
		return future
	}
	return sleepyFuture{future}
}

type sleepyFuture struct{ kv.Future[[]byte] }

func (f sleepyFuture) Await() ([]byte, error) {
	value, err := f.Future.Await()
	if err != nil || value == nil {
		return value, err
	}
	row, err := tuple.Unpack(value)
	if err != nil {
		return nil, err
	}
	row[1] = false
	return row.Pack(), nil
}
