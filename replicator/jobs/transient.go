package jobs

import (
	"context"
	"crypto/rand"
	"encoding/json"
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
// It returns the job as it is then; its Args.Life is for [Store.Await].
//
// The error is a *Collision if another job has the replication id.
func (s *Store) Replicate(ctx context.Context, r *replicator.Replication, user *string) (*Job, error) {
	token := rand.Text()
	args := &replicator.JobArgs{Replication: r, Definition: token, Life: token, User: user, Added: time.Now()}
	if err := s.computeID(args); err != nil {
		return nil, err
	}
	job := &Job{ID: r.JobID(deref(user)), Status: fdbjobs.Pending, Args: args, State: s.begin(args, nil)}
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		return s.addOrJoin(tx, job, token)
	})
}

// computeID computes the replication id of a definition, if that needs no filter function.
func (s *Store) computeID(args *replicator.JobArgs) (err error) {
	args.ReplicationID, err = s.ReplicationID(args.Replication)
	return err
}

// ReplicationID returns the id that a replication has here, or "" if that needs the code of a filter function.
func (s *Store) ReplicationID(r *replicator.Replication) (string, error) {
	if r.NeedsFilterCode() {
		return "", nil
	}
	id, err := r.ID(s.uuid, "")
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

func (s *Store) addOrJoin(tx kv.Transaction, job *Job, token string) (*Job, error) {
	existing, err := s.read(tx, job.ID)
	switch {
	case errors.Is(err, ErrNotFound):
	case errors.Is(err, fdbjobs.ErrSealed):
		// Whether it is the same nobody can say: it gives way.
		if err := s.unclaim(tx, existing, job.Args.ReplicationID); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case existing.Args.Definition == token:
		return existing, nil // an earlier run of the transaction added it
	case existing.Status != fdbjobs.Finished && existing.Args.Replication.Equal(job.Args.Replication):
		return existing, nil
	case existing.Status != fdbjobs.Finished:
		// It keeps its id until its next run has the new one.
		replaced, args := *existing, *job.Args
		args.Life = existing.Args.Life
		replaced.Args = &args
		s.renew(&replaced)
		job = &replaced
	default:
		if err := s.keepEnd(tx, existing); err != nil {
			return nil, err
		}
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

// Await waits until a job has ended, and returns it. If a life is given (JobArgs.Life), it
// is that one's end, also if it was over and followed by another before anybody looked: of
// the args the Life alone is known then. The error is ErrNotFound if there is no such job, or if it was cancelled, and
// ErrForgotten if how that life ended is not known any more.
func (s *Store) Await(ctx context.Context, jobID, life string) (*Job, error) {
	var ended *fdbjobs.Job
	over := false // the life is, and there is another one
	err := s.jobs.Follow(ctx, jobID, func(job *fdbjobs.Job) (bool, error) {
		now, err := lifeOf(job)
		switch {
		case err != nil:
			return false, err
		case life != "" && now != life:
			over = true
			return true, nil
		case job.Status != fdbjobs.Finished:
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
	if over {
		return s.readEnd(ctx, jobID, life)
	}
	return s.parse(ended)
}

// lifeOf reads no more of a job's args, which may be large, than which life it has.
func lifeOf(job *fdbjobs.Job) (string, error) {
	var args struct {
		Life string `json:"life"`
	}
	if job.ArgsErr != nil {
		return "", fmt.Errorf("reading the replication job: %w", job.ArgsErr)
	}
	if err := json.Unmarshal(job.Args, &args); err != nil {
		return "", fmt.Errorf("reading the args of the replication job %q: %w", job.ID, err)
	}
	return args.Life, nil
}

// ErrForgotten says that a transient job has ended and begun anew, so that it is not known
// any more how the life that was asked for has ended.
var ErrForgotten = errors.New("the replication has ended, and has begun anew since")

// endKeys are the keys that say which life of a job was the latest that another one has
// followed, and how it ended: for those who wait for it and have not seen it yet.
func (s *Store) endKeys(jobID string) (life, state []byte) {
	return s.space.Pack("ended", jobID, "life"), s.space.Pack("ended", jobID, "state")
}

// keepEnd keeps how a job has ended that is about to begin anew.
func (s *Store) keepEnd(tx kv.Transaction, job *Job) error {
	text, err := json.Marshal(job.State)
	if err != nil {
		return fmt.Errorf("writing the state of the replication job %q: %w", job.ID, err)
	}
	life, state := s.endKeys(job.ID)
	tx.Set(life, []byte(job.Args.Life))
	tx.Set(state, text)
	return nil
}

func (s *Store) forgetEnd(tx kv.Transaction, jobID string) {
	life, state := s.endKeys(jobID)
	tx.Clear(life)
	tx.Clear(state)
}

// readEnd returns a job as it was at the end of a life that another one has followed.
func (s *Store) readEnd(ctx context.Context, jobID, life string) (*Job, error) {
	lifeKey, stateKey := s.endKeys(jobID)
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		reads := [2]kv.Future[[]byte]{tx.Snapshot().Get(lifeKey), tx.Snapshot().Get(stateKey)}
		latest, err := reads[0].Await()
		if err != nil {
			return nil, err
		}
		state, err := reads[1].Await()
		switch {
		case err != nil:
			return nil, err
		case latest == nil:
			return nil, fmt.Errorf("%w: %q", ErrNotFound, jobID) // it was cancelled, and added anew
		case string(latest) != life:
			return nil, fmt.Errorf("%w: %q", ErrForgotten, jobID)
		}
		job := &Job{ID: jobID, Status: fdbjobs.Finished, Args: &replicator.JobArgs{Life: life}, State: new(replicator.JobState)}
		if err := json.Unmarshal(state, job.State); err != nil {
			return nil, fmt.Errorf("reading how the replication job %q ended: %w", jobID, err)
		}
		return job, nil
	})
}

// Cancel removes the transient job that has an id, its job id or its replication
// id, unless it has ended: its run stops. It returns the job as it was. The error is
// ErrNotFound if there is no such job.
func (s *Store) Cancel(ctx context.Context, id string) (*Job, error) {
	return s.CancelIf(ctx, id, func(*Job) error { return nil })
}

// CancelIf is [Store.Cancel] of a job that may be cancelled: an error of may keeps it, and is
// returned.
func (s *Store) CancelIf(ctx context.Context, id string, may func(*Job) error) (*Job, error) {
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
		if err := may(job); err != nil {
			return nil, err
		}
		if _, err := s.jobs.Remove(tx, job.ID); err != nil {
			return nil, err
		}
		before = job
		if err := s.dropFailures(tx, job.ID); err != nil {
			return nil, err
		}
		s.forgetEnd(tx, job.ID)
		return job, s.unclaim(tx, job, "")
	})
}
