package fdbjobs

import (
	"cmp"
	"fmt"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Owner is an owner that has pending or running jobs.
type Owner struct {
	Name string
	// Weight is the owner's share relative to the others.
	Weight float64
	// Usage is the sum of its charges, decayed by each roll-up, in the caller's unit. An owner without jobs before
	// began with the lowest usage of the others.
	Usage float64
	// The number of its jobs by status.
	Pending, Running, Finished int64
	// Tagged is the number of its jobs with a tag, by status and tag.
	Tagged map[Part]int64
}

// Owners lists the owners with pending or running jobs by name: at most limit owners, from the first name that is
// greater than after. It may include owners that have just lost their last job.
func (q *Queue) Owners(tx kv.ReadTransaction, after string, limit int) ([]Owner, error) {
	if limit <= 0 {
		return nil, nil
	}
	rolled := q.share.readRollup(tx)
	names, standings, err := q.share.owners(tx, after, limit)
	if err != nil {
		return nil, err
	}
	usages, counts := make([]usageRead, len(names)), make([]ownerCounts, len(names))
	tagged := make([]kv.RangeResult, len(names))
	for i, name := range names {
		usages[i], counts[i] = q.share.readCharged(tx, name, standings[i]), q.readCounts(tx, name)
		tagged[i] = tx.GetRange(rows.Range(q.keys.ownedTagged.Sub(name)), kv.RangeOptions{})
	}
	r, err := awaitRollup(rolled)
	if err != nil {
		return nil, err
	}
	owners := make([]Owner, len(names))
	for i, name := range names {
		u, err := usages[i].await()
		if err != nil {
			return nil, err
		}
		owners[i] = Owner{Name: name, Weight: u.weight, Usage: u.usage(r)}
		if err := counts[i].await(&owners[i]); err != nil {
			return nil, err
		}
		if owners[i].Tagged, err = q.countTagged(tagged[i]); err != nil {
			return nil, err
		}
	}
	return owners, nil
}

// countTagged returns the numbers of an owner's jobs with tags.
func (q *Queue) countTagged(read kv.RangeResult) (map[Part]int64, error) {
	counts := map[Part]int64{}
	for pair, err := range read.All() {
		if err != nil {
			return nil, err
		}
		key, err := q.keys.ownedTagged.Unpack(pair.Key)
		var status, tag string
		if err == nil && (len(key) != 3 || !rows.As(key[1], &status) || !rows.As(key[2], &tag)) {
			err = tuple.ErrMalformed
		}
		n, bad := rows.ParseInt(pair.Value)
		if err := cmp.Or(err, bad); err != nil {
			return nil, fmt.Errorf("reading how many jobs have a tag: %w", err)
		}
		if n != 0 {
			counts[Status(status).In("", tag)] = n
		}
	}
	return counts, nil
}

// ownerCounts is a pending read of the number of an owner's jobs.
type ownerCounts struct{ pending, running, finished kv.Future[[]byte] }

func (q *Queue) readCounts(tx kv.ReadTransaction, owner string) ownerCounts {
	return ownerCounts{
		pending:  tx.Get(q.keys.ownedCount.Pack(owner, string(Pending))),
		running:  tx.Get(q.keys.ownedCount.Pack(owner, string(Running))),
		finished: tx.Get(q.keys.ownedCount.Pack(owner, string(Finished))),
	}
}

// await sets the counts of o.
func (c ownerCounts) await(o *Owner) error {
	for _, count := range []struct {
		read kv.Future[[]byte]
		into *int64
	}{{c.pending, &o.Pending}, {c.running, &o.Running}, {c.finished, &o.Finished}} {
		var err error
		if *count.into, err = rows.AwaitInt(count.read); err != nil {
			return err
		}
	}
	return nil
}

// settle forgets the usage of owners without pending or running jobs, and the counts of owners without any jobs. It
// conflicts with adding a job to such an owner, and with nothing for the others.
func (q *Queue) settle(tx kv.Transaction, owners []string) error {
	reads := make([]ownerCounts, len(owners))
	for i, owner := range owners {
		reads[i] = q.readCounts(tx.Snapshot(), owner)
	}
	for i, owner := range owners {
		var o Owner
		if err := reads[i].await(&o); err != nil {
			return err
		}
		if o.Pending+o.Running > 0 {
			continue
		}
		gone := []Status{Pending, Running}
		if o.Finished == 0 {
			gone = append(gone, Finished)
		}
		for _, status := range gone {
			key := q.keys.ownedCount.Pack(owner, string(status))
			tx.AddReadConflictKey(key)
			tx.Clear(key)
			tx.ClearRange(rows.Range(q.keys.ownedTagged.Sub(owner, string(status))))
		}
		known, err := q.share.forget(tx, owner)
		if err != nil {
			return err
		}
		if known {
			tx.Clear(q.keys.heads.Pack(owner))
		}
	}
	return nil
}
