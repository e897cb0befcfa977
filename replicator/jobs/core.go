package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/shares"
)

// QueueName is the name of the queue of replications.
const QueueName = "replication"

// ErrNotFound is returned if there is no such replication job.
var ErrNotFound = errors.New("no such replication")

// Settings are the [Options] of the same names that may change while a store is used. They have
// no defaults.
type Settings struct {
	MaxHistory      int
	TransientMaxAge time.Duration
	StuckAfter      time.Duration
	UpdateDocs      bool
}

// core is what all parts of a store use.
type core struct {
	db                    kv.Database
	jobs, watches, upkeep *fdbjobs.Queue
	verifications         *fdbjobs.Queue
	space                 tuple.Subspace
	shares                *shares.Shares
	uuid                  string
	settings              func() Settings
	// docs has no hooks, because a job's write to its document is not a user's. It starts no
	// goroutines, so it need not be closed.
	docs *docstore.Store
}

// read returns a job, or an error that wraps ErrNotFound.
func (s *core) read(tx kv.ReadTransaction, id string) (*Job, error) {
	raw, err := s.jobs.Get(tx, id)
	if errors.Is(err, fdbjobs.ErrNotFound) {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if err != nil {
		return nil, err
	}
	exists, err := s.ownerExists(tx, raw.Owner)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	return s.parse(raw)
}

// find returns a job, also if its replicator database is gone, or nil if there is none. The Args of a job that cannot be opened are empty.
func (s *core) find(tx kv.ReadTransaction, id string) (*Job, error) {
	raw, err := s.jobs.Get(tx, id)
	if errors.Is(err, fdbjobs.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	job, err := s.parse(raw)
	if errors.Is(err, fdbjobs.ErrSealed) {
		return job, nil
	}
	return job, err
}

// ownerExists reports whether an owner is a user or a database that exists. It conflicts with the
// deletion of the database, unless tx is a snapshot.
func (s *core) ownerExists(tx kv.ReadTransaction, owner string) (bool, error) {
	name, instance, _ := shares.ParseOwner(owner)
	if name == "" {
		return true, nil
	}
	db, err := s.docs.DatabaseIn(tx, name)
	if errors.Is(err, docstore.ErrDatabaseNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return db.Instance() == instance, nil
}

// computeID sets the replication id of a definition, if that does not depend on a filter
// function.
func (s *core) computeID(args *replicator.JobArgs) (err error) {
	args.ReplicationID, err = s.replicationID(args.Replication)
	return err
}

func (s *core) replicationID(r *replicator.Replication) (string, error) {
	if r.NeedsFilterCode() {
		return "", nil
	}
	id, err := r.ID(s.uuid, "")
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

// parse parses a job. If the job has a new definition that it has not run with, its state is the
// initial one. If the args cannot be opened, the error wraps fdbjobs.ErrSealed, and the job has
// all the rest.
func (s *core) parse(raw *fdbjobs.Job) (*Job, error) {
	job := &Job{
		ID: raw.ID, Status: raw.Status, Args: new(replicator.JobArgs), State: new(replicator.JobState),
		scheduled: raw.Scheduled, tag: raw.Tag,
	}
	if err := json.Unmarshal(raw.State, job.State); err != nil {
		return nil, fmt.Errorf("reading the state of the replication job %q: %w", raw.ID, err)
	}
	job.parkedAt, job.held = sourceOf(job.State.Parked), holding{raw.Lock, job.State.ReplicationID}
	if raw.ArgsErr != nil {
		return job, fmt.Errorf("reading the replication job: %w", raw.ArgsErr)
	}
	if err := json.Unmarshal(raw.Args, job.Args); err != nil {
		return nil, fmt.Errorf("reading the args of the replication job %q: %w", raw.ID, err)
	}
	if job.Args.Replication == nil {
		return nil, fmt.Errorf("reading the args of the replication job %q: no replication", raw.ID)
	}
	if raw.Status == fdbjobs.Pending && waitingIn[raw.Tag].couch != replicator.StateCrashing {
		// Listings find and count the job by its tag. A job that is accepted after a crash, by a
		// node that dies before the run starts, is queued again with the state of the crash and
		// without the tag.
		job.State.State = replicator.StatePending
	}
	if job.Args.Definition != job.State.Definition {
		job.redefined = true
		s.renew(job)
	}
	return job, nil
}

// renew sets the initial state for a new definition. A posted job keeps its progress, because
// its new definition is of the same replication with other options. The job of a mirror's database keeps how far that is.
func (s *core) renew(job *Job) {
	old := job.State
	if !job.posted() {
		job.State = s.initialState(job.Args, nil)
		job.State.KeepMirrored(old)
		return
	}
	job.State = s.initialState(job.Args, old.History)
	job.State.Runs, job.State.Target, job.State.RefusedAt = old.Runs, old.Target, old.RefusedAt
	job.State.ReplicationID, job.State.Stats, job.State.ChangesPending = old.ReplicationID, old.Stats, old.ChangesPending
	job.State.SourceSeq, job.State.ThroughSeq, job.State.CheckpointedSourceSeq = old.SourceSeq, old.ThroughSeq, old.CheckpointedSourceSeq
}

// initialState returns the state of a job that was just added.
func (s *core) initialState(args *replicator.JobArgs, history replicator.History) *replicator.JobState {
	state := &replicator.JobState{
		State: replicator.StatePending, Definition: args.Definition, ReplicationID: args.ReplicationID,
		LastUpdated: args.Added, History: slices.Clone(history),
	}
	if args.MirroredDatabase != "" {
		state.Mirrored, state.Behind = &replicator.MirroredJob{FirstRun: true, Lost: args.Lost}, &replicator.Behind{Since: args.Added}
	}
	state.History.Push(replicator.Event{Timestamp: args.Added, Type: replicator.EventAdded}, s.settings().MaxHistory)
	return state
}

// deletedAtOnce is the most deleted databases that one transaction reads.
const deletedAtOnce = 100

// cancelledTask is the task of upkeep that removes the jobs of deleted databases.
const cancelledTask = "replications of deleted databases"

// deletedDatabase is a deleted database that may still have jobs.
type deletedDatabase struct{ instance, owner string }

// deletedDatabases returns up to deletedAtOnce deleted databases with instances greater than
// after.
func (s *core) deletedDatabases(tx kv.ReadTransaction, after string) ([]deletedDatabase, error) {
	all := rows.Range(s.space.Sub("deleted"))
	if after != "" {
		all.Begin = kv.KeyAfter(s.space.Pack("deleted", after))
	}
	pairs, err := tx.GetRange(all, kv.RangeOptions{Limit: deletedAtOnce}).Slice()
	if err != nil {
		return nil, err
	}
	deleted := make([]deletedDatabase, len(pairs))
	for i, pair := range pairs {
		_, instance, _ := shares.ParseOwner(string(pair.Value))
		if instance == "" {
			return nil, fmt.Errorf("reading a deleted replicator database: malformed owner %q", pair.Value)
		}
		deleted[i] = deletedDatabase{instance: instance, owner: string(pair.Value)}
	}
	return deleted, nil
}

// partTime is the longest time for one transaction that changes several jobs. Its commit must come before kv.MaxTransactionAge.
const partTime = kv.MaxTransactionAge / 2

// parts changes jobs in several transactions. Each changes up to most jobs, and returns whether there are more. The first one begins at
// from, and each later one at the place that the one before it returned. parts returns the last of these places, also with an error. If a
// transaction is too much, parts runs it again with half as many jobs.
func parts[P any](
	ctx context.Context, db kv.Database, most int, from P, run func(tx kv.Transaction, from P, most int) (next P, more bool, err error),
) (P, error) {
	for more := true; more; {
		var next P
		err := db.Transact(ctx, func(tx kv.Transaction) (err error) {
			var until time.Time
			if most > 1 {
				until = time.Now().Add(partTime)
			}
			next, more, err = run(tx, from, most)
			return kv.InTime(until, err)
		})
		switch {
		case kv.TooMuch(err) && most > 1:
			most, more = most/2, true
		case err != nil:
			return from, err
		default:
			from = next
		}
	}
	return from, nil
}

// inParts calls do with parts of a list, at most that many elements each. If a part is too much for a transaction, it continues with
// smaller ones.
func inParts[T any](list []T, most int, do func(part []T) error) error {
	for len(list) > 0 {
		part := list[:min(len(list), most)]
		err := do(part)
		if kv.TooMuch(err) && most > 1 {
			most /= 2
			continue
		}
		if err != nil {
			return err
		}
		list = list[len(part):]
	}
	return nil
}
