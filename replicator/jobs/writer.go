package jobs

import (
	"errors"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// writer writes and removes jobs together with the rows that follow from them. Documents, requests, runs and upkeep use it.
type writer struct{ *tables }

// add writes a job. spec has what the job does not say, and may have its Args and Listed if they are encoded already.
func (s *writer) add(tx kv.Transaction, job *Job, spec fdbjobs.Spec) (err error) {
	spec.ID, spec.Owner, spec.Label = job.ID, job.owner(), job.label()
	if job.IsMirror() && job.Args.Replication.Continuous && !spec.Ended {
		tx.Set(s.mirrors.mirrorsKey(MirrorServer(job.Args.Replication), job.ID), nil)
	}
	if spec.Args == nil {
		if spec.Args, err = job.encodeArgs(); err != nil {
			return err
		}
	}
	if spec.Listed == nil {
		if spec.Listed, err = job.summary(); err != nil {
			return err
		}
	}
	if spec.State, err = job.encodeState(); err != nil {
		return err
	}
	return s.jobs.Add(tx, spec)
}

// start adds the job of a document, or gives it a new definition. A running job keeps its state
// until its processor lets go of it, and does not reserve the new replication id before that. The
// job of a periodic replication waits for its first time, unless existing owes a run.
func (s *writer) start(tx kv.Transaction, draft *documentDraft, existing *Job, order uint16) error {
	job := draft.job
	if existing != nil {
		if existing.Args.Replication != nil && existing.IsMirror() && !job.IsMirror() {
			if err := s.mirrors.endMirror(tx, existing); err != nil {
				return err
			}
		}
		if err := s.reservations.noteEndings(tx, existing.running()); err != nil {
			return err
		}
		if err := s.reservations.releaseExcept(tx, existing, job.Args.ReplicationID); err != nil {
			return err
		}
	}
	if existing == nil || existing.Status != fdbjobs.Running {
		// The job layer would keep the state of a pending job too.
		if _, err := s.jobs.Remove(tx, job.ID); err != nil {
			return err
		}
		if existing != nil {
			if err := s.records.dropRecords(tx, existing); err != nil {
				return err
			}
		}
		if err := s.reservations.reserveFree(tx, job.Args.ReplicationID, job.ID); err != nil {
			return err
		}
	}
	spec := fdbjobs.Spec{Order: order}
	now := time.Now()
	if job.Args.Paused != nil {
		spec.Scheduled, spec.Tag = now.Add(pausedFor), tagPaused
	} else if job.Args.Replication.Periodic() && (existing == nil || !existing.owesRun(now)) {
		var err error
		if spec.Scheduled, err = job.Args.Replication.NextRun(time.Time{}, now); err != nil {
			return err
		}
		spec.Tag = waitingTag(spec.Scheduled, now)
	}
	return s.add(tx, job, draft.spec(spec))
}

// remove removes a job. If it is running, its run stops. The jobs that a mirror has made are dropped by upkeep.
func (s *writer) remove(tx kv.Transaction, job *Job) error {
	if job.Args.Replication != nil && job.IsMirror() {
		if err := s.mirrors.endMirror(tx, job); err != nil {
			return err
		}
	}
	if err := s.mirrors.dropMirrored(tx, job); err != nil {
		return err
	}
	return s.removeJob(tx, job)
}

// removeJob is remove for a job whose mirror, or whose row of a mirror's database, the caller takes care of.
func (s *writer) removeJob(tx kv.Transaction, job *Job) error {
	if err := s.reservations.noteEndings(tx, job.running()); err != nil {
		return err
	}
	if _, err := s.jobs.Remove(tx, job.ID); err != nil {
		return err
	}
	if err := s.records.dropRecords(tx, job); err != nil {
		return err
	}
	return s.reservations.releaseExcept(tx, job, "")
}

// readChild reads the job of a mirror's database, also if its replicator database is gone. It returns nil if there is none.
func (s *writer) readChild(tx kv.ReadTransaction, id string) (*Job, error) {
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

// dropDatabase ends the job of a mirror's database, if there is one. The row becomes next, or goes if next is nil.
func (s *writer) dropDatabase(tx kv.Transaction, mirror, database string, next *mirroredRow) error {
	row, err := s.mirrors.readMirrored(tx, mirror, database).Await()
	if err != nil || row == nil {
		return err
	}
	if row.hasJob() {
		job, err := s.readChild(tx, replicator.ChildJobID(mirror, database))
		if err != nil {
			return err
		}
		if job != nil {
			if err := s.removeJob(tx, job); err != nil {
				return err
			}
		}
	}
	s.mirrors.setMirrored(tx, mirror, database, row, next)
	return nil
}
