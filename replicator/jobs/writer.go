package jobs

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// writer writes and removes jobs with everything that hangs on them. What follows from a job alone is written by the job layer
// (derivation.go). What depends on other jobs, or is written by others, is kept in line by put:
//
//	what                         when a job goes or changes
//	its run                      is noted, so that the next run with its replication id waits for it (endings.go)
//	reservations                 those of ids that the job has no longer end; a new definition reserves its own (reservations.go)
//	the row of a parked job      goes, unless the job runs: then its run clears it (parked.go)
//	records                      go with the job, and if the state of a document's job begins anew (records.go)
//	the events of a mirror       go if its job is no mirror any more; upkeep drops its databases (mirrors.go)
//	the pause of children        follows a mirror that is paused or resumed; upkeep writes it (mirrorpauses.go)
//	the definition of children   stays if a new definition of the mirror makes the same jobs
//
// A run writes the state of its own job (run.go). Documents, requests and mirrors use the writer, and so do runs whose job is gone.
type writer struct {
	*core
	reservations *reservations
	parking      *parkedRows
	records      *jobRecords
	mirrors      *mirrorRows
}

// put adds a job, replaces it or removes it. old is the job as the transaction has read it, nil if there is none. next is what
// it becomes, nil if it is removed; a running job keeps its state. spec has what next does not say, and may have its Args and
// Listed if they are encoded already. The error is a *Collision if the job was posted and another one has its replication id.
func (s *writer) put(tx kv.Transaction, old, next *Job, spec fdbjobs.Spec) error {
	if old != nil {
		if err := s.leave(tx, left{
			run: old.running(), reserved: old.replicationIDs(next), parkedAt: old.leaves(next), forgotten: old.isForgotten(next),
		}); err != nil {
			return err
		}
		if old.IsMirror() && (next == nil || !next.IsMirror()) {
			if err := s.mirrors.endMirror(tx, old); err != nil {
				return err
			}
		}
		if old.IsMirror() && next != nil && next.IsMirror() && (old.Args.Paused != nil) != (next.Args.Paused != nil) {
			if err := s.mirrors.wakeUpkeep(tx); err != nil {
				return err
			}
		}
		if next == nil || old.Status == fdbjobs.Pending && next.State != old.State { // the job layer would keep the state
			if _, err := s.jobs.Remove(tx, old.ID); err != nil || next == nil {
				return err
			}
		}
	}
	if keepChildren(old, next) {
		spec.Args, spec.Listed = nil, nil // without them
	}
	if err := s.reserveFor(tx, old, next, spec); err != nil {
		return err
	}
	return s.add(tx, next, spec)
}

// replicationIDs returns the ids that a job may have reserved, without those of what it becomes, if that is not nil.
func (j *Job) replicationIDs(next *Job) (ids []string) {
	for _, id := range []string{j.State.ReplicationID, j.Args.ReplicationID} {
		if id != "" && !slices.Contains(ids, id) && (next == nil || !next.has(id)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// leaves returns the source in the row of a parked job that goes when the job is replaced.
func (j *Job) leaves(next *Job) source {
	if next != nil && j.Status == fdbjobs.Running {
		return source{}
	}
	return j.parkedAt
}

// isForgotten reports whether the records of a job go when it is replaced.
func (j *Job) isForgotten(next *Job) bool {
	anew := func() bool {
		return j.redefined || next.State.Definition != j.State.Definition || next.State.Runs < j.State.Runs
	}
	return next == nil || j.Status != fdbjobs.Running && !next.posted() && next.State != j.State && anew()
}

// keepChildren sets the definition of the jobs that a mirror makes which replaces another one. It reports whether there is one
// besides that of the mirror.
func keepChildren(old, next *Job) bool {
	children := ""
	if old != nil && old.IsMirror() && next.IsMirror() && old.sameUser(next) {
		const database = "any"
		before := cmp.Or(old.Args.Children, old.Args.Definition)
		if before != next.Args.Definition && old.Args.Replication.Child(database).Equal(next.Args.Replication.Child(database)) {
			children = before
		}
	}
	next.Args.Children = children
	return children != ""
}

// reserveFor reserves the replication id of a new definition. A posted job must get it. The job of a document need not: its run
// finds out; and while an earlier run goes on, that one has its id. A job that waits for its turn has no reservation.
func (s *writer) reserveFor(tx kv.Transaction, old, next *Job, spec fdbjobs.Spec) error {
	id := next.Args.ReplicationID
	switch {
	case id == "" || spec.Ended || spec.Tag == tagTurn || old != nil && old.Status != fdbjobs.Finished && old.Args.Definition == next.Args.Definition:
		return nil
	case next.posted():
		return s.reservations.reserve(tx, id, next)
	case old != nil && old.Status == fdbjobs.Running:
		return nil
	}
	return s.reservations.reserveFree(tx, id, next.ID)
}

// add writes a job.
func (s *writer) add(tx kv.Transaction, job *Job, spec fdbjobs.Spec) error {
	spec, err := job.spec(spec)
	if err != nil {
		return err
	}
	return s.jobs.Add(tx, spec)
}

// spec returns a spec with everything that follows from the job. Args and Listed stay if they are set.
func (j *Job) spec(spec fdbjobs.Spec) (_ fdbjobs.Spec, err error) {
	spec.ID, spec.Owner, spec.Label = j.ID, j.owner(), j.label()
	if spec.Args == nil {
		if spec.Args, err = j.encodeArgs(); err != nil {
			return spec, err
		}
	}
	if spec.Listed == nil {
		if spec.Listed, err = j.summary(); err != nil {
			return spec, err
		}
	}
	spec.State, err = encodeState(j.ID, j.State)
	return spec, err
}

// left is what jobs leave behind that are removed or replaced.
type left struct {
	run       endingRun
	reserved  []string // replication ids that it may have reserved
	parkedAt  source
	forgotten bool // its records go
}

// leave removes what jobs leave behind.
func (s *writer) leave(tx kv.Transaction, all ...left) error {
	runs, parked := make([]endingRun, len(all)), make([]place, len(all))
	var reserved []reservation
	for i, l := range all {
		runs[i], parked[i] = l.run, place{l.parkedAt, l.run.jobID}
		for _, id := range l.reserved {
			if id != "" {
				reserved = append(reserved, reservation{id, l.run.jobID})
			}
		}
		if l.forgotten {
			s.records.clearRecords(tx, l.run.jobID)
		}
	}
	if err := s.parking.unpark(tx, parked...); err != nil {
		return err
	}
	if err := s.reservations.noteEndings(tx, runs...); err != nil { // while they still have their reservations
		return err
	}
	return s.reservations.release(tx, reserved...)
}

// start adds the job of a document, or gives it a new definition. The job of a periodic replication waits for its first
// time, unless existing owes a run.
func (s *writer) start(tx kv.Transaction, draft *documentDraft, existing *Job) error {
	job := draft.job
	var spec fdbjobs.Spec
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
	return s.put(tx, existing, job, draft.spec(spec))
}

// remove removes a job. If it is running, its run stops. The jobs that a mirror has made are dropped by upkeep.
func (s *writer) remove(tx kv.Transaction, job *Job) error {
	return s.put(tx, job, nil, fdbjobs.Spec{})
}

// removeChild removes the job of a mirror's database, if there is one.
func (s *writer) removeChild(tx kv.Transaction, id string) error {
	job, err := s.find(tx, id)
	if err != nil || job == nil {
		return err
	}
	return s.remove(tx, job)
}

// documentDraft is a revision that can have a job: what the hook before its commit passes to the one after it.
type documentDraft struct {
	document *replicator.Document
	job      *Job
	args     json.RawMessage // of the job, in their stored form
	listed   json.RawMessage // of the job
}

// spec returns a spec with what is encoded of the job already.
func (d *documentDraft) spec(spec fdbjobs.Spec) fdbjobs.Spec {
	spec.Args, spec.Listed = d.args, d.listed
	return spec
}
