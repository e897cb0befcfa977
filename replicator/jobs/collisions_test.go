package jobs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/replicator"
	"settee/replicator/jobs"
)

// newcomer is a job that wants a replication id that another job may hold.
type newcomer struct {
	transient bool
	// begin adds the job and returns a function that reserves the id.
	begin func(b *bundle, name replicator.ID) (reserve func() error)
}

// newcomers has all kinds of newcomers. A transient job whose id is known reserves it when it is
// added, all others when they run.
var newcomers = map[string]newcomer{
	"posted": {true, func(b *bundle, _ replicator.ID) func() error {
		return func() error {
			_, err := b.store.Requests.Replicate(b.Context(), b.definition(""), new("joe"))
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

// identifier accepts the only job that is due and returns a function that reserves an id for it.
func (b *bundle) identifier(name replicator.ID) func() error {
	run := b.accept()
	return func() error { return run.Identify(b.Context(), name) }
}

// owners has the states of a job that has reserved an id before a newcomer wants it. Each makes a
// transient job or a document's, and says whether its reservation holds, also against jobs of other users.
var owners = map[string]struct {
	holds     bool
	documents bool // only for jobs of documents
	prepare   func(b *bundle, owner string)
}{
	"running":             {true, false, func(b *bundle, _ string) { require.NoError(b, b.opened().Update(b.Context(), nothing)) }},
	"crashing":            {true, false, func(b *bundle, _ string) { b.crash(b.opened()) }},
	"running" + unopened:  {true, false, func(b *bundle, _ string) { b.identified() }},
	"crashing" + unopened: {true, false, func(b *bundle, _ string) { b.crash(b.identified()) }},
	"completed":           {false, false, func(b *bundle, _ string) { require.NoError(b, b.accept().Complete(b.Context(), nil)) }},
	"failed": {false, false, func(b *bundle, _ string) {
		require.NoError(b, b.accept().Fail(b.Context(), replicator.TextFault("", "no")))
	}},
	"cancelled": {false, false, func(b *bundle, owner string) { b.cancelOwner(owner) }},
	"cancelled while it ran": {false, false, func(b *bundle, owner string) {
		run := b.accept()
		b.cancelOwner(owner)
		require.NoError(b, run.Release(b.Context()))
	}},
	"of a deleted database": {false, true, func(b *bundle, _ string) { require.NoError(b, b.database("x/_replicator").Delete(b.Context())) }},
	"running in a deleted database": {false, true, func(b *bundle, _ string) {
		run := b.accept()
		b.recreate("x/_replicator", false)
		require.NoError(b, run.Release(b.Context()))
	}},
	"of a database that is there anew": {false, true, func(b *bundle, _ string) { b.recreate("x/_replicator", true) }},
	"with another definition": {false, true, func(b *bundle, _ string) {
		b.put("x/_replicator", "old", b.document("x/_replicator", "old")["_rev"].(string), `"doc_ids": ["x"]`)
		b.crash(b.accept())
	}},
}

// unopened is in the names of states in which the job has not opened its databases.
const unopened = ", not opened"

// identified accepts a job whose run reserves its replication id.
func (b *bundle) identified() *jobs.Run {
	b.Helper()
	run := b.accept()
	require.NoError(b, run.Identify(b.Context(), parsedID(run.Job().ReplicationID())))
	return run
}

// opened accepts a job whose run has opened its databases.
func (b *bundle) opened() *jobs.Run {
	b.Helper()
	run := b.identified()
	require.NoError(b, run.Opened(b.Context()))
	return run
}

func (b *bundle) crash(run *jobs.Run) {
	b.Helper()
	require.NoError(b, run.Crash(b.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("", "boom")))
}

func (b *bundle) cancelOwner(owner string) {
	b.Helper()
	if owner == "document" {
		b.remove("x/_replicator", "old", b.document("x/_replicator", "old")["_rev"].(string))
		return
	}
	b.cancel(b.definition("").JobID("alice"))
}

func (b *bundle) recreate(name string, again bool) {
	b.Helper()
	require.NoError(b, b.database(name).Delete(b.Context()))
	if again {
		b.create(name)
	}
}

// A job keeps its id until it has ended, in every state.
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
						job, err := b.store.Requests.Replicate(t.Context(), b.definition(""), new("alice"))
						require.NoError(t, err)
						want.JobID, want.ReplicationID, want.User = job.ID, job.ReplicationID(), new("alice")
					} else {
						b.put("x/_replicator", "old", "", "")
						want.JobID, want.Database, want.DocID = b.jobID("x/_replicator", "old"), "x/_replicator", "old"
						want.ReplicationID = b.get(want.JobID).ReplicationID()
					}
					require.Equal(t, want.JobID, b.reservations()[want.ReplicationID], "it is reserved as soon as it is known")
					owner.prepare(b, kind)
					name := parsedID(want.ReplicationID)
					reserve := comer.begin(b, name)
					err := reserve()
					stranger := kind == "transient" || what == "posted"
					if !owner.holds || strings.HasSuffix(state, unopened) && stranger {
						require.NoError(t, err)
						require.NotEqual(t, want.JobID, b.reservations()[want.ReplicationID])
						return
					}
					var collision *jobs.Collision
					require.ErrorAs(t, err, &collision)
					require.Equal(t, &want, collision)
					require.Equal(t, want.JobID, b.reservations()[want.ReplicationID])
				})
			}
		}
	}
}

// A pending job holds its id: a job of the same user that runs first does not get it.
func TestCollisionWithPendingJob(t *testing.T) {
	t.Parallel()
	for what, comer := range newcomers {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.create(repdb)
			b.db.on.Store(true)
			// The newcomer is running when the owner is added.
			wanted, err := b.definition("").ID(serverUUID, "")
			require.NoError(t, err)
			var reserve func() error
			if what == "document" {
				b.put(repdb, "new", "", `"filter": "f/t"`) // a document without a filter would reserve the id first
				reserve = b.identifier(wanted)
			} else {
				reserve = comer.begin(b, wanted)
			}
			owner := b.replicate("")
			require.Equal(t, fdbjobs.Pending, b.get(owner.ID).Status)
			if what == "posted" { // by another user
				require.NoError(t, reserve())
				return
			}
			var collision *jobs.Collision
			require.ErrorAs(t, reserve(), &collision)
			require.Equal(t, owner.ID, collision.JobID)
		})
	}
}

// A job that has never opened its databases, such as one with a wrong password, holds no id against another user's. The first
// one that has opened them holds it.
func TestOnlyOpenedJobsHoldIDsAgainstOthers(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"mallory", "alice"} {
		t.Run(first+" opens", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			runs := map[string]*jobs.Run{}
			for _, user := range []string{"mallory", "alice"} {
				_, err := b.store.Requests.Replicate(t.Context(), b.definition(""), new(user))
				require.NoError(t, err)
				runs[user] = b.identified()
			}
			id := parsedID(runs["alice"].Job().ReplicationID())
			second := map[string]string{"mallory": "alice", "alice": "mallory"}[first]
			require.NoError(t, runs[first].Opened(t.Context()))
			require.NoError(t, runs[first].Opened(t.Context()), "again")
			var collision *jobs.Collision
			require.ErrorAs(t, runs[second].Opened(t.Context()), &collision)
			require.Equal(t, new(first), collision.User)
			require.ErrorAs(t, runs[second].Identify(t.Context(), id), &collision)
			require.Equal(t, runs[first].Job().ID, b.reservations()[id.String()])

			// With another id it has to open them again.
			other := replicator.ID{Base: strings.Repeat("e", 32)}
			require.NoError(t, runs[first].Identify(t.Context(), other))
			require.False(t, runs[first].Job().State.Opened)
			require.NoError(t, runs[second].Identify(t.Context(), other))
		})
	}
}

// A request that joins a job whose id another user's job took has the id again, or a collision.
func TestReplicateTakesTheIDOfAJoinedJobBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	post := func(user string) (*jobs.Job, error) {
		return b.store.Requests.Replicate(t.Context(), b.definition(""), new(user))
	}
	alices, err := post("alice")
	require.NoError(t, err)
	bobs, err := post("bob")
	require.NoError(t, err)
	id := alices.ReplicationID()
	require.Equal(t, bobs.ID, b.get(id).ID, "alice's job has opened nothing")
	b.cancel(bobs.ID)
	b.gone(id)
	for range 2 {
		joined, err := post("alice")
		require.NoError(t, err)
		require.Equal(t, alices.ID, joined.ID)
		require.Equal(t, alices.ID, b.get(id).ID)
		_, err = post("bob")
		require.NoError(t, err)
	}
	for range 2 {
		if run := b.accept(); run.Job().ID == bobs.ID {
			require.NoError(t, run.Identify(t.Context(), parsedID(id)))
			require.NoError(t, run.Opened(t.Context()))
		}
	}
	var collision *jobs.Collision
	_, err = post("alice")
	require.ErrorAs(t, err, &collision)
	require.Equal(t, bobs.ID, collision.JobID)
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
	require.Equal(t, "the replication "+name+" exists already, posted without a user", byUser.Name())
	byUser.User = new("ann")
	require.Equal(t, "the replication "+name+" exists already, posted by the user `ann`", byUser.Name())
	require.Equal(t, "the replication "+name+" exists already", byUser.Error())
}

// Two jobs reserve one id at the same time, on a store with all faults. One of them gets it and the
// other one gets a Collision, whatever happens to the holder at that time.
func TestCollisionRace(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	meanwhile := map[string]func(w *world, run *jobs.Run) error{ // happens to the holder
		"nothing": func(*world, *jobs.Run) error { return nil },
		"stopped": func(w *world, run *jobs.Run) error { return run.Stop(w.Context(), "", "", nil) },
		"crashed": func(w *world, run *jobs.Run) error {
			return run.Crash(w.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("", "x"))
		},
		"completed": func(w *world, run *jobs.Run) error { return run.Complete(w.Context(), nil) },
		"failed":    func(w *world, run *jobs.Run) error { return run.Fail(w.Context(), replicator.TextFault("", "x")) },
		"deleted": func(w *world, run *jobs.Run) error {
			if run.Job().Transient() {
				_, err := w.processes[0].jobs.Requests.Cancel(w.Context(), run.Job().ID, nil)
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
				for seed := range uint64(24) { // with eight, one kind of job may lose each race
					testkit.RunBubble(t, fmt.Sprint(what, kinds, seed), func(t *testing.T) {
						first := newWorld(t, seed).race(kinds, slices.Contains([]string{"nothing", "stopped", "crashed"}, what), then)
						mu.Lock()
						defer mu.Unlock()
						won[fmt.Sprint(kinds, first)]++
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

// race lets two jobs, each transient or not, reserve one id, and then calls then for the holder,
// whose reservation holds afterwards or not. It returns the index of the first holder.
func (w *world) race(transient [2]bool, holds bool, then func(*world, *jobs.Run) error) (first int) {
	ctx := w.Context()
	var runs [2]*jobs.Run
	for i := range runs {
		p := w.processes[i]
		if transient[i] {
			_, err := p.jobs.Requests.Replicate(ctx, w.definition(`"filter": "f/t"`), new(fmt.Sprint("user", i)))
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
				errs[i] = run.Opened(ctx)
			}
			if errs[i] == nil {
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
		// The reservation of the first holder was over when the second job came.
		require.NoError(w, errs[1-first])
		return first
	}
	require.ErrorAs(w, errs[1-first], &collision)
	require.Equal(w, winner.ID, collision.JobID)
	require.Equal(w, winner.Transient(), collision.Transient)
	require.NotEqual(w, loser.ID, w.reservations()[id('a').String()])
	return first
}
