package jobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/replicator"
	"settee/replicator/jobs"
)

// TestRandom runs processes that write, merge and delete documents, delete and create their
// databases, run jobs to all kinds of ends, die, and do upkeep, on a store with all faults. In
// the end jobs and documents must agree.
func TestRandom(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	ran := seeds.Each(t, 0, 2, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed)
			w.run()
			mu.Lock()
			defer mu.Unlock()
			for what, n := range w.counts {
				seen[what] += n
			}
		})
	})
	t.Log(seen)
	if ran < 60 {
		return
	}
	for _, what := range []string{
		"written", "refused", "deleted", "merged", "database deleted", "completed", "failed", "crashed", "stopped", "parked", "woken", "died", "halted", "collided", "told",
		"recovered", "stuck", "behind", "refused by a target", "ended after its job", "paused or resumed",
	} {
		assert.NotZero(t, seen[what], what)
	}
}

const (
	worldDocs    = 5
	worldWriters = 4
	worldRunners = 4
	worldSteps   = 60
)

var worldDatabases = []string{"_replicator", "a/_replicator", "b/_replicator"}

type world struct {
	*bundle // without faults
	// processes have faults.
	processes []*process

	mu     sync.Mutex // guards the fields below
	random *rand.Rand
	counts map[string]int       // of observed events
	copies map[string]*jobs.Run // the run that copies, by replication id
}

type process struct {
	db    kv.Database
	layer *fdbjobs.Layer
	jobs  *jobs.Store
	docs  *docstore.Store
}

func newWorld(t *testing.T, seed uint64) *world {
	const timeout = 5 * time.Second
	db := enginetest.Memory(t)
	opts := jobs.Options{
		UUID: serverUUID, TransientMaxAge: 10 * time.Second, StuckAfter: time.Second, Documents: docsPrefix, UpdateDocs: seed%2 == 0,
	}
	w := &world{bundle: setupWith(t, db, fdbjobs.Options{Timeout: timeout}, opts), random: rand.New(rand.NewPCG(seed, 1)), counts: map[string]int{}, copies: map[string]*jobs.Run{}}
	t.Cleanup(func() {
		synctest.Wait() // commits of calls that were cancelled may still be made
		w.checkConditions()
	})
	for i := range uint64(3) {
		faulty := faultkv.Wrap(db, faultkv.Options{Seed: seed<<8 | i, Rates: faultkv.Rates{
			faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.15, faultkv.UnknownNotCommitted: 0.05,
			faultkv.TooOld: 0.01, faultkv.Delay: 0.1,
			faultkv.LostWatch: 0.05, faultkv.LateWatch: 0.1, faultkv.SpuriousWatch: 0.1,
		}})
		p := &process{db: faulty, layer: fdbjobs.Open(faulty, []byte("jobs"), fdbjobs.Options{Timeout: timeout, Derive: jobs.Derivations()})}
		t.Cleanup(p.layer.Close)
		var err error
		p.jobs, err = jobs.Open(t.Context(), faulty, p.layer, opts)
		require.NoError(t, err)
		p.docs = docstore.Open(faulty, docsPrefix, docstore.Options{Hooks: p.jobs.Documents.Hooks(nil)})
		t.Cleanup(p.docs.Close)
		w.processes = append(w.processes, p)
	}
	return w
}

func (w *world) intN(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

func pick[T any](w *world, from []T) T { return from[w.intN(len(from))] }

// pause sleeps for a random time below limit, on the bubble's clock.
func (w *world) pause(limit time.Duration) { <-time.After(time.Duration(w.intN(int(limit)))) }

// must reports an error that is not expected, and returns whether there was none.
func (w *world) must(err error, but ...error) bool {
	if err == nil {
		return true
	}
	for _, expected := range but {
		if errors.Is(err, expected) {
			return false
		}
	}
	w.Errorf("unexpected: %v", err)
	return false
}

func (w *world) run() {
	for _, name := range worldDatabases {
		w.create(name)
	}
	ctx, cancel := context.WithCancel(w.Context())
	var writing, others sync.WaitGroup
	for range worldWriters {
		writing.Go(w.writer)
	}
	writing.Go(w.deleter)
	for range worldRunners {
		others.Go(func() { w.runner(ctx) })
	}
	for _, p := range w.processes {
		others.Go(func() {
			_ = upkeep.Run(ctx, p.db, p.layer, p.jobs.Upkeep.Tasks(), w.failed)
		})
		others.Go(func() {
			_ = p.jobs.Jobs.RunMonitor(ctx, func(_ []string, _ time.Duration, err error) {
				if err != nil {
					w.failed("monitor", err)
				}
			})
		})
	}
	writing.Wait()
	<-time.After(2 * time.Minute) // for upkeep and for jobs that can run
	cancel()
	others.Wait()
	w.compare()
	w.check()
}

func (w *world) failed(task string, err error) { w.Errorf("%s: %v", task, err) }

// body returns one of few replications, so that they collide, or an invalid one, or one that has
// ended.
func (w *world) body() []byte {
	switch w.intN(12) {
	case 0:
		return []byte(`{"source": "nowhere"}`)
	case 1:
		return definitionText(`"_replication_state": "completed"`)
	case 2:
		return []byte(`{"_replication_state": "failed"}`)
	case 3:
		return definitionText(`"continuous": true, "filter": "f/t"`)
	}
	return definitionText(fmt.Sprintf(`"doc_ids": ["%d"], "continuous": %v, "mine": %d, "paused": %v`,
		w.intN(8), w.intN(2) == 0, w.intN(100), w.intN(8) == 0))
}

// paused returns the text of a document with the contrary of its member paused, or nil if it is no replication.
func paused(body []byte) []byte {
	var members map[string]any
	if json.Unmarshal(body, &members) != nil || members["target"] == nil {
		return nil
	}
	members["paused"] = members["paused"] != true
	text, _ := json.Marshal(members)
	return text
}

func (w *world) writer() {
	for range worldSteps {
		w.pause(200 * time.Millisecond)
		p, id := pick(w, w.processes), fmt.Sprint("d", w.intN(worldDocs))
		if w.intN(10) == 0 {
			n, err := p.jobs.Watches.Wake(w.Context(), sourceServer, []string{sourceDatabase})
			if w.must(err) && n > 0 {
				w.count("woken")
			}
		}
		if w.intN(10) == 0 {
			_, err := p.jobs.Requests.Replicate(w.Context(), w.definition(fmt.Sprintf(`"doc_ids": ["%d"]`, w.intN(8))), nil)
			w.must(ignoreCollision(err))
			continue
		}
		db, err := p.docs.Database(w.Context(), pick(w, worldDatabases))
		if !w.must(err, docstore.ErrDatabaseNotFound) {
			continue
		}
		if w.intN(4) == 0 {
			w.merge(db, id)
		} else {
			w.put(db, id)
		}
	}
}

func ignoreCollision(err error) error {
	if errors.As(err, new(*jobs.Collision)) {
		return nil
	}
	return err
}

// put replaces the winning revision.
func (w *world) put(db *docstore.Database, id string) {
	edit := docstore.Edit{ID: id, Body: docjson.Must(w.body()), Deleted: w.intN(4) == 0}
	doc, err := db.Get(w.Context(), id, docstore.GetOptions{})
	if err == nil {
		edit.Rev = doc.Rev
		if text := paused(doc.Body); w.intN(3) == 0 && text != nil {
			edit.Body, edit.Deleted = docjson.Must(text), false
			w.count("paused or resumed")
		}
		if bytes.Contains(doc.Body, []byte(`"triggered"`)) {
			w.count("told")
		}
	} else if !errors.Is(err, docstore.ErrNotFound) {
		w.must(err, docstore.ErrDatabaseNotFound)
		return
	}
	_, err = db.Put(w.Context(), edit)
	w.written(err, edit.Deleted, "written")
}

// merge adds a replicated revision, which may win.
func (w *world) merge(db *docstore.Database, id string) {
	edit := docstore.Edit{
		ID: id, Pos: int64(1 + w.intN(12)), Path: []string{fmt.Sprintf("%032x", w.intN(1<<30))}, Body: docjson.Must(w.body()), Deleted: w.intN(4) == 0,
	}
	results, err := db.Write(w.Context(), []docstore.Edit{edit}, docstore.WriteOptions{Replicated: true})
	if err == nil {
		err = results[0].Err
	}
	w.written(err, edit.Deleted, "merged")
}

func (w *world) written(err error, deleted bool, what string) {
	switch {
	case errors.As(err, new(*replicator.ParseError)):
		w.count("refused")
	case w.must(err, docstore.ErrConflict, docstore.ErrDatabaseNotFound):
		if deleted {
			what = "deleted"
		}
		w.count(what)
	}
}

// deleter deletes databases, and creates them again.
func (w *world) deleter() {
	for range worldSteps / 10 {
		w.pause(2 * time.Second)
		p, name := pick(w, w.processes), pick(w, worldDatabases)
		db, err := p.docs.Database(w.Context(), name)
		if !w.must(err) {
			return
		}
		w.must(db.Delete(w.Context()))
		w.count("database deleted")
		w.pause(300 * time.Millisecond)
		_, err = pick(w, w.processes).docs.Create(w.Context(), name)
		w.must(err)
	}
}

// runner runs one job after another.
func (w *world) runner(ctx context.Context) {
	for ctx.Err() == nil {
		run, err := accept(ctx, pick(w, w.processes).jobs)
		if err != nil {
			w.must(err, context.Canceled)
			return
		}
		switch err := w.work(run); {
		case errors.Is(err, fdbjobs.ErrHalt):
			w.count("halted")
			w.must(run.Release(w.Context()))
		default:
			w.must(err)
		}
	}
}

// work runs one job, within the job's timeout.
func (w *world) work(run *jobs.Run) error {
	ctx := w.Context()
	if err := run.Start(ctx, "node", "pid"); err != nil {
		return err
	}
	copied := func() {}
	if id := run.Job().Args.ReplicationID; id != "" {
		err := run.Identify(ctx, parsedID(id))
		var collision *jobs.Collision
		if errors.As(err, &collision) {
			w.count("collided")
			if collision.Transient && !run.Job().Transient() {
				return run.Crash(ctx, time.Now().Add(time.Second), 1, replicator.TextFault("conflict", collision.Error()))
			}
			return run.Fail(ctx, &replicator.Fault{Code: replicator.FaultCollision, Word: jobs.CollisionCode, Text: collision.Error()})
		}
		if err != nil {
			return err
		}
		copied = w.copying(id, run)
		defer copied()
	}
	for range w.intN(4) {
		w.pause(time.Second)
		if !run.Job().State.BehindSince.IsZero() {
			w.count("behind")
		}
		if err := run.Update(ctx, w.progress); err != nil {
			if errors.Is(err, jobs.ErrEnding) {
				w.pause(2 * time.Second) // it writes its last checkpoint
				w.count("ended after its job")
			}
			return err
		}
		if w.intN(6) == 0 {
			if err := run.ListRefused(ctx, []replicator.Failure{{ID: "x"}}, 1); err != nil {
				return err
			}
			w.count("refused by a target")
		}
	}
	end := []struct {
		what string
		do   func() error
	}{
		{"completed", func() error { return run.Complete(ctx, nil) }},
		{"failed", func() error { return run.Fail(ctx, replicator.TextFault("", "failed")) }},
		{"crashed", func() error {
			return run.Crash(ctx, time.Now().Add(time.Second), run.Job().State.ErrorCount+1, replicator.TextFault("", "crashed"))
		}},
		{"stopped", func() error { return run.Stop(ctx, "", "", nil) }},
		{"parked", func() error { return w.park(run) }},
		{"died", func() error { return nil }},
	}[w.intN(6)]
	copied()
	err := end.do()
	if err == nil {
		w.count(end.what)
	}
	return err
}

// park parks a job, whose source may change meanwhile.
func (w *world) park(run *jobs.Run) error {
	at := atSource()
	if name := run.Job().Args.MirroredDatabase; name != "" {
		at.Database = name
	}
	err := run.Parking(w.Context(), at)
	for err == nil && w.intN(3) == 0 {
		w.pause(time.Second)
		err = run.Update(w.Context(), w.progress)
	}
	if err == nil {
		_, err = run.Park(w.Context(), nil)
	}
	return err
}

// copying notes that a run copies, until its context ends or the returned function is called. Of the runs with a
// replication id one copies at a time.
func (w *world) copying(id string, run *jobs.Run) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if run.Context().Err() != nil {
		return func() {} // it has noticed late that it may begin
	}
	if other := w.copies[id]; other != nil {
		w.Errorf("%s copies, as does %s of %s", run.Job().ID, other.Job().ID, id)
	}
	w.copies[id] = run
	ended := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.copies[id] == run {
			delete(w.copies, id)
		}
	}
	stop := context.AfterFunc(run.Context(), ended)
	return func() {
		stop()
		ended()
	}
}

// progress changes the state of a run, which may have recovered or be stuck.
func (w *world) progress(s *replicator.JobState) {
	s.Stats.DocsRead++
	s.Stats.DocWriteFailures++ // the job may have failures
	if s.ErrorCount > 0 && w.intN(4) == 0 {
		s.ErrorCount = 0
		w.count("recovered")
	}
	s.Activity = &replicator.Activity{Doing: replicator.DoingCopying, Since: time.Now()}
	if w.intN(2) == 0 {
		s.Activity.Since = s.Activity.Since.Add(-time.Duration(1+w.intN(3)) * time.Second)
		w.count("stuck")
	}
	if s.Mirrored != nil { // what its mirror counts depends on that
		s.Activity.Doing = pick(w, []replicator.Doing{
			replicator.DoingStarting, replicator.DoingCopying, replicator.DoingWaiting, replicator.DoingRetrying, replicator.DoingFinishing,
		})
	}
}

// compare checks that exactly the documents that need a job have one.
func (w *world) compare() {
	all := w.allJobs()
	reserved := map[string]bool{}
	for _, id := range w.reservations() {
		assert.Contains(w, all, id, "a reservation is left of a job that is gone")
		assert.False(w, reserved[id], "two reservations of %s", id)
		reserved[id] = true
	}
	assert.Empty(w, w.deletions())
	w.compareTroubles(all)
	for _, name := range worldDatabases {
		db := w.database(name)
		for row, err := range db.AllDocs(w.Context(), docstore.AllDocsOptions{Documents: true}) {
			require.NoError(w, err)
			id := replicator.PersistentJobID(db.Instance(), row.ID)
			w.agree(row.Document, all[id])
			delete(all, id)
		}
	}
	for id, job := range all {
		assert.True(w, job.Transient(), "%s is a job, and no document wants it", id)
	}
}

// compareTroubles checks that the indexes of jobs in trouble agree with the jobs.
func (w *world) compareTroubles(all map[string]*jobs.Job) {
	crashing, stuck, behind := map[string]int64{}, map[string]int64{}, map[string]int64{}
	raw, err := kv.TransactValue(w.Context(), w.db, func(tx kv.Transaction) ([]*fdbjobs.Job, error) {
		var reads []kv.Future[*fdbjobs.Job]
		for id := range all {
			reads = append(reads, w.store.Jobs.Read(tx.Snapshot(), id))
		}
		return kv.All(reads)
	})
	require.NoError(w, err)
	for _, job := range raw {
		var state replicator.JobState
		require.NoError(w, json.Unmarshal(job.State, &state))
		if state.Definition != all[job.ID].Args.Definition || job.Tag == "paused" {
			continue // it has none of these entries
		}
		if !state.CrashingSince.IsZero() {
			crashing[job.ID] = state.CrashingSince.Unix()
			assert.NotEqual(w, fdbjobs.Finished, job.Status, job.ID)
		}
		if !state.StuckSince.IsZero() {
			stuck[job.ID] = state.StuckSince.Unix()
			assert.NotEqual(w, fdbjobs.Finished, job.Status, job.ID)
		}
		if !state.BehindSince.IsZero() {
			behind[job.ID] = state.BehindSince.Unix()
		}
		assert.False(w, state.State == replicator.StateCrashing && state.CrashingSince.IsZero(), "%s", job.State)
	}
	for _, row := range w.parkedRows() {
		assert.Contains(w, all, row.JobID, "a row is left of a parked job that is gone")
	}
	assert.Equal(w, crashing, w.times(replicator.MarkFailing))
	assert.Equal(w, stuck, w.times(replicator.MarkStuck))
	assert.Equal(w, behind, w.times(replicator.MarkBehind))
	for id := range w.rows("records") {
		assert.Contains(w, all, id, "a record is left of a job that is gone")
	}
	for id := range w.times(replicator.MarkDocumentsRefused) {
		if assert.Contains(w, all, id) {
			assert.NotEqual(w, fdbjobs.Finished, all[id].Status)
		}
	}
}

// allJobs returns the jobs as the job layer has them.
func (w *world) allJobs() map[string]*jobs.Job {
	raw, err := kv.TransactValue(w.Context(), w.db, func(tx kv.Transaction) ([]*fdbjobs.Job, error) {
		return w.store.Jobs.List(tx.Snapshot(), fdbjobs.Selection{
			Parts: jobs.Everywhere(fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished),
		}, fdbjobs.Position{}, 1_000)
	})
	require.NoError(w, err)
	all := map[string]*jobs.Job{}
	for _, job := range raw {
		all[job.ID] = w.get(job.ID)
	}
	return all
}

// agree checks a document and its job, nil if there is none.
func (w *world) agree(doc *docstore.Document, job *jobs.Job) {
	parsed, err := replicator.ParseText(doc.ID, doc.Body, replicator.ParseOptions{})
	require.NoError(w, err)
	what := fmt.Sprintf("%s %s %s", doc.ID, doc.Rev, doc.Body)
	switch {
	case job == nil:
		assert.True(w, parsed.Replication == nil || parsed.State.Terminal(), what)
	case job.Status == fdbjobs.Finished:
		assert.True(w, parsed.State.Terminal(), "the job has ended: %s", what)
	default: // also if a user has written a terminal state while the job runs
		assert.True(w, job.Args.Replication.Equal(parsed.Replication), what)
		assert.Equal(w, parsed.Paused, job.Args.Paused != nil, what)
		if parsed.Paused {
			assert.Equal(w, fdbjobs.Pending, job.Status, what)
		}
	}
}
