package fdbjobs

import (
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// Owner is an owner that has pending or running jobs.
type Owner struct {
	Name string
	// Weight is the owner's share relative to the others, 0 if it is paused.
	Weight float64
	// Usage is the sum of its charges, decayed by each roll-up, in the caller's unit. An owner without jobs before
	// began with the lowest usage of the others.
	Usage float64
	// The number of its jobs by status.
	Pending, Running int64
	// Tagged is the number of its pending jobs with a tag, by tag.
	Tagged map[string]int64
}

// Owners lists the owners with pending or running jobs by name: at most limit owners, from the first name that is
// greater than after. It may include owners that have just lost their last job.
func (f *Fair) Owners(tx kv.ReadTransaction, after string, limit int) ([]Owner, error) {
	if limit <= 0 {
		return nil, nil
	}
	names, err := f.owners(tx, after, limit)
	if err != nil {
		return nil, err
	}
	reading, pending := f.readUsages(tx, tx, f.readRollup(tx), names...), make([]kv.RangeResult, len(names))
	for i, name := range names {
		pending[i] = tx.GetRange(rows.Range(f.counts.Sub(string(Pending), name)), kv.RangeOptions{})
	}
	usages, err := reading.Await()
	if err != nil {
		return nil, err
	}
	owners := make([]Owner, len(names))
	for i, u := range usages {
		o := Owner{Name: names[i], Weight: u.weight, Usage: u.usage(), Running: u.running, Tagged: map[string]int64{}}
		for pair, err := range pending[i].All() {
			if err != nil {
				return nil, err
			}
			c, err := f.parseCounter(pair)
			if err != nil {
				return nil, err
			}
			if o.Pending += c.n; c.part.Tag != "" {
				o.Tagged[c.part.Tag] += c.n
			}
		}
		owners[i] = o
	}
	return owners, nil
}

// live are the statuses of jobs for which an owner has a place in fair share.
var live = []Status{Pending, Running}

// forgetIdle forgets the owners, of some in order, that have no pending or running jobs. It conflicts with adding a job to
// such an owner, and with nothing for the others.
func (q *Queue) forgetIdle(tx kv.Transaction, owners []string) error {
	if len(owners) == 0 {
		return nil
	}
	have := map[string]bool{}
	for t, err := range q.Index().tallies(tx.Snapshot(), owners[0], live) {
		if err != nil {
			return err
		}
		if t.owner > owners[len(owners)-1] {
			break
		}
		have[t.owner] = true
	}
	for _, owner := range owners {
		if have[owner] {
			continue
		}
		for _, status := range live {
			tx.AddReadConflictRange(rows.Range(q.keys.counts.Sub(string(status), owner)))
		}
		if _, err := q.share.forget(tx, owner); err != nil {
			return err
		}
	}
	return nil
}
