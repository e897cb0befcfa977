package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

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
	now := time.Now()
	args := &replicator.JobArgs{Replication: r, User: user, Added: now}
	if !r.NeedsFilterCode() {
		id, err := r.ID(s.uuid, "")
		if err != nil {
			return nil, err
		}
		args.ReplicationID = id.String()
	}
	state := &replicator.JobState{State: replicator.StatePending, ReplicationID: args.ReplicationID, LastUpdated: now}
	state.History.Push(replicator.Event{Timestamp: now, Type: replicator.EventAdded}, s.maxHistory)
	job := &Job{ID: r.JobID(deref(user)), Status: fdbjobs.Pending, Args: args, State: state}
	token, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("adding a replication job: %w", err)
	}
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		return s.addOrJoin(tx, job, token.String())
	})
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
		// It keeps its state, and its id until its next run has the new one.
		replaced := *existing
		replaced.Args = job.Args
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
	args, err := json.Marshal(job.Args)
	if err != nil {
		return nil, fmt.Errorf("writing the args of the replication job %q: %w", job.ID, err)
	}
	state, err := json.Marshal(job.State)
	if err != nil {
		return nil, fmt.Errorf("writing the state of the replication job %q: %w", job.ID, err)
	}
	err = s.jobs.Add(tx, fdbjobs.Spec{
		ID: job.ID, Owner: owner(job.Args), Args: args, State: state, Token: token,
	})
	if err != nil {
		return nil, err
	}
	return job, nil
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
	return parseJob(ended)
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
		return job, s.unclaim(tx, job, "")
	})
}
