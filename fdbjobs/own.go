package fdbjobs

import (
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// The layer has a derivation of its own, which all queues have: the entries by which jobs are listed, with the tallies that
// count them, and those by which ended jobs are removed. The names of its indexes begin with an underscore.
//
//	_jobs:   (0 or 1, owner, label, tag)  1 for finished jobs. Each adds 1 to the tally of its whole key with the status
//	_expiry: (expires)                    finished jobs that go by themselves, in seconds since the epoch
//
// A pending job without a tag and a running one have the same key in _jobs, so a job that is taken keeps it. Those that run are
// in active, too. In a queue that is not listed ([Derivation].Unlisted) entries of _jobs have no key: pending and running jobs
// add to the tallies, which fair share needs, and finished jobs have no entry.
const (
	indexJobs   = "_jobs"
	indexExpiry = "_expiry"
)

// jobsKey is the number of the elements of a key of _jobs.
const jobsKey = 4

// The first elements of keys of _jobs.
const (
	keyLive  int64 = iota // pending or running
	keyEnded              // finished
)

func (s Status) key() int64 {
	if s == Finished {
		return keyEnded
	}
	return keyLive
}

// isOwn reports whether an index is one of the layer.
func isOwn(index string) bool { return index[0] == '_' }

// allEntries returns all that follows from a row, nothing from nil. over is as for entriesOf.
func (q *Queue) allEntries(id string, r *row) (all []Entry, over error) {
	derived, over := q.entriesOf(id, r)
	return append(q.ownEntries(r), derived...), over
}

// unlisted reports whether the queue's jobs are not listed.
func (q *Queue) unlisted() bool { return q.derivation != nil && q.derivation.Unlisted }

// ownEntries returns what follows from a row by the layer's own derivation, nothing from nil.
func (q *Queue) ownEntries(r *row) (all []Entry) {
	if r == nil {
		return nil
	}
	if !q.unlisted() || r.status != Finished {
		all = append(all, Entry{
			Index: indexJobs, Key: tuple.Tuple{r.status.key(), r.owner, r.label, r.tag},
			Adds: []Add{{Prefix: jobsKey, Name: string(r.status), N: 1}}, keyless: q.unlisted(),
		})
	}
	if r.expires != nil {
		all = append(all, Entry{Index: indexExpiry, Key: tuple.Tuple{*r.expires}})
	}
	return all
}

// jobsOf returns the entries of an owner's jobs in a part, by id. Pending and running jobs without a tag share them.
func (k *keyspace) jobsOf(owner string, p Part) tuple.Subspace {
	return k.entries.Sub(indexJobs, p.Status.key(), owner, p.Label, p.Tag)
}

// activeOf returns the keys of an owner's running jobs with a label, by id.
func (k *keyspace) activeOf(owner, label string) tuple.Subspace { return k.active.Sub(owner, label) }

// counters returns the tallies of live or ended jobs, by owner, label, tag and status.
func (k *keyspace) counters(key int64) tuple.Subspace {
	return k.tallies.Sub(indexJobs, int64(jobsKey), key)
}

// counter is the number of an owner's jobs in a part. It is a tally, and goes when it reaches 0, so a walk over the counters of
// live or of ended jobs meets only owners that have such jobs.
type counter struct {
	owner string
	part  Part
	n     int64
}

func (k *keyspace) parseCounter(pair kv.KeyValue) (c counter, err error) {
	err = rows.ScanKey("a counter of jobs", k.tallies, pair.Key, nil, nil, nil, &c.owner, &c.part.Label, &c.part.Tag, (*string)(&c.part.Status))
	if err == nil {
		c.n, err = rows.ParseInt(pair.Value)
	}
	return c, err
}

// readLive starts reading the counters of an owner's pending and running jobs.
func (q *Queue) readLive(tx kv.ReadTransaction, owner string) kv.Future[[]counter] {
	return readAll(tx, rows.Range(q.keys.counters(keyLive).Sub(owner)), kv.RangeOptions{}, q.keys.parseCounter)
}
