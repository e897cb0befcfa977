package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// verifyQueue is the name of the queue of comparisons: each compares both ends of one replication job, and has the id of that job. A
// comparison is removed when it has ended. Its result is among the records of the replication job.
const verifyQueue = "verify"

// Verifications compares both ends of single jobs, for the scheduler.
type Verifications struct {
	*core
	// Queue is the job layer's queue of comparisons.
	Queue   *fdbjobs.Queue
	records *jobRecords
}

// Verification is what is known of the comparisons of a job.
type Verification struct {
	// Since is when somebody has asked for the comparison that waits or is under way; zero if there is none.
	Since time.Time `json:"since,omitzero"`
	// Verified is what the latest one has found; nil if there is none.
	Verified *replicator.JobVerified `json:"verified,omitempty"`
}

func (s *jobRecords) verificationKey(jobID string) []byte { return s.of(jobID).Pack("verification") }

// awaitVerification returns what is known of the comparisons of a job.
func awaitVerification(read kv.Future[[]byte], jobID string) (v Verification, err error) {
	text, err := read.Await()
	if err == nil && text != nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		return v, fmt.Errorf("reading a comparison of the replication job %q: %w", jobID, err)
	}
	return v, nil
}

func (s *jobRecords) setVerification(tx kv.Transaction, jobID string, v Verification) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing a comparison of the replication job %q: %w", jobID, err)
	}
	tx.Set(s.verificationKey(jobID), text)
	return nil
}

// verifyOne adds a comparison of both ends of a job, unless one waits or is under way.
func (s *Requests) verifyOne(tx kv.Transaction, job *Job, token string, now time.Time) error {
	v, err := awaitVerification(tx.Get(s.records.verificationKey(job.ID)), job.ID)
	if err != nil {
		return err
	}
	switch _, err := s.verifications.Get(tx, job.ID); {
	case err == nil:
		return nil
	case !errors.Is(err, fdbjobs.ErrNotFound):
		return err
	}
	v.Since = now
	if err := s.records.setVerification(tx, job.ID, v); err != nil {
		return err
	}
	return s.verifications.Add(tx, fdbjobs.Spec{ID: job.ID, Owner: job.owner(), Token: token})
}

// Record removes a comparison that has ended, and records what it has found, unless its job is gone (of and found are nil then) or
// replicates something else by now. It returns fdbjobs.ErrHalt when that is done, because the comparison is no longer held.
func (s *Verifications) Record(ctx context.Context, h *fdbjobs.Held, of *Job, found *replicator.JobVerified) error {
	err := s.db.Transact(ctx, func(tx kv.Transaction) error {
		raw, err := s.verifications.Get(tx, h.Job().ID)
		switch {
		case errors.Is(err, fdbjobs.ErrNotFound):
			return nil // an earlier run of this function has removed it
		case err != nil:
			return err
		case raw.Lock != h.Job().Lock:
			return nil
		}
		if _, err := s.verifications.Remove(tx, raw.ID); err != nil {
			return err
		}
		job, err := s.read(tx, raw.ID)
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, fdbjobs.ErrSealed):
			return nil // its records go with it
		case err != nil:
			return err
		}
		v, err := awaitVerification(tx.Get(s.records.verificationKey(job.ID)), job.ID)
		if err != nil {
			return err
		}
		if v.Since = (time.Time{}); found != nil && of.Args.Definition == job.Args.Definition {
			v.Verified = found
		}
		return s.records.setVerification(tx, job.ID, v)
	})
	if err != nil {
		return err
	}
	return h.Update(ctx, nil, nil) // releases it
}
