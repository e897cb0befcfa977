package jobs

import (
	"errors"
	"fmt"

	"settee/fdbjobs"
	"settee/pkg/kv"
)

// Collision is the error of a job whose replication id another job holds.
type Collision struct {
	ReplicationID string
	// JobID is the other job. If it is Transient, User posted it, or an anonymous client if User is nil. Otherwise Database and DocID
	// are its document.
	JobID           string
	Transient       bool
	User            *string
	Database, DocID string
}

// CollisionCode is the error code of a transient job that failed with a Collision. CouchDB has no
// code for documents.
const CollisionCode = "conflict"

// Error names only the replication id, because not every user may know which job holds it.
func (c *Collision) Error() string {
	return fmt.Sprintf("the replication %s exists already", c.ReplicationID)
}

// Name is Error with the document of the other job, or the user who posted it, for users who may see that job.
func (c *Collision) Name() string {
	switch {
	case c.Transient && c.User == nil:
		return c.Error() + ", posted without a user"
	case c.Transient:
		return fmt.Sprintf("%s, posted by the user `%s`", c.Error(), *c.User)
	}
	return fmt.Sprintf("%s, triggered by document `%s` from db `%s`", c.Error(), c.DocID, c.Database)
}

// Explain returns the reason for the job that cannot have the id, in CouchDB's words if it
// belongs to a document. It names the other job's document only if both are in the same database,
// where a user that can read one can read the other.
func (c *Collision) Explain(to *Job) string {
	if to.Transient() {
		return c.Error()
	}
	_, docID, _ := to.Document()
	subject := fmt.Sprintf("Replication `%s` specified by document `%s`", c.ReplicationID, docID)
	owner := &Job{ID: c.JobID}
	switch {
	case c.Transient:
		return subject + " already running as transient replication, started via `_replicate` API endpoint"
	case owner.instance() != to.instance():
		return subject + " already started, triggered by a document from another db"
	}
	return subject + fmt.Sprintf(" already started, triggered by document `%s` from db `%s`", c.DocID, c.Database)
}

// reservations are the rows that say which job has a replication id, and which run must end before another one may begin with it
// (endings.go).
type reservations struct{ *core }

func (s *reservations) reservationKey(replicationID string) []byte {
	return s.space.Pack("replication_ids", replicationID)
}

// reserve reserves a replication id for a job. The error is a *Collision if another job keeps it. A run from which another job
// takes the id finds that out in [Run.Opened].
func (s *reservations) reserve(tx kv.Transaction, replicationID string, job *Job) error {
	key := s.reservationKey(replicationID)
	reserved, err := tx.Get(key).Await()
	if err != nil || string(reserved) == job.ID {
		return err
	}
	if reserved != nil {
		other, err := s.read(tx, string(reserved))
		switch {
		case errors.Is(err, ErrNotFound):
			if err := s.noteDeleted(tx, string(reserved)); err != nil {
				return err
			}
		case err != nil:
			return err
		case other.keeps(replicationID, job):
			database, docID, _ := other.Document()
			return &Collision{
				ReplicationID: replicationID, JobID: other.ID, Transient: other.Transient(), User: other.Args.User,
				Database: database, DocID: docID,
			}
		}
	}
	tx.Set(key, []byte(job.ID))
	return nil
}

// reserveFree reserves a replication id for a job, unless there is a reservation of it. It does not
// check whether that holds: one transaction may add several jobs, and cannot read a job that it has
// added.
func (s *reservations) reserveFree(tx kv.Transaction, replicationID, jobID string) error {
	if replicationID == "" {
		return nil
	}
	key := s.reservationKey(replicationID)
	reserved, err := tx.Get(key).Await()
	if err == nil && reserved == nil {
		tx.Set(key, []byte(jobID))
	}
	return err
}

// releaseExcept releases the job's replication ids, except keep.
func (s *reservations) releaseExcept(tx kv.Transaction, job *Job, keep string) error {
	var reservations []reservation
	for _, id := range []string{job.State.ReplicationID, job.Args.ReplicationID} {
		if id != keep && id != "" {
			reservations = append(reservations, reservation{id, job.ID})
		}
	}
	return s.release(tx, reservations...)
}

// reservation is a job's reservation of a replication id.
type reservation struct{ replicationID, jobID string }

// release removes reservations that are still the job's.
func (s *reservations) release(tx kv.Transaction, reservations ...reservation) error {
	reserved, err := kv.Each(reservations, func(r reservation) kv.Future[[]byte] { return tx.Get(s.reservationKey(r.replicationID)) })
	for i, jobID := range reserved {
		if jobID != nil && string(jobID) == reservations[i].jobID {
			tx.Clear(s.reservationKey(reservations[i].replicationID))
		}
	}
	return err
}

// resolve returns the job with that job id or replication id.
func (s *reservations) resolve(tx kv.ReadTransaction, id string) (*Job, error) {
	if len(id) > fdbjobs.MaxNameSize {
		return nil, ErrNotFound // too long for a key
	}
	reserved := tx.Get(s.reservationKey(id))
	job, err := s.read(tx, id)
	if !errors.Is(err, ErrNotFound) {
		return job, err
	}
	jobID, err := reserved.Await()
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
