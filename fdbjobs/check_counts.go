package fdbjobs

import (
	"bytes"
	"context"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
)

// owned checks a row of the index, and that its counter exists.
func (c *checker) owned(k keyed) (func() error, error) {
	var id, owner string
	var part Part
	if !k.as(&owner, (*string)(&part.Status), &part.Label, &part.Tag, &id) {
		return nil, k.unknown()
	}
	stray, key := false, k.queue.keys.counterOf(owner, part)
	belongs, counted := k.belongs(id, func(r *row) bool { return bytes.Equal(k.queue.derive(id, r).index, k.Key) }, func() {
		k.Stray(k.Key, "the index of an owner's jobs has the job %q, which is not there", id)
		stray = true
	}), k.Get(key)
	return func() error {
		if err := belongs(); err != nil || stray {
			return err
		}
		value, err := counted.Await()
		if err == nil && value == nil {
			// The count is right when the counters are checked.
			k.Wrong(key, rows.Int(0), "the owner's jobs are not counted")
		}
		return err
	}, nil
}

// counts checks a counter.
func (c *checker) counts(k keyed) (func() error, error) {
	var counted counter
	if !k.as((*string)(&counted.part.Status), &counted.owner, &counted.part.Label, &counted.part.Tag) {
		return nil, k.unknown()
	}
	n, err := rows.ParseInt(k.Value)
	if err != nil {
		n = -1
	}
	counted.n = n
	return func() error {
		index := rows.Range(k.queue.keys.ownedBy(counted.owner, counted.part))
		n, last, err := countKeys(k.Page, index, k.Late)
		switch {
		case err != nil:
			return err
		case last == nil:
			c.compare(k.Page, k.Key, counted, n)
		case c.countsLater != nil:
			k.After(func() error { return c.countsLater(k.queue, counted) })
		default:
			k.Unsettled()
		}
		return nil
	}, nil
}

func (c *checker) compare(p *check.Page, key []byte, counted counter, n int64) {
	switch {
	case n == counted.n && n > 0:
	case n > 0:
		p.Wrong(key, rows.Int(n), "%d %s jobs of the owner %q are counted, and there are %d", counted.n, counted.part.Status, counted.owner, n)
	default:
		p.Stray(key, "%d %s jobs of the owner %q are counted, and there are none", counted.n, counted.part.Status, counted.owner)
	}
}

// countedAtOnce is the number of keys that are read at a time to count them.
const countedAtOnce = 10_000

// countKeys counts the keys of a range. If late, it returns the last key that it has counted.
func countKeys(tx kv.ReadTransaction, r kv.KeyRange, late func() bool) (n int64, last []byte, err error) {
	for {
		pairs, err := tx.GetRange(r, kv.RangeOptions{Limit: countedAtOnce}).Slice()
		if err != nil {
			return 0, nil, err
		}
		n += int64(len(pairs))
		if len(pairs) < countedAtOnce {
			return n, nil, nil
		}
		last = pairs[len(pairs)-1].Key
		if late() {
			return n, last, nil
		}
		r.Begin = kv.KeyAfter(last)
	}
}

// countLater compares a counter that takes several transactions to count.
func (c *checker) countLater(ctx context.Context, to *check.Checker, q *Queue, counted counter) error {
	r, n := rows.Range(q.keys.ownedBy(counted.owner, counted.part)), int64(0)
	for r.Begin != nil {
		some, last := int64(0), []byte(nil)
		if err := to.DB.Transact(ctx, func(tx kv.Transaction) (err error) {
			some, last, err = countKeys(tx, r, func() bool { return true })
			return err
		}); err != nil {
			return err
		}
		n += some
		if r.Begin = nil; last != nil {
			r.Begin = kv.KeyAfter(last)
		}
	}
	return to.Do(ctx, func(p *check.Page) error {
		c.compare(p, q.keys.counterOf(counted.owner, counted.part), counted, n)
		return nil
	})
}
