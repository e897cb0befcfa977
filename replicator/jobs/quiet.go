package jobs

import (
	"fmt"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/shares"
)

// quiet are the owners of the databases whose jobs need nobody, by instance: those that are paused, and those that are deleted, whose
// jobs upkeep removes. Both are few. The jobs of such databases keep their entries, so what is counted is without theirs.
type quiet map[string]quietOwner

type quietOwner struct {
	name    string
	deleted bool
}

// has reports whether a job is one of a quiet database.
func (q quiet) has(jobID string) bool {
	instance, _, _ := strings.Cut(jobID, "|")
	_, is := q[instance]
	return is
}

func (s *core) readQuiet(tx kv.ReadTransaction) (quiet, error) {
	paused, err := s.shares.Paused(tx)
	if err != nil {
		return nil, err
	}
	deleted, err := s.deletedDatabases(tx, "")
	if err != nil {
		return nil, err
	}
	q := quiet{}
	for owner := range paused {
		_, instance, _ := shares.ParseOwner(owner)
		q[instance] = quietOwner{owner, false}
	}
	for _, d := range deleted {
		q[d.instance] = quietOwner{d.owner, true}
	}
	return q, nil
}

// markedJob is an entry of the index marks.
type markedJob struct {
	id string
	at int64 // seconds since the Unix epoch
}

// key returns the end of the entry's key.
func (m markedJob) key() tuple.Tuple { return tuple.Tuple{m.at, m.id} }

// marked starts reading the jobs with a mark, by time. The range is below the mark.
func (s *core) marked(tx kv.ReadTransaction, mark replicator.MarkType, r fdbjobs.EntryRange) kv.Future[[]markedJob] {
	r.Prefix = tuple.Tuple{string(mark)}
	return kv.Map(s.jobs.Entries(tx, indexMarks, r), func(found []fdbjobs.Entry) ([]markedJob, error) {
		out := make([]markedJob, len(found))
		for i, e := range found {
			if out[i].id = e.ID; !rows.Store(e.Key, nil, &out[i].at) {
				return nil, fmt.Errorf("reading the marks of replication jobs: %w", tuple.ErrMalformed)
			}
		}
		return out, nil
	})
}

// entriesAtOnce is the number of entries of an index by time that are read at once.
const entriesAtOnce = 100

// eachMarked calls do with the times of the jobs with a mark that are not quiet, the earliest first, until it returns false.
// It reads at most maxCounted entries with times until then.
func (s *core) eachMarked(tx kv.ReadTransaction, mark replicator.MarkType, until time.Time, q quiet, do func(at time.Time) bool) error {
	r := fdbjobs.EntryRange{Until: tuple.Tuple{until.Unix() + 1}, Limit: entriesAtOnce}
	for read := 0; read < maxCounted; read += entriesAtOnce {
		found, err := s.marked(tx, mark, r).Await()
		if err != nil {
			return err
		}
		for _, m := range found {
			if !q.has(m.id) && !do(readTime(m.at)) {
				return nil
			}
		}
		if len(found) < entriesAtOnce {
			return nil
		}
		r.After = found[len(found)-1].key()
	}
	return nil
}
