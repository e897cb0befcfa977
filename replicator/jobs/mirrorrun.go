package jobs

import (
	"context"
	"encoding/json"
	"errors"
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

// The methods of this file are for the run of a mirror. Each writes only while the run holds the mirror's job, and may be
// repeated: it does nothing to rows that are as they should be already.

// MirroredAtOnce is the maximum number of databases in one call of a method of a mirror's run.
const MirroredAtOnce = 50

// MirroredDatabase is a database that a mirror knows.
type MirroredDatabase struct {
	Database string
	State    replicator.MirroredState
	// Current reports whether its job, if it has one, follows the mirror's current definition.
	Current bool
	// Instance is the instance_start_time of its target while everything was there; empty if that is not known.
	Instance string
}

// Retry reports whether the job has ended, and may be added again.
func (d MirroredDatabase) Retry() bool {
	return d.State == replicator.MirroredFailed || d.State == replicator.MirroredElsewhere
}

// Gone reports whether the database was deleted at the source.
func (d MirroredDatabase) Gone() bool { return d.State == replicator.MirroredGone }

// mirroredRows reads up to limit rows of a mirror after a database.
func (s *mirrorRows) mirroredRows(tx kv.ReadTransaction, mirror, after string, limit int) ([]storedDatabase, error) {
	space := s.space.Sub("mirrored", mirror)
	all := rows.Range(space)
	if after != "" {
		all.Begin = kv.KeyAfter(s.mirroredKey(mirror, after))
	}
	pairs, err := tx.GetRange(all, kv.RangeOptions{Limit: limit}).Slice()
	if err != nil {
		return nil, err
	}
	out := make([]storedDatabase, len(pairs))
	for i, pair := range pairs {
		if out[i].Database, err = rows.LastString(space, pair.Key); err != nil {
			return nil, fmt.Errorf("reading the databases of a mirror: %w", err)
		}
		if out[i].row, err = parseMirrored(pair.Value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

type storedDatabase struct {
	Database string
	row      *mirroredRow
}

// holds returns fdbjobs.ErrHalt if the run no longer holds its job, or the job has a new definition.
func (r *Run) holds(tx kv.ReadTransaction) error {
	raw, err := r.store.jobs.Get(tx, r.job.ID)
	switch {
	case errors.Is(err, fdbjobs.ErrNotFound):
		return fdbjobs.ErrHalt
	case err != nil:
		return err
	case raw.Status != fdbjobs.Running || raw.Lock != r.held.Job().Lock:
		return fdbjobs.ErrHalt
	}
	if job, err := r.store.parse(raw); err != nil || job.Args.Definition != r.job.Args.Definition {
		return errors.Join(err, fdbjobs.ErrHalt)
	}
	// It leaves the run's own fields alone: another goroutine may keep the job alive meanwhile.
	exists, err := r.store.ownerExists(tx, r.job.owner())
	if err == nil && !exists {
		err = fdbjobs.ErrHalt
	}
	return err
}

// holding runs fn in a transaction while the run holds its job.
func (r *Run) holding(ctx context.Context, fn func(kv.Transaction) error) error {
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

// BeginMirror makes the watch of the source's server tell the mirror of databases, and adds the watch if there is none.
// Read the list of databases after it has returned: so none is missed.
func (r *Run) BeginMirror(ctx context.Context) error {
	server := MirrorServer(r.job.Args.Replication)
	return r.holding(ctx, func(tx kv.Transaction) error {
		watched := r.store.parking.watching(tx, server, r.job.owner())
		return watched()
	})
}

// AwaitMirror returns a watch that ends when there are news, or room for another first run. Look for both after it has
// returned. The caller cancels it.
func (r *Run) AwaitMirror(ctx context.Context) (kv.Watch, error) {
	return kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) (kv.Watch, error) {
		return tx.Watch(r.store.mirrors.mirrorPokesKey(r.job.ID)), nil
	})
}

// Mirrored returns up to limit databases of the mirror after one, by name.
func (r *Run) Mirrored(ctx context.Context, after string, limit int) ([]MirroredDatabase, error) {
	return kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) ([]MirroredDatabase, error) {
		found, err := r.store.mirrors.mirroredRows(tx.Snapshot(), r.job.ID, after, limit)
		out := make([]MirroredDatabase, len(found))
		for i, d := range found {
			out[i] = MirroredDatabase{
				d.Database, d.row.state, !d.row.hasJob() || d.row.definition == r.job.Args.Definition, d.row.instance,
			}
		}
		return out, err
	})
}

// MirrorSummary sums up the mirror's databases.
func (r *Run) MirrorSummary(ctx context.Context) (replicator.MirrorSummary, error) {
	return kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) (replicator.MirrorSummary, error) {
		return r.store.mirrors.mirrorSummary(tx.Snapshot(), r.job.ID, time.Now())
	})
}

// AddMirrored makes the mirror know databases of the source. Their jobs are added by StartMirrored, first those with the
// lowest turn. A database that was to be deleted at the target is not.
func (r *Run) AddMirrored(ctx context.Context, databases []string, turn int64) error {
	return r.eachMirrored(ctx, databases, func(tx kv.Transaction, database string, row *mirroredRow) error {
		if row != nil && row.state != replicator.MirroredGone {
			return nil
		}
		next := &mirroredRow{state: replicator.MirroredWaiting, turn: turn, since: time.Now().Unix()}
		r.store.mirrors.setMirrored(tx, r.job.ID, database, row, next)
		return nil
	})
}

// eachMirrored calls do with the row of each database, nil if there is none.
func (r *Run) eachMirrored(
	ctx context.Context, databases []string, do func(kv.Transaction, string, *mirroredRow) error,
) error {
	for begin := 0; begin < len(databases); begin += MirroredAtOnce {
		part := databases[begin:min(begin+MirroredAtOnce, len(databases))]
		err := r.holding(ctx, func(tx kv.Transaction) error {
			reads := make([]kv.Future[*mirroredRow], len(part))
			for i, database := range part {
				reads[i] = r.store.mirrors.readMirrored(tx, r.job.ID, database)
			}
			found, err := kv.All(reads)
			if err != nil {
				return err
			}
			for i, row := range found {
				if err := do(tx, part[i], row); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// StartMirrored adds the jobs of databases that wait, as long as fewer than most databases have jobs that make their first
// run. It returns how many it has added, at most MirroredAtOnce.
func (r *Run) StartMirrored(ctx context.Context, most int) (n int, err error) {
	index := r.store.space.Sub("mirror_waiting", r.job.ID)
	err = r.holding(ctx, func(tx kv.Transaction) error {
		n = 0
		starting := r.store.mirrors.mirrorSum(tx.Snapshot(), r.job.ID, string(replicator.MirroredStarting))
		waiting := tx.Snapshot().GetRange(rows.Range(index), kv.RangeOptions{Limit: MirroredAtOnce})
		busy, err := starting.Await()
		if err != nil {
			return err
		}
		list, err := r.store.mirrors.mirrorTimes("mirror_waiting", r.job.ID, waiting)
		if err != nil {
			return err
		}
		free := max(int64(most)-busy, 0)
		for i, d := range list[:min(int64(len(list)), free)] {
			row, err := r.store.mirrors.readMirrored(tx, r.job.ID, d.database).Await()
			if err != nil {
				return err
			}
			if row == nil || row.state != replicator.MirroredWaiting {
				continue
			}
			if err := r.startChild(tx, d.database, row, uint16(i)); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n, err
}

// RedefineMirrored gives the jobs of databases the mirror's current definition, and adds those again that have ended.
func (r *Run) RedefineMirrored(ctx context.Context, databases []string) error {
	i := uint16(0)
	return r.eachMirrored(ctx, databases, func(tx kv.Transaction, database string, row *mirroredRow) error {
		if row == nil || !row.hasJob() {
			return nil
		}
		ended := row.state == replicator.MirroredFailed || row.state == replicator.MirroredElsewhere
		if row.definition == r.job.Args.Definition && !ended {
			return nil
		}
		i++
		return r.startChild(tx, database, row, i%MirroredAtOnce)
	})
}

// startChild adds the job of a database, or gives it the mirror's current definition.
func (r *Run) startChild(tx kv.Transaction, database string, row *mirroredRow, order uint16) error {
	s, mirror := r.store, r.job
	args := &replicator.JobArgs{
		Replication: mirror.Args.Replication.Child(database), Definition: mirror.Args.Definition,
		Database: mirror.Args.Database, User: mirror.Args.User, Added: time.Now(), MirroredDatabase: database,
	}
	if err := s.computeID(args); err != nil {
		return err
	}
	id := replicator.ChildJobID(mirror.ID, database)
	existing, err := s.writer.readChild(tx, id)
	if err != nil {
		return err
	}
	next := *row
	next.definition = args.Definition
	ended := existing == nil || existing.Status == fdbjobs.Finished
	if !ended && existing.Args.Replication.Equal(args.Replication) {
		s.mirrors.setMirrored(tx, mirror.ID, database, row, &next)
		return nil // it goes on
	}
	if ended {
		next.state = replicator.MirroredStarting
	}
	if next.since == 0 && next.behind() {
		next.since = time.Now().Unix()
	}
	next.failing, next.reason, next.mark, next.goal, next.instance = 0, "", 0, 0, ""
	if next.fails() { // it has not failed with the new definition
		next.state = replicator.MirroredCopying
	}
	s.mirrors.setMirrored(tx, mirror.ID, database, row, &next)
	job := &Job{ID: id, Status: fdbjobs.Pending, Args: args, State: s.initialState(args, nil)}
	draft, err := r.draftChild(job)
	if err != nil {
		return err
	}
	return s.writer.start(tx, draft, existing, order)
}

// LostMirrored notes that the target has lost databases that it had, and makes their jobs copy them again. since is when the
// target was last known to have them. It returns those that counted as up to date, also if it fails.
func (r *Run) LostMirrored(ctx context.Context, databases []string, since time.Time) (lost []string, err error) {
	found := map[string]bool{} // also by a run of the transaction whose result was unknown
	i := uint16(0)
	err = r.eachMirrored(ctx, databases, func(tx kv.Transaction, database string, row *mirroredRow) error {
		if row == nil || row.state != replicator.MirroredCurrent {
			return nil
		}
		found[database] = true
		next := *row
		next.state, next.since, next.mark, next.goal, next.instance = replicator.MirroredCopying, since.Unix(), 0, 0, ""
		r.store.mirrors.setMirrored(tx, r.job.ID, database, row, &next)
		i++
		return r.rerunChild(tx, database, i%MirroredAtOnce)
	})
	return slices.Sorted(maps.Keys(found)), err
}

// rerunChild makes the job of a database begin a run: at once if it is parked, and after its present run, which ends, if it runs.
// Jobs that wait after a failure, or have ended, are left alone.
func (r *Run) rerunChild(tx kv.Transaction, database string, order uint16) error {
	id := replicator.ChildJobID(r.job.ID, database)
	job, err := r.store.writer.readChild(tx, id)
	switch {
	case err != nil || job == nil || job.Args.Replication == nil:
		return err
	case job.Status == fdbjobs.Pending:
		_, err := r.store.jobs.MakeDue(tx, []string{id}, tagParked, "", order)
		return err
	case job.Status != fdbjobs.Running:
		return nil
	}
	draft, err := r.draftChild(job)
	if err != nil {
		return err
	}
	return r.store.writer.start(tx, draft, job, order)
}

// draftChild encodes the job of a database.
func (r *Run) draftChild(job *Job) (draft *documentDraft, err error) {
	draft = &documentDraft{job: job}
	if draft.args, err = job.encodeArgs(); err != nil {
		return nil, err
	}
	draft.listed, err = job.summary()
	return draft, err
}

// EndMirrored ends the jobs of databases that the mirror no longer mirrors. If deleteAt is not zero, they were deleted at
// the source, and [Run.GoneMirrored] returns them from then on.
func (r *Run) EndMirrored(ctx context.Context, databases []string, deleteAt time.Time) error {
	return r.eachMirrored(ctx, databases, func(tx kv.Transaction, database string, row *mirroredRow) error {
		if row == nil || row.state == replicator.MirroredGone && !deleteAt.IsZero() {
			return nil
		}
		var next *mirroredRow
		if !deleteAt.IsZero() {
			next = &mirroredRow{state: replicator.MirroredGone, since: deleteAt.Unix()}
		}
		return r.store.writer.dropDatabase(tx, r.job.ID, database, next)
	})
}

// GoneMirrored returns up to limit databases that are to be deleted at the target by a time, and when the next one after
// them is; zero if there is none.
func (r *Run) GoneMirrored(ctx context.Context, by time.Time, limit int) (databases []string, next time.Time, err error) {
	index := r.store.space.Sub("mirror_gone", r.job.ID)
	list, err := kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) ([]timedDatabase, error) {
		return r.store.mirrors.mirrorTimes("mirror_gone", r.job.ID, tx.Snapshot().GetRange(rows.Range(index), kv.RangeOptions{Limit: limit + 1}))
	})
	for _, d := range list {
		if len(databases) == limit || d.at > by.Unix() {
			return databases, time.Unix(d.at, 0), err
		}
		databases = append(databases, d.database)
	}
	return databases, time.Time{}, err
}

// ForgetGone forgets a database that was deleted at the target, or need not be.
func (r *Run) ForgetGone(ctx context.Context, database string) error {
	return r.eachMirrored(ctx, []string{database}, func(tx kv.Transaction, database string, row *mirroredRow) error {
		if row != nil && row.state == replicator.MirroredGone {
			r.store.mirrors.setMirrored(tx, r.job.ID, database, row, nil)
		}
		return nil
	})
}

// ReadNews is news that the mirror has read.
type ReadNews struct {
	News
	value []byte
}

// MirrorNews returns up to limit news, by the names of their databases.
func (r *Run) MirrorNews(ctx context.Context, limit int) ([]ReadNews, error) {
	space := r.store.space.Sub("mirror_news", r.job.ID)
	return kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) ([]ReadNews, error) {
		pairs, err := tx.Snapshot().GetRange(rows.Range(space), kv.RangeOptions{Limit: limit}).Slice()
		if err != nil {
			return nil, err
		}
		out := make([]ReadNews, len(pairs))
		for i, pair := range pairs {
			e, err := tuple.Unpack(pair.Value)
			if err != nil || len(e) != 2 || !rows.As(e[0], &out[i].Type) {
				return nil, fmt.Errorf("reading the news of a mirror: %w", errors.Join(err, tuple.ErrMalformed))
			}
			out[i].value = pair.Value
			if out[i].Database, err = rows.LastString(space, pair.Key); err != nil {
				return nil, fmt.Errorf("reading the news of a mirror: %w", err)
			}
		}
		return out, nil
	})
}

// DropNews forgets news that the mirror has followed, except where there are later ones.
func (r *Run) DropNews(ctx context.Context, news []ReadNews) error {
	return r.holding(ctx, func(tx kv.Transaction) error {
		reads := make([]kv.Future[[]byte], len(news))
		for i, n := range news {
			reads[i] = tx.Get(r.store.mirrors.mirrorNewsKey(r.job.ID, n.Database))
		}
		for i, read := range reads {
			value, err := read.Await()
			if err != nil {
				return err
			}
			if string(value) == string(news[i].value) {
				tx.Clear(r.store.mirrors.mirrorNewsKey(r.job.ID, news[i].Database))
			}
		}
		return nil
	})
}

// HasFeed reports whether the watch of the mirror's source follows the server's feed at the moment.
func (r *Run) HasFeed(ctx context.Context) (bool, error) {
	server := MirrorServer(r.job.Args.Replication)
	return kv.TransactValue(ctx, r.store.db, func(tx kv.Transaction) (bool, error) {
		watch, err := r.store.watches.Get(tx.Snapshot(), server)
		if errors.Is(err, fdbjobs.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		var status WatchStatus
		if err := json.Unmarshal(watch.State, &status); err != nil {
			return false, fmt.Errorf("reading the state of the watch of %q: %w", server, err)
		}
		return watch.Status == fdbjobs.Running && status.By == ByFeed, nil
	})
}
