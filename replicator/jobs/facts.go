package jobs

import (
	"context"
	"errors"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// Facts returns what replicator.Explain needs to know of the job. cluster may be nil.
func (j *Job) Facts(now time.Time, cluster *replicator.Cluster) *replicator.Facts {
	f := &replicator.Facts{
		Now: now, Status: replicator.JobStatus(j.Status), Scheduled: j.scheduled, Queued: j.tag == tagCrashing || j.tag == tagWaiting,
		Again: j.tag == tagAgain, Parked: !j.Parked().IsZero(), Turn: j.tag == tagTurn, Redefined: j.redefined, Args: j.Args, State: j.State, Cluster: cluster,
		Mirror: j.Summary,
	}
	if j.Paused {
		f.Pause = &replicator.Pause{Since: j.PausedSince}
	}
	return f
}

// Shown is [Lists.Get]. If the definition of the job cannot be opened, it returns the job as lists have it.
func (s *Lists) Shown(ctx context.Context, id string) (*Job, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		job, err := s.pages.sealedToo(tx.Snapshot())(s.reservations.resolve(tx.Snapshot(), id))
		return s.pages.summed(tx.Snapshot())(s.usage.withPause(tx.Snapshot(), job, err))
	})
}

// sealedToo returns a function that replaces a job whose definition cannot be opened by the job as lists have it.
func (s *pages) sealedToo(tx kv.ReadTransaction) func(*Job, error) (*Job, error) {
	return func(job *Job, err error) (*Job, error) {
		if !errors.Is(err, fdbjobs.ErrSealed) {
			return job, err
		}
		raw, err := s.jobs.Index().Read(tx, job.ID).Await()
		if err != nil {
			return nil, err
		}
		return s.parseListed(raw, ownership{exists: true})
	}
}
