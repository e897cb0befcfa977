package fdbjobs

import (
	"context"
	"slices"
	"time"

	"settee/pkg/kv"
)

const (
	// An owner without ready jobs no longer waits after emptyFor, or as soon as there are manyEmpty such owners. An
	// owner whose jobs are taken as fast as they are added often has none for a moment.
	emptyFor  = time.Second
	manyEmpty = 100
	// rankEvery is how often a claimer adds charges to owners' ranks. With few other claimers it does so more often:
	// every rankAlone for each of them and itself.
	rankEvery = 250 * time.Millisecond
	rankAlone = 100 * time.Millisecond
)

// A claim returns what is to be tidied: jobs that have become due, owners without ready jobs, and charges to add to
// ranks. The claimer tidies in a goroutine of its own while it takes further jobs. Until that has ended, claims that take
// jobs start no other. After a claim without jobs the claimer tidies before the next claim.

// tidying is what a claim has found to tidy.
type tidying struct {
	empty []string // owners that no longer wait
	rank  []string // owners whose ranks to update
	due   bool     // there are jobs to promote
	// from and partition are for promote.
	from      int64
	partition partition
}

// toTidy returns what a claim has found to tidy.
func (c *claimer) toTidy(found *view) tidying {
	t := tidying{
		empty: c.leaving(found), due: found.next != 0 && found.next <= c.queue.layer.now().Unix(),
		from: c.delayedFrom(false), partition: c.partition,
	}
	if len(found.taken) == 0 || !c.isTidying() {
		t.rank = c.toRank(found)
	}
	return t
}

// isTidying reports whether the claimer is doing what an earlier claim has found.
func (c *claimer) isTidying() bool { return c.cleanup != nil && len(c.cleanup) == 0 }

// tidy promotes due jobs, and updates the waiting owners. It reports whether the claim after it may find more.
func (c *claimer) tidy(ctx context.Context, found *view) (more bool, err error) {
	t := c.toTidy(found)
	more = t.due || len(found.owners) >= maxOwners && len(t.empty) > 0
	if c.isTidying() && len(found.taken) > 0 {
		return more, nil
	}
	if c.cleanup != nil {
		var err error
		select {
		case err = <-c.cleanup:
		case <-ctx.Done(): // the layer is closed
		}
		c.queue.layer.pass(ctx)
		if c.cleanup = nil; ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return false, err
		}
	}
	if len(t.empty)+len(t.rank) == 0 && !t.due {
		return more, nil
	}
	for _, owner := range t.empty {
		delete(c.empty, owner)
	}
	if len(found.taken) == 0 {
		return more, c.queue.tidy(ctx, t)
	}
	name, ended := "tidying of "+c.queue.name, make(chan error, 1)
	if c.queue.layer.start(name, func(context.Context) {
		ended <- c.queue.tidy(c.queue.layer.named(c.queue.layer.claims, name), t)
	}) {
		c.cleanup = ended
	}
	return more, nil
}

// tidy does what a claim has found to tidy.
func (q *Queue) tidy(ctx context.Context, t tidying) error {
	for owners := range slices.Chunk(t.empty, ownersAtATime) {
		if err := q.stopWaiting(ctx, owners); err != nil {
			return err
		}
	}
	for owners := range slices.Chunk(t.rank, ownersAtATime) {
		if err := q.layer.db.Transact(ctx, func(tx kv.Transaction) error { return q.share.updateRanks(tx, owners) }); err != nil {
			return err
		}
	}
	if !t.due {
		return nil
	}
	return q.promote(ctx, t.from, t.partition)
}

// stopWaiting ends the waiting of owners without ready jobs. On a conflict there is something to take, and all wait for now.
func (q *Queue) stopWaiting(ctx context.Context, owners []string) error {
	attempted := false
	return q.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		if attempted {
			return nil
		}
		attempted = true
		ready, accounts := make([]kv.Future[[]kv.KeyValue], len(owners)), make([]kv.Future[account], len(owners))
		weights := make([]kv.Future[float64], len(owners))
		for i, owner := range owners {
			ready[i], accounts[i], weights[i] = q.readReady(tx, owner, 1), q.share.readAccount(tx, owner), q.share.readWeight(tx, owner)
		}
		for i, owner := range owners {
			found, err := ready[i].Await()
			if err != nil {
				return err
			}
			if len(found) > 0 {
				continue
			}
			known, err := accounts[i].Await()
			if err != nil {
				return err
			}
			weight, err := weights[i].Await()
			if err != nil {
				return err
			}
			q.share.stopWaiting(tx, owner, known, weight)
		}
		return nil
	})
}

// toRank returns the owners that this claimer tidies and whose usage has changed since their rank was written, if it is
// time to write ranks.
func (c *claimer) toRank(found *view) (owners []string) {
	if found.began.Sub(c.rankedAt) < min(rankEvery, time.Duration(c.partition.claimers)*rankAlone) {
		return nil
	}
	for _, o := range found.owners {
		if o.partition.tidies && o.used != o.rank {
			owners = append(owners, o.owner)
		}
	}
	if len(owners) > 0 {
		c.rankedAt = found.began
	}
	return owners
}

// leaving returns the owners without ready rows in a claim that no longer wait: the owners that this claimer tidies, if
// they have had no such rows for long enough or there are many of them, or all if they may hide others.
func (c *claimer) leaving(found *view) []string {
	var all, mine, due []string
	for _, o := range found.owners {
		switch {
		case !o.read:
			continue
		case !o.empty:
			delete(c.empty, o.owner)
			continue
		case c.empty[o.owner].IsZero():
			note(&c.empty, o.owner, found.began)
		}
		all = append(all, o.owner)
		if o.partition.tidies {
			mine = append(mine, o.owner)
			if found.began.Sub(c.empty[o.owner]) >= emptyFor {
				due = append(due, o.owner)
			}
		}
	}
	switch {
	case len(all) >= maxOwners:
		return all
	case len(mine)*c.partition.claimers >= manyEmpty:
		return mine
	}
	return due
}
