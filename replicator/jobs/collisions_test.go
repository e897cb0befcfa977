package jobs_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/replicator"
	"settee/replicator/jobs"
)

// newcomer is a job that comes to want a replication id, and how it asks for it.
type newcomer struct {
	transient bool
	// begin makes one, and returns what asks for the id.
	begin func(b *bundle, name replicator.ID) (claim func() error)
}

// newcomers are all kinds of them. A transient job whose id is known asks when it is added, all
// others when they run.
var newcomers = map[string]newcomer{
	"posted": {true, func(b *bundle, _ replicator.ID) func() error {
		return func() error {
			_, err := b.store.Replicate(b.Context(), b.definition(""), new("joe"))
			return err
		}
	}},
	"posted, with a filter": {true, func(b *bundle, name replicator.ID) func() error {
		b.replicate(`"filter": "f/t"`)
		return b.identifier(name)
	}},
	"document": {false, func(b *bundle, name replicator.ID) func() error {
		b.put(repdb, "new", "", "")
		return b.identifier(name)
	}},
	"document, with a filter": {false, func(b *bundle, name replicator.ID) func() error {
		b.put(repdb, "new", "", `"filter": "f/t"`)
		return b.identifier(name)
	}},
}

// identifier takes the one job that is due, and returns what claims an id for it.
func (b *bundle) identifier(name replicator.ID) func() error {
	run := b.accept()
	return func() error { return run.Identify(b.Context(), name) }
}

// owners are what can have become of a job that has claimed an id before a newcomer wants it:
// each prepares one, which is a user's or a document's, and says whether the claim holds.
var owners = map[string]struct {
	holds     bool
	documents bool // only these
	prepare   func(b *bundle, owner string)
}{
	"running":   {true, false, func(b *bundle, _ string) { require.NoError(b, b.accept().Update(b.Context(), nothing)) }},
	"crashing":  {true, false, func(b *bundle, _ string) { b.crash() }},
	"completed": {false, false, func(b *bundle, _ string) { require.NoError(b, b.accept().Complete(b.Context(), nil)) }},
	"failed":    {false, false, func(b *bundle, _ string) { require.NoError(b, b.accept().Fail(b.Context(), "", "no")) }},
	"cancelled": {false, false, func(b *bundle, owner string) { b.cancel(owner) }},
	"cancelled while it ran": {false, false, func(b *bundle, owner string) {
		b.accept()
		b.cancel(owner)
	}},
	"of a deleted database":            {false, true, func(b *bundle, _ string) { require.NoError(b, b.database("x/_replicator").Delete(b.Context())) }},
	"running in a deleted database":    {false, true, func(b *bundle, _ string) { b.accept(); b.recreate("x/_replicator", false) }},
	"of a database that is there anew": {false, true, func(b *bundle, _ string) { b.recreate("x/_replicator", true) }},
	"with another definition": {false, true, func(b *bundle, _ string) {
		b.put("x/_replicator", "old", b.document("x/_replicator", "old")["_rev"].(string), `"doc_ids": ["x"]`)
		b.crash()
	}},
}

func (b *bundle) crash() {
	b.Helper()
	require.NoError(b, b.accept().Crash(b.Context(), time.Now().Add(time.Hour), 1, "", "boom"))
}

func (b *bundle) cancel(owner string) {
	b.Helper()
	if owner == "document" {
		b.remove("x/_replicator", "old", b.document("x/_replicator", "old")["_rev"].(string))
		return
	}
	_, err := b.store.Cancel(b.Context(), b.definition("").JobID("alice"))
	require.NoError(b, err)
}

func (b *bundle) recreate(name string, again bool) {
	b.Helper()
	require.NoError(b, b.database(name).Delete(b.Context()))
	if again {
		b.create(name)
	}
}

// Whoever has claimed an id keeps it for as long as its job has not ended, whatever state that
// is in, and loses it then.
func TestCollisions(t *testing.T) {
	t.Parallel()
	for state, owner := range owners {
		for _, kind := range []string{"transient", "document"} {
			if owner.documents && kind != "document" {
				continue
			}
			for what, comer := range newcomers {
				t.Run(fmt.Sprintf("%s %s, %s", kind, state, what), func(t *testing.T) {
					t.Parallel()
					b := setup(t)
					b.db.on.Store(true)
					b.create(repdb)
					b.create("x/_replicator")
					want := jobs.Collision{Transient: kind == "transient"}
					if kind == "transient" {
						job, err := b.store.Replicate(t.Context(), b.definition(""), new("alice"))
						require.NoError(t, err)
						want.JobID, want.ReplicationID = job.ID, job.ReplicationID()
					} else {
						b.put("x/_replicator", "old", "", "")
						want.JobID, want.Database, want.DocID = b.jobID("x/_replicator", "old"), "x/_replicator", "old"
						want.ReplicationID = b.get(want.JobID).ReplicationID()
					}
					require.Equal(t, want.JobID, b.claims()[want.ReplicationID], "it is claimed as soon as it is known")
					owner.prepare(b, kind)
					name, err := replicator.ParseID(want.ReplicationID)
					require.NoError(t, err)
					claim := comer.begin(b, name)
					err = claim()
					if !owner.holds {
						require.NoError(t, err)
						require.NotEqual(t, want.JobID, b.claims()[want.ReplicationID])
						return
					}
					var collision *jobs.Collision
					require.ErrorAs(t, err, &collision)
					require.Equal(t, &want, collision)
					require.Equal(t, want.JobID, b.claims()[want.ReplicationID])
				})
			}
		}
	}
}

// One that is queued has its id as well: nobody gets it for coming to run first.
func TestCollisionWithPendingJob(t *testing.T) {
	t.Parallel()
	for what, comer := range newcomers {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.create(repdb)
			b.db.on.Store(true)
			// The newcomer runs already when the owner is added.
			wanted, err := b.definition("").ID(serverUUID, "")
			require.NoError(t, err)
			var claim func() error
			if what == "document" {
				b.put(repdb, "new", "", `"filter": "f/t"`) // any other would have the id first
				claim = b.identifier(wanted)
			} else {
				claim = comer.begin(b, wanted)
			}
			owner, err := b.store.Replicate(t.Context(), b.definition(""), new("alice"))
			require.NoError(t, err)
			require.Equal(t, fdbjobs.Pending, b.get(owner.ID).Status)
			var collision *jobs.Collision
			require.ErrorAs(t, claim(), &collision)
			require.Equal(t, owner.ID, collision.JobID)
		})
	}
}

func TestExplainCollision(t *testing.T) {
	t.Parallel()
	document := func(instance, db, id string) *jobs.Job {
		return &jobs.Job{ID: replicator.PersistentJobID(instance, id), Args: &replicator.JobArgs{Database: &db, DocID: &id}}
	}
	const name = "721cacbc2676c193091b9dd4825d86c2+continuous"
	owner := func(job *jobs.Job) *jobs.Collision {
		return &jobs.Collision{ReplicationID: name, JobID: job.ID, Database: *job.Args.Database, DocID: *job.Args.DocID}
	}
	w1, w4 := document("i", "_replicator", "w1"), document("i", "_replicator", "w4")
	transient := &jobs.Job{ID: "abc", Args: new(replicator.JobArgs)}
	// As recorded in exchange 092.
	require.Equal(t, "Replication `"+name+"` specified by document `w4` already started, triggered by document `w1` from db `_replicator`",
		owner(w1).Explain(w4))
	for _, stranger := range []*jobs.Job{document("j", "x/_replicator", "w4"), document("j", "_replicator", "w4")} {
		require.Equal(t, "Replication `"+name+"` specified by document `w4` already started, triggered by a document from another db",
			owner(w1).Explain(stranger), "also of one that was there under that name before")
	}
	require.Equal(t, "the replication "+name+" exists already", owner(w1).Explain(transient))
	require.Equal(t, "the replication "+name+" exists already, triggered by document `w1` from db `_replicator`", owner(w1).Name())
	byUser := &jobs.Collision{ReplicationID: name, JobID: "abc", Transient: true}
	require.Equal(t, "Replication `"+name+"` specified by document `w4` already running as transient replication, started via `_replicate` API endpoint",
		byUser.Explain(w4))
	require.Equal(t, "the replication "+name+" exists already", byUser.Explain(transient))
	require.Equal(t, "the replication "+name+" exists already", byUser.Name())
}

// Two jobs want one id at the same moment, on a store with all faults: one of them has it and
// the other one learns so, whoever commits first. What becomes of an owner at that moment
// changes no more than who that is.
func TestCollisionRace(t *testing.T) {
	t.Parallel()
	meanwhile := map[string]func(w *world, run *jobs.Run) error{ // to the one that has it
		"nothing": func(*world, *jobs.Run) error { return nil },
		"stopped": func(w *world, run *jobs.Run) error { return run.Stop(w.Context(), nil) },
		"crashed": func(w *world, run *jobs.Run) error {
			return run.Crash(w.Context(), time.Now().Add(time.Hour), 1, "", "x")
		},
		"completed": func(w *world, run *jobs.Run) error { return run.Complete(w.Context(), nil) },
		"failed":    func(w *world, run *jobs.Run) error { return run.Fail(w.Context(), "", "x") },
		"deleted": func(w *world, run *jobs.Run) error {
			if run.Job().Transient() {
				_, err := w.processes[0].jobs.Cancel(w.Context(), run.Job().ID)
				return err
			}
			return w.database(*run.Job().Args.Database).Delete(w.Context())
		},
	}
	var mu sync.Mutex
	won := map[string]int{}
	t.Run("seeds", func(t *testing.T) {
		for what, then := range meanwhile {
			for _, kinds := range [][2]bool{{true, true}, {true, false}, {false, false}} {
				for seed := range uint64(24) { // of eight, one kind of job may lose each race
					t.Run(fmt.Sprint(what, kinds, seed), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							first := newWorld(t, seed).race(kinds, slices.Contains([]string{"nothing", "stopped", "crashed"}, what), then)
							mu.Lock()
							defer mu.Unlock()
							won[fmt.Sprint(kinds, first)]++
						})
					})
				}
			}
		}
	})
	for _, kinds := range [][2]bool{{true, true}, {true, false}, {false, false}} {
		for first := range 2 {
			assert.NotZero(t, won[fmt.Sprint(kinds, first)], "%v %d", kinds, first)
		}
	}
	t.Log(won)
}

// race lets a job of each of two kinds, transient or not, claim one id, and one that has it go
// on: its claim holds, or not. It returns which job it was, the former if it was both.
func (w *world) race(transient [2]bool, holds bool, then func(*world, *jobs.Run) error) (first int) {
	ctx := w.Context()
	var runs [2]*jobs.Run
	for i := range runs {
		p := w.processes[i]
		if transient[i] {
			_, err := p.jobs.Replicate(ctx, w.definition(`"filter": "f/t"`), new(fmt.Sprint("user", i)))
			require.NoError(w, err)
		} else {
			w.create(worldDatabases[i])
			w.bundle.put(worldDatabases[i], "d", "", `"filter": "f/t"`)
		}
		var err error
		runs[i], err = accept(ctx, p.jobs)
		require.NoError(w, err)
		require.NoError(w, runs[i].Start(ctx, "node", "pid"))
	}
	var errs, after [2]error
	var racing sync.WaitGroup
	for i, run := range runs {
		racing.Go(func() {
			w.pause(20 * time.Millisecond)
			if errs[i] = run.Identify(ctx, id('a')); errs[i] == nil {
				after[i] = then(w, run)
			}
		})
	}
	racing.Wait()
	if errs[0] != nil {
		first = 1
	}
	require.NoError(w, errs[first])
	require.NoError(w, after[first])
	winner, loser := runs[first].Job(), runs[1-first].Job()
	var collision *jobs.Collision
	if !holds && !errors.As(errs[1-first], &collision) {
		// The claim of one was over when the other one came.
		require.NoError(w, errs[1-first])
		return first
	}
	require.ErrorAs(w, errs[1-first], &collision)
	require.Equal(w, winner.ID, collision.JobID)
	require.Equal(w, winner.Transient(), collision.Transient)
	require.Empty(w, loser.ReplicationID())
	require.NotEqual(w, loser.ID, w.claims()[id('a').String()])
	return first
}
