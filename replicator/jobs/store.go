package jobs

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/tuple"
	"settee/replicator"
)

// Type is the job type of replications.
const Type = "replication"

// ErrNotFound says that there is no such replication job.
var ErrNotFound = errors.New("no such replication")

// Collision says that another job has the replication id.
type Collision struct {
	ReplicationID string
	// JobID is the other job. Transient says that it was posted to _replicate;
	// otherwise Database and DocID say where its document is.
	JobID           string
	Transient       bool
	Database, DocID string
}

// Error names the replication id alone: not everybody may know whose it is.
func (c *Collision) Error() string {
	return fmt.Sprintf("the replication %s exists already", c.ReplicationID)
}

// Options are the options of [Open].
type Options struct {
	// UUID is the server uuid that replication ids cover ([couchdb] uuid). Default: the
	// store's own.
	UUID string
	// MaxHistory is how many events a job remembers. Default: 10.
	MaxHistory int
}

// Store is the replication jobs of a store. It is safe for concurrent use.
type Store struct {
	db         kv.Database
	jobs       *fdbjobs.Type
	space      tuple.Subspace
	uuid       string
	maxHistory int
}

// Open returns the replication jobs of a store. It reads the server uuid, or makes
// it if there is none yet.
func Open(ctx context.Context, db kv.Database, layer *fdbjobs.Layer, opts Options) (*Store, error) {
	s := &Store{
		db: db, jobs: layer.Type(Type), space: tuple.NewSubspace("replicator"),
		uuid: opts.UUID, maxHistory: opts.MaxHistory,
	}
	if s.maxHistory == 0 {
		s.maxHistory = 10
	}
	if s.uuid != "" {
		return s, nil
	}
	fresh, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("making a server uuid: %w", err)
	}
	s.uuid, err = kv.TransactValue(ctx, db, func(tx kv.Transaction) (string, error) {
		value, err := tx.Get(s.space.Pack("uuid")).Await()
		if err != nil || value != nil {
			return string(value), err
		}
		made := hex.EncodeToString(fresh[:])
		tx.Set(s.space.Pack("uuid"), []byte(made))
		return made, nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the server uuid: %w", err)
	}
	return s, nil
}

// ServerUUID returns the uuid that replication ids cover.
func (s *Store) ServerUUID() string { return s.uuid }

// Jobs returns the job layer's view of these jobs: for activity monitors and
// timeouts.
func (s *Store) Jobs() *fdbjobs.Type { return s.jobs }

// SetTimeout sets how long a running job may go without a sign of life before it
// is queued again.
func (s *Store) SetTimeout(ctx context.Context, timeout time.Duration) error {
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		return s.jobs.SetTimeout(tx, timeout)
	})
}

// Job is a replication job.
type Job struct {
	ID     string
	Status fdbjobs.Status
	Args   *replicator.JobArgs
	State  *replicator.JobState
}

func parseJob(raw *fdbjobs.Job) (*Job, error) {
	job := &Job{ID: raw.ID, Status: raw.Status, Args: new(replicator.JobArgs), State: new(replicator.JobState)}
	if err := json.Unmarshal(raw.State, job.State); err != nil {
		return nil, fmt.Errorf("reading the state of the replication job %q: %w", raw.ID, err)
	}
	if err := json.Unmarshal(raw.Args, job.Args); err != nil {
		return nil, fmt.Errorf("reading the args of the replication job %q: %w", raw.ID, err)
	}
	if job.Args.Replication == nil {
		return nil, fmt.Errorf("reading the args of the replication job %q: no replication", raw.ID)
	}
	return job, nil
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

// owner is in whose queue a job waits. No database's name has a colon.
func owner(args *replicator.JobArgs) string {
	if args.Database != nil {
		return *args.Database
	}
	return "user:" + deref(args.User)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// read reads a job. The error is ErrNotFound if there is none.
func (s *Store) read(tx kv.ReadTransaction, id string) (*Job, error) {
	raw, err := s.jobs.Get(tx, id)
	if errors.Is(err, fdbjobs.ErrNotFound) {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if err != nil {
		return nil, err
	}
	return parseJob(raw)
}

// resolve returns the job that has an id, as its job id or its replication id.
func (s *Store) resolve(tx kv.ReadTransaction, id string) (*Job, error) {
	if len(id) > fdbjobs.MaxNameSize {
		return nil, ErrNotFound // no key can be made of it
	}
	claimed := tx.Get(s.claimKey(id))
	job, err := s.read(tx, id)
	if !errors.Is(err, ErrNotFound) {
		return job, err
	}
	jobID, err := claimed.Await()
	if err != nil {
		return nil, err
	}
	if jobID == nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	job, err = s.read(tx, string(jobID))
	if err == nil && !job.has(id) {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	return job, err
}

func (s *Store) claimKey(replicationID string) []byte {
	return s.space.Pack("replication_ids", replicationID)
}

// claim makes a replication id a job's. The error is a *Collision if another job
// has it.
func (s *Store) claim(tx kv.Transaction, replicationID, jobID string) error {
	key := s.claimKey(replicationID)
	claimed, err := tx.Get(key).Await()
	if err != nil || string(claimed) == jobID {
		return err
	}
	if claimed != nil {
		other, err := s.read(tx, string(claimed))
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return err
		case other.Status != fdbjobs.Finished && other.has(replicationID):
			return &Collision{
				ReplicationID: replicationID, JobID: other.ID, Transient: other.Transient(),
				Database: deref(other.Args.Database), DocID: deref(other.Args.DocID),
			}
		}
	}
	tx.Set(key, []byte(jobID))
	return nil
}

// unclaim gives up the replication ids that are the job's, but the one that it
// keeps.
func (s *Store) unclaim(tx kv.Transaction, job *Job, keep string) error {
	for _, id := range []string{job.State.ReplicationID, job.Args.ReplicationID} {
		if id == "" || id == keep {
			continue
		}
		key := s.claimKey(id)
		claimed, err := tx.Get(key).Await()
		if err != nil {
			return err
		}
		if string(claimed) == job.ID {
			tx.Clear(key)
		}
	}
	return nil
}
