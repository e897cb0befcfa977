package jobs_test

import (
	"context"
	"errors"
	"fmt"
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
	"settee/replicator"
	"settee/replicator/jobs"
)

// TestRandomMirrors runs mirrors whose documents change, are deleted and written again, whose runs end anywhere, and whose
// jobs run to all kinds of ends, on a store with all faults. In the end what is counted and listed of each mirror must agree with
// the jobs, and nothing is left of mirrors that are gone.
func TestRandomMirrors(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]int{}
	ran := seeds.Each(t, 0, 2, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			w := mirrorWorld{newWorld(t, seed)}
			w.run()
			mu.Lock()
			defer mu.Unlock()
			for what, n := range w.counts {
				seen[what] += n
			}
		})
	})
	t.Log(seen)
	if ran < 80 {
		return
	}
	for _, what := range []string{
		"written", "deleted", "database deleted", "mirror completed", "mirror failed", "mirror died", "mirror stopped", "crashed", "parked",
		"woken", "halted", "collided", "added", "started", "ended", "to be deleted", "redefined", "events", "lost", "paused",
	} {
		assert.NotZero(t, seen[what], what)
	}
}

type mirrorWorld struct{ *world }

func (w mirrorWorld) run() {
	w.create("_replicator")
	ctx, cancel := context.WithCancel(w.Context())
	var writing, others sync.WaitGroup
	for range 2 {
		writing.Go(w.writer)
	}
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
	<-time.After(2 * time.Minute) // for upkeep
	cancel()
	others.Wait()
	for _, task := range w.store.Upkeep.Tasks() { // a mirror may have ended since upkeep
		w.must(task.Run(w.Context(), nil))
	}
	w.compare()
	w.check()
}

func (w mirrorWorld) name() string { return fmt.Sprint("db", w.intN(8)) }

// names returns some names.
func (w mirrorWorld) names() (names []string) {
	for i := range 8 {
		if w.intN(3) == 0 {
			names = append(names, fmt.Sprint("db", i))
		}
	}
	return names
}

func (w mirrorWorld) body() []byte {
	if w.intN(4) == 0 { // it collides with the job of a database
		return fmt.Appendf(nil, `{"source": "http://a.example/db%d", "target": "http://b.example/p-db%[1]d", "continuous": true, "create_target": true}`, w.intN(8))
	}
	return fmt.Appendf(nil, `{"source": "http://a.example/", "target": "http://b.example/", "continuous": %v,
		"mirror": {"prefix": "%s", "include": ["db%d", "db*"]}, "paused": %v}`, w.intN(3) > 0, pick(w.world, []string{"p-", "q-"}), w.intN(3), w.intN(4) == 0)
}

// writer writes and deletes documents, wakes jobs, and publishes events to mirrors.
func (w mirrorWorld) writer() {
	for range worldSteps {
		w.pause(time.Second)
		p := pick(w.world, w.processes)
		switch w.intN(8) {
		case 0, 1:
			n, err := p.jobs.Watches.Wake(w.Context(), sourceServer, w.names())
			if w.must(err) && n > 0 {
				w.count("woken")
			}
			continue
		case 2, 3:
			w.must(p.jobs.Watches.Publish(w.Context(), "http://a.example/", []jobs.MirrorEvent{
				{Database: w.name(), Type: jobs.EventCreated}, {Type: jobs.EventMissed}, {Database: w.name() + "x", Type: jobs.EventDeleted},
			}))
			continue
		case 4:
			if w.intN(6) > 0 {
				continue
			}
			db, err := p.docs.Database(w.Context(), "_replicator")
			if !w.must(err, docstore.ErrDatabaseNotFound) {
				continue
			}
			w.must(db.Delete(w.Context()), docstore.ErrDatabaseNotFound)
			w.count("database deleted")
			_, err = pick(w.world, w.processes).docs.Create(w.Context(), "_replicator")
			w.must(err, docstore.ErrDatabaseExists) // the other writer may have been first
			continue
		}
		db, err := p.docs.Database(w.Context(), "_replicator")
		if !w.must(err, docstore.ErrDatabaseNotFound) {
			continue
		}
		edit := docstore.Edit{ID: fmt.Sprint("d", w.intN(3)), Body: docjson.Must(w.body()), Deleted: w.intN(4) == 0}
		doc, err := db.Get(w.Context(), edit.ID, docstore.GetOptions{})
		if err == nil {
			edit.Rev = doc.Rev
		} else if !w.must(err, docstore.ErrNotFound, docstore.ErrDatabaseNotFound) && !errors.Is(err, docstore.ErrNotFound) {
			continue
		}
		_, err = db.Put(w.Context(), edit)
		w.written(err, edit.Deleted, "written")
	}
}

// runner runs one job after another.
func (w mirrorWorld) runner(ctx context.Context) {
	for ctx.Err() == nil {
		run, err := accept(ctx, pick(w.world, w.processes).jobs)
		if err != nil {
			w.must(err, context.Canceled)
			return
		}
		if run.Job().IsMirror() {
			err = w.mirror(run)
		} else {
			err = w.work(run)
		}
		switch {
		case errors.Is(err, fdbjobs.ErrHalt):
			w.count("halted")
			w.must(run.Release(w.Context()))
		default:
			w.must(err)
		}
	}
}

// mirror runs a mirror to some end. Its source has other databases each time that it looks.
func (w mirrorWorld) mirror(run *jobs.Run) error {
	ctx := w.Context()
	if err := run.Start(ctx, "node", "pid"); err != nil {
		return err
	}
	id, err := run.Job().Args.Replication.ID(serverUUID, "")
	require.NoError(w, err)
	var collision *jobs.Collision
	switch err := run.Identify(ctx, id); {
	case errors.As(err, &collision):
		return run.Fail(ctx, &replicator.Fault{Code: replicator.FaultCollision, Text: collision.Error()})
	case err != nil:
		return err
	}
	if err := asMirror(run).Subscribe(ctx); err != nil {
		return err
	}
	if w.intN(4) > 0 { // it may be told names then
		if err := run.Update(ctx, func(state *replicator.JobState) {
			state.Mirror = &replicator.MirrorProgress{LastLook: time.Now()}
		}); err != nil {
			return err
		}
	}
	for range w.intN(20) {
		w.pause(time.Second)
		if err := w.step(run); err != nil {
			return err
		}
	}
	switch w.intN(8) {
	case 0:
		w.count("mirror completed")
		return run.Complete(ctx, nil)
	case 1:
		w.count("mirror failed")
		return run.Fail(ctx, replicator.TextFault("error", "it cannot be"))
	case 2:
		w.count("mirror died")
		return nil
	case 3:
		return run.Crash(ctx, time.Now().Add(time.Second), 1, replicator.TextFault("error", "a failure"))
	}
	w.count("mirror stopped")
	return run.Stop(ctx, "", "", nil)
}

// step does one thing that a run of a mirror does.
func (w mirrorWorld) step(run *jobs.Run) error {
	ctx := w.Context()
	switch w.intN(9) {
	case 8:
		lost, err := asMirror(run).LostDatabases(ctx, w.names(), time.Now().Add(-time.Minute))
		if len(lost) > 0 {
			w.count("lost")
		}
		return err
	case 0, 1:
		w.count("added")
		return asMirror(run).AddDatabases(ctx, w.names(), int64(w.intN(2)))
	case 2, 3:
		n, err := asMirror(run).StartDatabases(ctx, 3)
		if n > 0 {
			w.count("started")
		}
		return err
	case 4:
		w.count("redefined")
		return asMirror(run).RedefineDatabases(ctx, w.names())
	case 5:
		var at time.Time
		if w.intN(2) == 0 {
			w.count("to be deleted")
			at = time.Now().Add(time.Duration(w.intN(int(10 * time.Second))))
		}
		w.count("ended")
		return asMirror(run).EndDatabases(ctx, []string{w.name()}, at)
	case 6:
		databases, _, err := asMirror(run).GoneDatabases(ctx, time.Now(), 5)
		for _, database := range databases {
			if err == nil {
				err = asMirror(run).EndDatabases(ctx, []string{database}, time.Time{})
			}
		}
		return err
	}
	n, err := asMirror(run).FollowEvents(ctx, 10, func([]jobs.MirrorEvent) error { return nil })
	if err != nil || n == 0 {
		return errors.Join(err, run.Update(ctx, func(*replicator.JobState) {}))
	}
	w.count("events")
	return nil
}

// compare checks that each mirror has as many databases as there are jobs that it has made, and that no such job
// is left of another mirror. The check of the job layer compares them one by one.
func (w mirrorWorld) compare() {
	made := map[string]int64{}
	all := replicator.ShownStates
	list, err := w.store.Lists.List(w.Context(), jobs.Filter{States: jobs.States{Shown: all}}, jobs.ListOptions{Limit: jobs.MaxLimit})
	require.NoError(w, err)
	mirrors, paused := map[string]bool{}, map[string]bool{}
	for _, job := range list.Jobs {
		if mirror := job.Mirror(); mirror != "" {
			made[mirror]++
		}
		mirrors[job.ID] = job.IsMirror() && !job.Condition().Terminal()
		paused[job.ID] = job.Args.Paused != nil
	}
	for _, job := range list.Jobs {
		if mirror := job.Mirror(); mirror != "" && !job.Condition().Terminal() {
			assert.Equal(w, paused[mirror], paused[job.ID], "%s is paused as its mirror", job.ID)
			if paused[mirror] {
				w.count("paused")
			}
		}
	}
	for _, job := range list.Jobs {
		if !mirrors[job.ID] {
			continue
		}
		sums, err := w.store.MirrorSummary(w.Context(), job.ID)
		require.NoError(w, err)
		assert.Equal(w, made[job.ID], sums.Known+sums.States[replicator.MirroredGone], "%s %v", job.ID, sums)
		page, err := w.store.Lists.List(w.Context(), jobs.Filter{Mirror: job.ID, States: jobs.States{Shown: all}}, jobs.ListOptions{Limit: jobs.MaxLimit})
		require.NoError(w, err)
		assert.Len(w, page.Jobs, int(made[job.ID]))
		delete(made, job.ID)
	}
	assert.Empty(w, made, "jobs of mirrors that are gone")
}
