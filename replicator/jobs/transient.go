package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// Replicate adds a transient job, or joins the one that asks for the same and has
// not ended; if that one is to be done with other passwords or options than
// before, it goes on with the new ones. user is who asks, nil for an anonymous one.
// It returns the job as it is then.
//
// The error is a *Collision if another job has the replication id.
func (s *Store) Replicate(ctx context.Context, r *replicator.Replication, user *string) (*Job, error) {
	token := rand.Text()
	args := &replicator.JobArgs{Replication: r, Definition: token, User: user, Added: time.Now()}
	if err := s.computeID(args); err != nil {
		return nil, err
	}
	job := &Job{ID: r.JobID(deref(user)), Status: fdbjobs.Pending, Args: args, State: s.begin(args, nil)}
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		return s.addOrJoin(tx, job, token)
	})
}

// computeID computes the replication id of a definition, if that needs no filter function.
func (s *Store) computeID(args *replicator.JobArgs) error {
	if args.Replication.NeedsFilterCode() {
		return nil
	}
	id, err := args.Replication.ID(s.uuid, "")
	if err != nil {
		return err
	}
	args.ReplicationID = id.String()
	return nil
}

func (s *Store) addOrJoin(tx kv.Transaction, job *Job, token string) (*Job, error) {
	existing, err := s.read(tx, job.ID)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return nil, err
	case existing.Status != fdbjobs.Finished && existing.Args.Replication.Equal(job.Args.Replication):
		return existing, nil
	case existing.Status != fdbjobs.Finished:
		// It keeps its id until its next run has the new one.
		replaced := *existing
		replaced.Args = job.Args
		s.renew(&replaced)
		job = &replaced
	default:
		if err := s.unclaim(tx, existing, job.Args.ReplicationID); err != nil {
			return nil, err
		}
	}
	if job.Args.ReplicationID != "" {
		if err := s.claim(tx, job.Args.ReplicationID, job.ID); err != nil {
			return nil, err
		}
	}
	return job, s.add(tx, job, fdbjobs.Spec{Token: token})
}

// add writes a job. spec has what the job does not say.
func (s *Store) add(tx kv.Transaction, job *Job, spec fdbjobs.Spec) (err error) {
	spec.ID, spec.Owner, spec.Label = job.ID, job.owner(), job.label()
	if spec.Args, spec.State, err = job.encode(); err != nil {
		return err
	}
	if spec.Listed, err = job.summary(); err != nil {
		return err
	}
	return s.jobs.Add(tx, spec)
}

// Await waits until a job has ended, and returns it. The error is ErrNotFound if
// there is no such job, or if it was cancelled.
func (s *Store) Await(ctx context.Context, jobID string) (*Job, error) {
	var ended *fdbjobs.Job
	err := s.jobs.Follow(ctx, jobID, func(job *fdbjobs.Job) (bool, error) {
		if job.Status != fdbjobs.Finished {
			return false, nil // and not kept: its args may be large, and the wait long
		}
		ended = job
		return true, nil
	})
	if errors.Is(err, fdbjobs.ErrNotFound) {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, jobID)
	}
	if err != nil {
		return nil, err
	}
	return s.parse(ended)
}

// Cancel removes the transient job that has an id, its job id or its replication
// id, unless it has ended: its run stops. It returns the job as it was. The error is
// ErrNotFound if there is no such job.
func (s *Store) Cancel(ctx context.Context, id string) (*Job, error) {
	// What an earlier run of the function found. If its commit was made although
	// nobody said so, the job is not there any more.
	var before *Job
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		job, err := s.resolve(tx, id)
		switch {
		case errors.Is(err, ErrNotFound) && before != nil:
			return before, nil
		case err != nil:
			return nil, err
		case job.Status == fdbjobs.Finished || !job.Transient():
			return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
		}
		if _, err := s.jobs.Remove(tx, job.ID); err != nil {
			return nil, err
		}
		before = job
		if err := s.dropFailures(tx, job.ID); err != nil {
			return nil, err
		}
		return job, s.unclaim(tx, job, "")
	})
}
