package jobs

import (
	"fmt"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
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
	weights, err := s.jobs.Weights(tx)
	if err != nil {
		return nil, err
	}
	deleted, err := s.deletedDatabases(tx, "")
	if err != nil {
		return nil, err
	}
	q := quiet{}
	for owner, weight := range weights {
		if _, instance, ok := ownerDatabase(owner); ok && weight == 0 {
			q[instance] = quietOwner{owner, false}
		}
	}
	for _, d := range deleted {
		q[d.instance] = quietOwner{d.owner, true}
	}
	return q, nil
}

// timedAtOnce is the number of entries of an index by time that are read at once.
const timedAtOnce = 100

// readTimed calls each with the times of the jobs in an index by time that are not quiet, the earliest first, until it returns false.
// It reads at most maxCounted entries with times until then.
func (s *core) readTimed(tx kv.ReadTransaction, index string, until time.Time, q quiet, each func(at time.Time) bool) error {
	r := fdbjobs.EntryRange{Until: tuple.Tuple{until.Unix() + 1}, Limit: timedAtOnce}
	for read := 0; read < maxCounted; read += timedAtOnce {
		found, err := s.jobs.Entries(tx, index, r).Await()
		if err != nil {
			return err
		}
		for _, e := range found {
			var seconds int64
			if len(e.Key) != 1 || !rows.As(e.Key[0], &seconds) {
				return fmt.Errorf("reading the index %q of replication jobs: %w", index, tuple.ErrMalformed)
			}
			r.After = tuple.Tuple{seconds, e.ID}
			if !q.has(e.ID) && !each(readTime(seconds)) {
				return nil
			}
		}
		if len(found) < timedAtOnce {
			return nil
		}
	}
	return nil
}
