package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/audit"
	"settee/pkg/kv"
	"settee/replicator"
)

// Requests is what users do with jobs by HTTP requests: they add, await, cancel, start and acknowledge them.
type Requests struct {
	*core
	reservations *reservations
	parking      *parkedRows
	records      *jobRecords
	mirrors      *mirrorRows
	writer       *writer
	pages        *pages
}

// Replicate adds a transient job. If a job for the same replication exists and has not ended, it
// returns that one; if r has other passwords or options, that job continues with them. user is
// the user that asks; nil means the anonymous user. Args.Life of the returned job is for
// [Requests.Await].
//
// The error is a *Collision if another job holds the replication id.
func (s *Requests) Replicate(ctx context.Context, r *replicator.Replication, user *string) (*Job, error) {
	token := rand.Text()
	args := &replicator.JobArgs{Replication: r, Definition: token, Life: token, User: user, Added: time.Now()}
	if err := s.computeID(args); err != nil {
		return nil, err
	}
	job := &Job{ID: r.JobID(deref(user)), Status: fdbjobs.Pending, Args: args, State: s.initialState(args, nil)}
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		return s.addOrJoin(tx, job, token)
	})
}

// ReplicationID returns the id of a replication on this server, or "" if it depends on a filter
// function.
func (s *Requests) ReplicationID(r *replicator.Replication) (string, error) {
	return s.replicationID(r)
}

func (s *Requests) addOrJoin(tx kv.Transaction, job *Job, token string) (*Job, error) {
	existing, err := s.read(tx, job.ID)
	switch {
	case errors.Is(err, ErrNotFound):
	case errors.Is(err, fdbjobs.ErrSealed):
		// The existing job cannot be compared. It is replaced.
	case err != nil:
		return nil, err
	case existing.Args.Definition == token:
		return existing, nil // an earlier attempt of this transaction added it
	case existing.Status != fdbjobs.Finished && existing.Args.Replication.Equal(job.Args.Replication):
		return existing, s.reserveAgain(tx, existing)
	case existing.Status != fdbjobs.Finished:
		// The job keeps its id until its next run has the new one.
		replaced, args := *existing, *job.Args
		args.Life = existing.Args.Life
		replaced.Args = &args
		s.renew(&replaced)
		job = &replaced
	default:
		if err := s.records.keepEnd(tx, existing); err != nil {
			return nil, err
		}
	}
	if existing != nil {
		job.State.Runs = existing.State.Runs // their records stay
	}
	return job, s.writer.put(tx, existing, job, fdbjobs.Spec{Token: token})
}

// reserveAgain reserves the replication id of a job that another job may have taken, because this one had opened no databases.
func (s *Requests) reserveAgain(tx kv.Transaction, job *Job) error {
	id := job.ReplicationID()
	if id == "" {
		return nil
	}
	return s.reservations.reserve(tx, id, job)
}

// Await waits until a job has ended, and returns it. If life (JobArgs.Life) is not empty, Await
// returns the end of that life, even if the job was added again since; Args has only the Life
// then. It returns ErrNotFound if there is no such job or it was cancelled, and ErrForgotten if
// the end of that life is no longer known.
func (s *Requests) Await(ctx context.Context, jobID, life string) (*Job, error) {
	over := false // the life has ended, and another one has begun
	var unreadable error
	ended, err := s.jobs.Wait(ctx, jobID, func(job *fdbjobs.Job) bool {
		var now string
		now, unreadable = lifeOf(job)
		over = life != "" && now != life
		return unreadable != nil || over || job.Status == fdbjobs.Finished
	})
	switch {
	case errors.Is(err, fdbjobs.ErrNotFound):
		return nil, fmt.Errorf("%w: %q", ErrNotFound, jobID)
	case err != nil || unreadable != nil:
		return nil, cmp.Or(err, unreadable)
	}
	if over {
		return s.readEnd(ctx, jobID, life)
	}
	return s.parse(ended)
}

// lifeOf parses only the Life of a job's args, which may be large.
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

// ErrForgotten is returned if a transient job has ended and was added again, so that the end of
// the given life is no longer known.
var ErrForgotten = errors.New("the replication has ended and was added again since")

// readEnd returns a job as it was at the end of an earlier life.
func (s *Requests) readEnd(ctx context.Context, jobID, life string) (*Job, error) {
	lifeKey, stateKey := s.records.endKeys(jobID)
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
			return nil, fmt.Errorf("%w: %q", ErrNotFound, jobID) // it was cancelled and added again
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

// ErrEnded is returned for a job that has ended.
var ErrEnded = errors.New("the replication has ended")

// RunNow makes a pending or crashing job due, so that it need not wait for its time. Its errors still
// count. It returns the job as it was before. A job that runs, is due or is paused is not changed, but a mirror looks at all
// databases, at once if it runs, and their jobs compare everything. It returns
// ErrNotFound if there is no job with that job id or replication id, and ErrEnded if it has ended.
func (s *Requests) RunNow(ctx context.Context, id string) (*Job, error) {
	var before *Job // that an earlier attempt found
	token, entry := rand.Text(), audit.New(ctx, audit.Ran)
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		job, err := s.reservations.resolve(tx, id)
		if err != nil {
			return nil, err
		}
		if job.Status == fdbjobs.Finished {
			return nil, fmt.Errorf("%w: %q", ErrEnded, id)
		}
		if err := auditedJob(entry, job).Record(tx); err != nil {
			return nil, err
		}
		if job.IsMirror() {
			s.mirrors.addEvents(tx, job.ID, token, MirrorEvent{Database: runNowName, Type: EventRunNow})
		}
		if before == nil {
			before = job
		}
		if job.Args.Paused != nil {
			return before, nil
		}
		if !job.Parked().IsZero() {
			if err := s.parking.unpark(tx, place{job.parkedAt, job.ID}); err != nil {
				return nil, err
			}
		}
		_, err = s.jobs.MakeDue(tx, []string{job.ID}, job.tag, dueTags[job.tag])
		return before, err
	})
}

// VerifyNow makes a mirror compare its two servers as soon as it runs and is not paused, and a replication node both ends of any other job, whatever its
// state. It returns the job, or ErrNotFound if there is none with that job id or replication id, and ErrEnded for a mirror that has ended.
func (s *Requests) VerifyNow(ctx context.Context, id string) (*Job, error) {
	token, now := rand.Text(), time.Now().UTC().Truncate(time.Second)
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		job, err := s.reservations.resolve(tx, id)
		switch {
		case err != nil:
			return nil, err
		case !job.IsMirror():
			return job, s.verifyOne(tx, job, token, now)
		case job.Status == fdbjobs.Finished:
			return nil, fmt.Errorf("%w: %q", ErrEnded, id)
		}
		s.mirrors.addEvents(tx, job.ID, token, MirrorEvent{Database: verifyName, Type: EventVerify})
		return job, nil
	})
}

// Cancel removes the transient job with that job id or replication id, unless it has ended; its run stops. may, if not nil,
// allows that: its error is returned, and the job stays. Cancel returns the job as it was, or ErrNotFound if there is no such job.
func (s *Requests) Cancel(ctx context.Context, id string, may func(*Job) error) (*Job, error) {
	// before is what an earlier attempt found. If that attempt was committed, the job is gone.
	var before *Job
	entry := audit.New(ctx, audit.Deleted)
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		job, err := s.reservations.resolve(tx, id)
		switch {
		case errors.Is(err, ErrNotFound) && before != nil:
			return before, nil
		case err != nil:
			return nil, err
		case job.Status == fdbjobs.Finished || !job.posted():
			return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
		}
		if may != nil {
			if err := may(job); err != nil {
				return nil, err
			}
		}
		if err := auditedJob(entry, job).Record(tx); err != nil {
			return nil, err
		}
		before = job
		return job, s.writer.remove(tx, job)
	})
}
