package jobs

import (
	"encoding/json"
	"errors"
	"fmt"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// Collision says that another job has the replication id.
type Collision struct {
	ReplicationID string
	// JobID is the other job. Transient says that it was posted to _replicate;
	// otherwise Database and DocID say where its document is.
	JobID           string
	Transient       bool
	Database, DocID string
}

// CollisionCode is the error code of a transient job that failed because another one has its
// replication id. CouchDB has none for documents.
const CollisionCode = "conflict"

// Error names the replication id alone: not everybody may know whose it is.
func (c *Collision) Error() string {
	return fmt.Sprintf("the replication %s exists already", c.ReplicationID)
}

// Name is Error with the document that the job is of, if it is one's: for who may read that.
func (c *Collision) Name() string {
	if c.Transient {
		return c.Error()
	}
	return fmt.Sprintf("%s, triggered by document `%s` from db `%s`", c.Error(), c.DocID, c.Database)
}

// Explain returns what the job that cannot have the id is told, in CouchDB's words if it is a
// document's. Whose the id is it is told only if that is a document of its own database, as
// whoever reads the one can read the other; of another database or of a user it is not.
func (c *Collision) Explain(to *Job) string {
	if to.Transient() {
		return c.Error()
	}
	subject := fmt.Sprintf("Replication `%s` specified by document `%s`", c.ReplicationID, *to.Args.DocID)
	owner := &Job{ID: c.JobID}
	switch {
	case c.Transient:
		return subject + " already running as transient replication, started via `_replicate` API endpoint"
	case owner.instance() != to.instance():
		return subject + " already started, triggered by a document from another db"
	}
	return subject + fmt.Sprintf(" already started, triggered by document `%s` from db `%s`", c.DocID, c.Database)
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

// claimFree makes a replication id a job's that nobody has claimed. It does not look
// whether a claim holds: several jobs can be added in one transaction, and one that was
// added cannot be read in it.
func (s *Store) claimFree(tx kv.Transaction, replicationID, jobID string) error {
	if replicationID == "" {
		return nil
	}
	key := s.claimKey(replicationID)
	claimed, err := tx.Get(key).Await()
	if err == nil && claimed == nil {
		tx.Set(key, []byte(jobID))
	}
	return err
}

// unclaim gives up the replication ids that are the job's, but the one that it
// keeps.
func (s *Store) unclaim(tx kv.Transaction, job *Job, keep string) error {
	var claims []claim
	for _, id := range []string{job.State.ReplicationID, job.Args.ReplicationID} {
		if id != keep {
			claims = append(claims, claim{id, job.ID})
		}
	}
	return s.release(tx, claims...)
}

// claim is that of a job to a replication id, which may be "".
type claim struct{ replicationID, jobID string }

// claimOf returns the claim that a removed job may have, of which no more than the state
// was read: that tells all that it has, unless it is a transient one that had not ended.
func claimOf(removed *fdbjobs.Job) claim {
	var state replicator.JobState
	// A state that cannot be read leaves a claim behind that does not hold.
	_ = json.Unmarshal(removed.State, &state)
	return claim{state.ReplicationID, removed.ID}
}

// release removes claims, where it is the job that has the id.
func (s *Store) release(tx kv.Transaction, claims ...claim) error {
	reads := make([]kv.Future[[]byte], len(claims))
	for i, c := range claims {
		if c.replicationID != "" {
			reads[i] = tx.Get(s.claimKey(c.replicationID))
		}
	}
	for i, c := range claims {
		if reads[i] == nil {
			continue
		}
		claimed, err := reads[i].Await()
		if err != nil {
			return err
		}
		if string(claimed) == c.jobID {
			tx.Clear(s.claimKey(c.replicationID))
		}
	}
	return nil
}
