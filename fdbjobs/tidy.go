package fdbjobs

import (
	"context"
	"slices"
	"time"

	"settee/pkg/kv"
)

// A claim returns what is to be tidied: jobs that have become due, owners without ready jobs, and charges to add to
// ranks. The claimer tidies in a goroutine of its own while it takes further jobs. Until that has ended, claims that take
// jobs start no other. After a claim without jobs the claimer tidies before the next claim.

// tidying reports whether the claimer is doing what an earlier claim has found.
func (c *claimer) tidying() bool { return c.cleanup != nil && len(c.cleanup) == 0 }

// tidy promotes due jobs, and keeps the line of owners in order.
func (c *claimer) tidy(ctx context.Context, found outcome) error {
	if c.tidying() && len(found.held) > 0 {
		return nil
	}
	if c.cleanup != nil {
		err := <-c.cleanup // at the latest when the layer is closed
		c.queue.layer.pass(ctx)
		if c.cleanup = nil; err != nil {
			return err
		}
	}
	if len(found.empty)+len(found.fold) == 0 && !found.due {
		return nil
	}
	for _, owner := range found.empty {
		delete(c.memory.empty, owner)
	}
	from, partition := c.memory.delayedFrom(false), c.memory.partition
	if len(found.held) == 0 {
		return c.queue.tidy(ctx, found, from, partition)
	}
	name, ended := "tidying of "+c.queue.name, make(chan error, 1)
	if c.queue.layer.start(name, func(context.Context) {
		ended <- c.queue.tidy(c.queue.layer.named(c.queue.layer.claims, name), found, from, partition)
	}) {
		c.cleanup = ended
	}
	return nil
}

// tidy is claimer.tidy without the claimer. from and partition are for promote.
func (q *Queue) tidy(ctx context.Context, found outcome, from int64, partition partition) error {
	for owners := range slices.Chunk(found.empty, ownersAtATime) {
		if err := q.delist(ctx, owners); err != nil {
			return err
		}
	}
	for owners := range slices.Chunk(found.fold, ownersAtATime) {
		if err := q.layer.db.Transact(ctx, func(tx kv.Transaction) error { return q.share.fold(tx, owners) }); err != nil {
			return err
		}
	}
	if !found.due {
		return nil
	}
	return q.promote(ctx, from, partition)
}

// delist takes owners without ready jobs out of the line. On a conflict there is something to take, and all stay for
// now.
func (q *Queue) delist(ctx context.Context, owners []string) error {
	attempted := false
	return q.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		if attempted {
			return nil
		}
		attempted = true
		ready := make([]kv.Future[[]kv.KeyValue], len(owners))
		leave := make([]func() error, len(owners))
		for i, owner := range owners {
			ready[i] = q.readReady(tx, owner, 1)
			leave[i] = q.share.leave(tx, owner)
		}
		for i := range owners {
			found, err := ready[i].Await()
			if err != nil {
				return err
			}
			if len(found) > 0 {
				continue
			}
			if err := leave[i](); err != nil {
				return err
			}
		}
		return nil
	})
}

// toFold returns the owners that this claimer tidies and whose usage has changed since their rank was written, if it is
// time to write ranks.
func (m *memory) toFold(found *attempt, now time.Time) (owners []string) {
	if now.Sub(m.folding) < min(foldEvery, time.Duration(m.partition.claimers)*foldAlone) {
		return nil
	}
	for _, o := range found.loaded {
		if o.partition.tidies && o.used != o.rank {
			owners = append(owners, o.owner)
		}
	}
	if len(owners) > 0 {
		m.folding = now
	}
	return owners
}

// leaving returns the owners without ready rows in a claim that leave the line: the owners that this claimer tidies, if
// they have had no such rows for long enough or there are many of them, or all if they may hide others.
func (c *claimer) leaving(found *attempt, now time.Time) []string {
	m := &c.memory
	var all, mine, due []string
	for _, o := range found.loaded {
		switch {
		case o.unread:
			continue
		case !o.empty:
			delete(m.empty, o.owner)
			continue
		case m.empty[o.owner].IsZero():
			note(&m.empty, o.owner, now)
		}
		all = append(all, o.owner)
		if o.partition.tidies {
			mine = append(mine, o.owner)
			if now.Sub(m.empty[o.owner]) >= emptyFor {
				due = append(due, o.owner)
			}
		}
	}
	switch {
	case len(all) >= maxOwners:
		return all
	case len(mine)*m.partition.claimers >= manyEmpty:
		return mine
	}
	return due
}

// promote moves due jobs to ready that are scheduled from begin on. It prefers jobs in partition. When its transaction
// runs again, another claimer has probably moved the same jobs without having written a heartbeat. So it chooses others at
// random.
func (q *Queue) promote(ctx context.Context, begin int64, partition partition) error {
	random, runs := q.layer.draw(), 0
	return q.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		if runs++; runs > 1 {
			claimers := min(2*partition.claimers, maxPartitions)
			partition = partitionOf(random.IntN(claimers), claimers)
		}
		now := q.layer.now().Unix()
		due := kv.KeyRange{Begin: q.keys.delayed.Pack(begin), End: q.keys.delayed.Pack(now + 1)}
		pairs, err := tx.Snapshot().GetRange(due, kv.RangeOptions{Limit: min(promoteBatch*partition.claimers, maxWindow)}).Slice()
		if err != nil {
			return err
		}
		own, others := partition.sort(pairs)
		if pairs = own; len(own) == 0 {
			pairs = others
			random.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		}
		pairs = pairs[:min(len(pairs), promoteBatch)]
		ids, batch := make([]string, len(pairs)), q.batch(tx)
		for i, pair := range pairs {
			if _, ids[i], err = q.parseDelayed(pair.Key); err != nil {
				return err
			}
			batch.wantOwner(string(pair.Value))
		}
		_, err = batch.putAll(ids, func(i int, old *row) *row {
			if !old.waits() {
				return nil
			}
			return queued(*old, old.scheduled, now, uint16(i))
		})
		return err
	})
}
