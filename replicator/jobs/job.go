package jobs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"settee/fdbjobs"
	"settee/replicator"
)

// Job is a replication job.
type Job struct {
	ID     string
	Status fdbjobs.Status
	Args   *replicator.JobArgs
	State  *replicator.JobState

	anew bool // it was given a new definition while it ran, and has not run with that
}

// parse reads a job. The state of one that was given a new definition, and has not run with
// it, is the one that it begins with. With fdbjobs.ErrSealed comes what is known of it without its args.
func (s *Store) parse(raw *fdbjobs.Job) (*Job, error) {
	job := &Job{ID: raw.ID, Status: raw.Status, Args: new(replicator.JobArgs), State: new(replicator.JobState)}
	if err := json.Unmarshal(raw.State, job.State); err != nil {
		return nil, fmt.Errorf("reading the state of the replication job %q: %w", raw.ID, err)
	}
	if raw.ArgsErr != nil {
		return job, fmt.Errorf("reading the replication job: %w", raw.ArgsErr)
	}
	if err := json.Unmarshal(raw.Args, job.Args); err != nil {
		return nil, fmt.Errorf("reading the args of the replication job %q: %w", raw.ID, err)
	}
	if job.Args.Replication == nil {
		return nil, fmt.Errorf("reading the args of the replication job %q: no replication", raw.ID)
	}
	if raw.Status == fdbjobs.Pending && raw.Tag != tagCrashing {
		// By its tag lists find it, and count it. Whoever has queued it for a run that never began, after a crash, wrote
		// no state.
		job.State.State = replicator.StatePending
	}
	if job.Args.Definition != job.State.Definition {
		job.anew = true
		s.renew(job)
	}
	return job, nil
}

// renew gives a job the state that it begins with. A transient one goes on: its new
// definition is of the same replication, with other options.
func (s *Store) renew(job *Job) {
	if !job.Transient() {
		job.State = s.begin(job.Args, nil)
		return
	}
	old := job.State
	job.State = s.begin(job.Args, old.History)
	job.State.ReplicationID, job.State.Stats, job.State.ChangesPending = old.ReplicationID, old.Stats, old.ChangesPending
	job.State.SourceSeq, job.State.ThroughSeq, job.State.CheckpointedSourceSeq = old.SourceSeq, old.ThroughSeq, old.CheckpointedSourceSeq
}

// begin returns the state that a job with these args begins with.
func (s *Store) begin(args *replicator.JobArgs, history replicator.History) *replicator.JobState {
	state := &replicator.JobState{
		State: replicator.StatePending, Definition: args.Definition, ReplicationID: args.ReplicationID,
		LastUpdated: args.Added, History: slices.Clone(history),
	}
	state.History.Push(replicator.Event{Timestamp: args.Added, Type: replicator.EventAdded}, s.settings().MaxHistory)
	return state
}

// encode returns what the job layer stores of a job.
func (j *Job) encode() (args, state json.RawMessage, err error) {
	if args, err = j.Args.Stored(); err != nil {
		return nil, nil, fmt.Errorf("writing the args of the replication job %q: %w", j.ID, err)
	}
	if state, err = json.Marshal(j.State); err != nil {
		return nil, nil, fmt.Errorf("writing the state of the replication job %q: %w", j.ID, err)
	}
	return args, state, nil
}

// Transient reports whether the job was posted to _replicate.
func (j *Job) Transient() bool { return j.Args.Database == nil }

// Condition is the state of the job now. Its State.State may be that of a run
// whose node has died, or of the time before a run that has just begun.
func (j *Job) Condition() replicator.State {
	switch {
	case j.Status == fdbjobs.Running:
		return replicator.StateRunning
	case j.Status == fdbjobs.Pending && j.State.State != replicator.StateCrashing:
		return replicator.StatePending
	}
	return j.State.State
}

// ReplicationID returns the job's replication id, or "" while it is not known.
func (j *Job) ReplicationID() string {
	if j.State.ReplicationID != "" {
		return j.State.ReplicationID
	}
	return j.Args.ReplicationID
}

// has reports whether a replication id is the job's: that of its latest run, or
// that of its definition, which may have changed since.
func (j *Job) has(replicationID string) bool {
	return j.State.ReplicationID == replicationID || j.Args.ReplicationID == replicationID
}

// owner is in whose queue a job waits: its replicator database, or its user. A database
// that is deleted leaves its queue behind, and one that is created by its name has another.
func (j *Job) owner() string {
	if j.Transient() {
		return userPrefix + deref(j.Args.User)
	}
	return databaseOwner(*j.Args.Database, j.instance())
}

// userPrefix begins the owners that are users. No database's name has a colon, and none has
// a bar.
const userPrefix = "user:"

func databaseOwner(name, instance string) string { return name + "|" + instance }

// ownerDatabase returns the database that an owner is, ok false if it is a user.
func ownerDatabase(owner string) (name, instance string, ok bool) {
	if strings.HasPrefix(owner, userPrefix) {
		return "", "", false
	}
	return strings.Cut(owner, "|")
}

// instance is that of the replicator database of a job that is not transient.
func (j *Job) instance() string {
	instance, _, _ := strings.Cut(j.ID, "|")
	return instance
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
