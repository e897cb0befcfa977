package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// MirrorRun is the run of a mirror. Each of its methods writes only while the run holds the mirror's job, and may be repeated: it does
// nothing to databases that are as they should be already.
type MirrorRun struct{ *Run }

// mirroredAtOnce is the maximum number of databases in one call of a method of a mirror's run.
const mirroredAtOnce = 50

// MirroredDatabase is a database that a mirror knows.
type MirroredDatabase struct {
	Database string
	State    replicator.MirroredState
	// Current reports whether its job follows the mirror's current definition, or is gone.
	Current bool
	// Instance is the instance_start_time of its target while everything is there; empty if that is not known.
	Instance string
}

// holds returns fdbjobs.ErrHalt if the run no longer holds its job, or the job has a new definition or is paused.
func (r MirrorRun) holds(tx kv.ReadTransaction) error {
	job, err := r.store.find(tx, r.job.ID)
	switch {
	case err != nil:
		return err
	case job == nil || job.Status != fdbjobs.Running || job.held.lock != r.job.held.lock:
		return fdbjobs.ErrHalt
	case job.Args.Definition != r.job.Args.Definition || job.Args.Paused != nil:
		return fdbjobs.ErrHalt
	}
	// Run.check would write to the run: another goroutine may keep the job alive meanwhile.
	exists, err := r.store.ownerExists(tx, r.job.owner())
	if err == nil && !exists {
		err = fdbjobs.ErrHalt
	}
	return err
}

// holding runs fn in a transaction while the run holds its job.
func (r MirrorRun) holding(ctx context.Context, fn func(kv.Transaction) error) error {
	if err := r.Check(); err != nil {
		return err
	}
	return r.store.db.Transact(ctx, func(tx kv.Transaction) error {
		if err := r.holds(tx); err != nil {
			return err
		}
		return fn(tx)
	})
}

// Subscribe makes the watch of the source's server publish events to the mirror, and adds the watch if there is none.
// Read the list of databases after it has returned: so none is missed.
func (r MirrorRun) Subscribe(ctx context.Context) error {
	server := r.job.Args.Replication.MirrorServer()
	return r.holding(ctx, func(tx kv.Transaction) error {
		return r.store.parking.watch(tx, server, r.job.owner(), tx.Get(r.store.parking.watchedKey(server)))
	})
}

// AwaitEvents returns a watch that ends when there are events, or room for another first run, or when a mirror that is not
// continuous may have completed. Look for all of them after it has returned. The caller cancels it.
func (r MirrorRun) AwaitEvents(ctx context.Context) (kv.Watch, error) {
	states := []replicator.MirroredState{replicator.MirroredStarting}
	if !r.job.Args.Replication.Continuous {
		states = append(states, replicator.MirroredFailing, replicator.MirroredCurrent)
	}
	return kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) (kv.Watch, error) {
		all := []kv.Watch{tx.Watch(r.store.mirrors.eventCounterKey(r.job.ID))}
		for _, state := range states {
			all = append(all, r.store.jobs.WatchTally(tx, indexMirrored, tuple.Tuple{r.job.ID}, string(state)))
		}
		return kv.AnyWatch(all...), nil
	})
}

// Databases returns up to limit databases of the mirror after one, by name.
func (r MirrorRun) Databases(ctx context.Context, after string, limit int) ([]MirroredDatabase, error) {
	return kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) ([]MirroredDatabase, error) {
		found, err := r.store.mirrors.mirrored(tx.Snapshot(), r.job.ID, after, limit).Await()
		out := make([]MirroredDatabase, len(found))
		for i, e := range found {
			out[i] = MirroredDatabase{e.database, e.state, e.state == replicator.MirroredGone || r.defines(e), e.instance}
		}
		return out, err
	})
}

// defines reports whether the job of a database follows the mirror's current definition.
func (r MirrorRun) defines(e mirroredEntry) bool { return e.definition == hashOf(r.childDefinition()) }

// childDefinition returns the Definition of the jobs that the mirror makes.
func (r MirrorRun) childDefinition() string {
	return cmp.Or(r.job.Args.Children, r.job.Args.Definition)
}

// Summary sums up the mirror's databases.
func (r MirrorRun) Summary(ctx context.Context) (replicator.MirrorSummary, error) {
	return kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) (replicator.MirrorSummary, error) {
		return r.store.mirrors.mirrorSummary(tx.Snapshot(), r.job.ID)
	})
}

// RecordLag records how far the target is behind now. [Lists.Records] returns that for a day.
func (r MirrorRun) RecordLag(ctx context.Context) error {
	key, now := r.store.records.lagsKey(r.job.ID), time.Now()
	return r.holding(ctx, func(tx kv.Transaction) error {
		stored := tx.Get(key)
		job, err := r.store.read(tx.Snapshot(), r.job.ID)
		if err != nil {
			return err
		}
		summary, err := r.store.mirrors.shownSummary(tx.Snapshot(), job)
		if err != nil {
			return err
		}
		lags, err := awaitLags(stored)
		if err != nil {
			return err
		}
		lag := time.Duration(0)
		if since := summary.LagsSince(); !since.IsZero() {
			lag = max(0, now.Sub(since))
		}
		text, err := json.Marshal(lags.Add(now, lag))
		if err == nil {
			tx.Set(key, text)
		}
		return err
	})
}

// child returns the job of a database as it is added.
func (r MirrorRun) child(database string) (*Job, error) {
	mirror := r.job
	args := &replicator.JobArgs{
		Replication: mirror.Args.Replication.Child(database), Definition: r.childDefinition(),
		Database: mirror.Args.Database, User: mirror.Args.User, Added: time.Now(), MirroredDatabase: database,
	}
	if err := r.store.computeID(args); err != nil {
		return nil, err
	}
	id := replicator.ChildJobID(mirror.ID, database)
	return &Job{ID: id, Status: fdbjobs.Pending, Args: args, State: r.store.initialState(args, nil)}, nil
}

// waitingTurn returns the spec of a job that waits for its turn.
func waitingTurn() fdbjobs.Spec {
	return fdbjobs.Spec{Scheduled: time.Now().Add(pausedFor), Tag: tagTurn}
}

// AddDatabases makes the mirror know databases of the source. Their jobs wait until StartDatabases starts them, first those with
// the lowest turn. A database that was to be deleted at the target is not.
func (r MirrorRun) AddDatabases(ctx context.Context, databases []string, turn int64) error {
	return r.someMirrored(ctx, databases, func(tx kv.Transaction, part []string, found []*mirroredEntry) error {
		var specs []fdbjobs.Spec
		for i, database := range part {
			if e := found[i]; e != nil && e.state != replicator.MirroredGone {
				continue
			}
			job, err := r.child(database)
			if err != nil {
				return err
			}
			job.State.Mirrored.Turn = turn
			spec, err := job.spec(waitingTurn())
			if err != nil {
				return err
			}
			specs = append(specs, spec)
		}
		return r.store.jobs.Add(tx, specs...)
	})
}

// someMirrored calls do with some databases at a time, and with the entry of each, nil if the mirror does not know it.
func (r MirrorRun) someMirrored(
	ctx context.Context, databases []string, do func(kv.Transaction, []string, []*mirroredEntry) error,
) error {
	return inParts(databases, mirroredAtOnce, func(part []string) error {
		return r.holding(ctx, func(tx kv.Transaction) error {
			found, err := kv.Each(part, func(database string) kv.Future[*mirroredEntry] {
				return r.store.mirrors.database(tx, r.job.ID, database)
			})
			if err != nil {
				return err
			}
			return do(tx, part, found)
		})
	})
}

// eachMirrored calls do with the entry of each database that the mirror knows.
func (r MirrorRun) eachMirrored(ctx context.Context, databases []string, do func(kv.Transaction, *mirroredEntry) error) error {
	return r.someMirrored(ctx, databases, func(tx kv.Transaction, _ []string, found []*mirroredEntry) error {
		for _, e := range found {
			if e == nil {
				continue
			}
			if err := do(tx, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// StartDatabases makes the jobs of databases due that wait for their turn, as long as fewer than most databases make their first
// run. It returns how many it has started, at most mirroredAtOnce.
func (r MirrorRun) StartDatabases(ctx context.Context, most int) (n int, err error) {
	err = r.holding(ctx, func(tx kv.Transaction) error {
		n = 0
		tallies := r.store.jobs.Tallies(tx.Snapshot(), indexMirrored, tuple.Tuple{r.job.ID})
		waiting := r.store.mirrors.mirrorTimes(tx.Snapshot(), r.job.ID, timeTurn, fdbjobs.EntryRange{Limit: mirroredAtOnce})
		counted, err := tallies.Await()
		if err != nil {
			return err
		}
		list, err := waiting.Await()
		if err != nil {
			return err
		}
		free := max(int64(most)-counted[string(replicator.MirroredStarting)], 0)
		list = list[:min(int64(len(list)), free)]
		var due []string
		for _, e := range list {
			if r.defines(e) {
				due = append(due, e.id)
				continue
			}
			if err := r.redefine(tx, e.database, fdbjobs.Spec{}); err != nil {
				return err
			}
			n++
		}
		made, err := r.store.jobs.MakeDue(tx, due, tagTurn, "")
		for _, is := range made {
			if is {
				n++
			}
		}
		return err
	})
	return n, err
}

// RedefineDatabases gives the jobs of databases the mirror's current definition, and adds those again that have failed.
func (r MirrorRun) RedefineDatabases(ctx context.Context, databases []string) error {
	return r.eachMirrored(ctx, databases, func(tx kv.Transaction, e *mirroredEntry) error {
		if e.state == replicator.MirroredGone || r.defines(*e) && !e.state.Ended() {
			return nil
		}
		var spec fdbjobs.Spec
		if e.state == replicator.MirroredWaiting {
			spec = waitingTurn()
		}
		return r.redefine(tx, e.database, spec)
	})
}

// redefine gives the job of a database the mirror's current definition, or adds it again if it has ended.
func (r MirrorRun) redefine(tx kv.Transaction, database string, spec fdbjobs.Spec) error {
	job, err := r.child(database)
	if err != nil {
		return err
	}
	existing, err := r.store.find(tx, job.ID)
	if err != nil {
		return err
	}
	switch {
	case existing == nil:
	case existing.Status != fdbjobs.Finished:
		if paused := existing.Args.Paused; paused != nil {
			existing.State = existing.resumedState()
			if paused.Turn {
				spec = waitingTurn()
			}
		}
		job.State.KeepMirrored(existing.State)
		job.Args.Lost = existing.Args.Lost
	case existing.State.Behind != nil:
		job.State.Behind = existing.State.Behind
	}
	return r.store.writer.put(tx, existing, job, spec)
}

// LostDatabases notes that the target has lost databases that it had, and makes their jobs copy them again: at once if they are
// parked, and after the present run, which ends, if they run. since is when the target was last known to have them. It returns
// those that counted as up to date, also if it fails.
func (r MirrorRun) LostDatabases(ctx context.Context, databases []string, since time.Time) (lost []string, err error) {
	found := map[string]bool{} // also by a run of the transaction whose result was unknown
	err = r.againMirrored(ctx, databases, func(next *Job) bool {
		found[next.Args.MirroredDatabase] = true
		args := *next.Args
		args.Lost = since.UTC().Truncate(time.Second)
		next.Args = &args
		return true
	})
	return slices.Sorted(maps.Keys(found)), err
}

// CompareDatabases makes the jobs of databases that count as up to date compare everything again, `_security` included: at once if they are
// parked, and after the present run, which ends, if they run.
func (r MirrorRun) CompareDatabases(ctx context.Context, databases []string) error {
	return r.againMirrored(ctx, databases, compareAgain)
}

// SecureDatabases is CompareDatabases for databases whose `_security` objects differ, without those whose targets keep their own.
func (r MirrorRun) SecureDatabases(ctx context.Context, databases []string) error {
	return r.againMirrored(ctx, databases, func(next *Job) bool {
		return next.State.Target.Claim == replicator.TargetMade && compareAgain(next)
	})
}

// compareAgain makes the next run of a job compare everything.
func compareAgain(next *Job) bool {
	state := *next.State
	state.Parked = nil // or the run would go on from there, and not compare
	next.State = &state
	return true
}

// againMirrored makes the jobs of databases that count as up to date run again. change changes a copy of each job, but not what
// its args and state point to. A job for which it returns false stays as it is.
func (r MirrorRun) againMirrored(ctx context.Context, databases []string, change func(*Job) bool) error {
	return r.eachMirrored(ctx, databases, func(tx kv.Transaction, e *mirroredEntry) error {
		if e.state != replicator.MirroredCurrent {
			return nil
		}
		job, err := r.store.find(tx, e.id)
		if err != nil || job == nil || job.Args.Replication == nil || job.Status == fdbjobs.Finished {
			return err
		}
		next := *job
		if !change(&next) {
			return nil
		}
		if job.Status == fdbjobs.Running {
			next.State = job.State // the job layer keeps it
		}
		return r.store.writer.put(tx, job, &next, fdbjobs.Spec{})
	})
}

// EndDatabases ends the jobs of databases that the mirror no longer mirrors, and forgets those that are gone. If deleteAt is not zero, they were deleted at
// the source, and [MirrorRun.GoneDatabases] returns them from then on.
func (r MirrorRun) EndDatabases(ctx context.Context, databases []string, deleteAt time.Time) error {
	return r.eachMirrored(ctx, databases, func(tx kv.Transaction, e *mirroredEntry) error {
		if e.state == replicator.MirroredGone && !deleteAt.IsZero() {
			return nil
		}
		if err := r.store.writer.removeChild(tx, e.id); err != nil || deleteAt.IsZero() {
			return err
		}
		gone, err := r.child(e.database)
		if err != nil {
			return err
		}
		gone.State.State, gone.State.Behind, gone.State.Mirrored = replicator.StateCompleted, nil, &replicator.MirroredJob{GoneAt: deleteAt}
		return r.store.writer.add(tx, gone, fdbjobs.Spec{Ended: true, Tag: tagGone})
	})
}

// GoneDatabases returns up to limit databases that are to be deleted at the target by a time, and when the next one after
// them is; zero if there is none.
func (r MirrorRun) GoneDatabases(ctx context.Context, by time.Time, limit int) (databases []string, next time.Time, err error) {
	list, err := kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) ([]mirroredEntry, error) {
		return r.store.mirrors.mirrorTimes(tx.Snapshot(), r.job.ID, timeGone, fdbjobs.EntryRange{Limit: limit + 1}).Await()
	})
	for _, e := range list {
		if len(databases) == limit || e.at > by.Unix() {
			return databases, time.Unix(e.at, 0), err
		}
		databases = append(databases, e.database)
	}
	return databases, time.Time{}, err
}

// FollowEvents calls follow with up to limit events of the mirror, by the names of their databases, if there are any. If follow succeeds,
// they are removed, except where there are later ones. FollowEvents returns the number of events.
func (r MirrorRun) FollowEvents(ctx context.Context, limit int, follow func([]MirrorEvent) error) (int, error) {
	space := r.store.space.Sub("mirror_events", r.job.ID)
	stored, err := kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.Snapshot().GetRange(rows.Range(space), kv.RangeOptions{Limit: limit}).Slice()
	})
	if err != nil || len(stored) == 0 {
		return 0, err
	}
	events := make([]MirrorEvent, len(stored))
	for i, row := range stored {
		if events[i].Type, err = parseEvent(row.Value); err != nil {
			return 0, err
		}
		if events[i].Database, err = rows.LastString(space, row.Key); err != nil {
			return 0, fmt.Errorf("reading the events of a mirror: %w", err)
		}
	}
	if err := follow(events); err != nil {
		return 0, err
	}
	return len(stored), r.holding(ctx, func(tx kv.Transaction) error { return clearUnchanged(tx, stored) })
}

// HasFeed reports whether the watch of the mirror's source follows the server's feed at the moment.
func (r MirrorRun) HasFeed(ctx context.Context) (bool, error) {
	return kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) (bool, error) {
		status, running, err := r.store.readWatch(tx.Snapshot(), r.job.Args.Replication.MirrorServer())
		return running && status.By == replicator.ByFeed, err
	})
}
