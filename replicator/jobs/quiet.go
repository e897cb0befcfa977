package jobs

import (
	"fmt"
	"strings"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
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

// timedJob is an entry of an index whose keys end with a time: marks and needs.
type timedJob struct {
	id string
	at int64 // seconds since the Unix epoch
}

// key returns the end of the entry's key.
func (j timedJob) key() tuple.Tuple { return tuple.Tuple{j.at, j.id} }

// timed starts reading entries of such an index, by time. The prefix of the range is all before the time.
func (s *core) timed(tx kv.ReadTransaction, index string, r fdbjobs.EntryRange) kv.Future[[]timedJob] {
	return kv.Map(s.jobs.Entries(tx, index, r), func(found []fdbjobs.Entry) ([]timedJob, error) {
		out := make([]timedJob, len(found))
		for i, e := range found {
			if out[i].id = e.ID; len(e.Key) != len(r.Prefix)+1 || !rows.As(e.Key[len(r.Prefix)], &out[i].at) {
				return nil, fmt.Errorf("reading the index %q of replication jobs: %w", index, tuple.ErrMalformed)
			}
		}
		return out, nil
	})
}

// timedAtOnce is the number of entries of an index by time that are read at once.
const timedAtOnce = 100

// eachTimed calls do with the jobs of a range that are not quiet, the earliest first, until it returns false. It reads at most maxCounted
// entries.
func (s *core) eachTimed(tx kv.ReadTransaction, index string, r fdbjobs.EntryRange, q quiet, do func(timedJob) bool) error {
	r.Limit = timedAtOnce
	for read := 0; read < maxCounted; read += timedAtOnce {
		found, err := s.timed(tx, index, r).Await()
		if err != nil {
			return err
		}
		for _, j := range found {
			if !q.has(j.id) && !do(j) {
				return nil
			}
		}
		if len(found) < timedAtOnce {
			return nil
		}
		r.After = found[len(found)-1].key()
	}
	return nil
}
