package fdbjobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// MaxClaim is the maximum number of jobs of one claim.
const MaxClaim = maxClaim

// The sizes at which args and transactions of Reseal are split.
const (
	ArgsChunk    = rows.ChunkSize
	ResealAtOnce = resealAtOnce
)

// Parts returns, for each status, the part without label and tag.
func Parts(statuses ...Status) []Part {
	parts := make([]Part, len(statuses))
	for i, status := range statuses {
		parts[i].Status = status
	}
	return parts
}

// ShareAtOnce sets the number of transactions that are under way before a call of a Held waits for one to share.
func (q *Queue) ShareAtOnce(n int) { q.writer.atOnce = n }

// StopTimer stops the timer that ends Context, as in a process that was stopped.
func (h *Held) StopTimer() { h.timer.Stop() }

// LockOf returns the lock in the row of a job, or "".
func (q *Queue) LockOf(tx kv.ReadTransaction, id string) (string, error) {
	r, err := awaitRow(q.readRow(tx, id))
	if err != nil || r == nil {
		return "", err
	}
	return r.lock, nil
}

// OwnerKeys returns the number of keys of owners, without those of weights.
func (q *Queue) OwnerKeys(tx kv.ReadTransaction) (n int, err error) {
	for _, s := range []tuple.Subspace{q.share.waiting, q.share.standings, q.share.ranks, q.share.charges, q.keys.heads} {
		err = errors.Join(err, each(tx, s, func(tuple.Tuple, []byte) error {
			n++
			return nil
		}))
	}
	return n, err
}

// InLine returns the names of the owners in the line, the next to be served first.
func (q *Queue) InLine(tx kv.ReadTransaction) (owners []string, err error) {
	err = each(tx, q.share.ranks.Sub(rankWaiting), func(k tuple.Tuple, _ []byte) error {
		owners = append(owners, k[1].(string))
		return nil
	})
	return owners, err
}

// Claimers returns the ids of the claimers with a beat.
func (q *Queue) Claimers(tx kv.ReadTransaction) (ids []string, err error) {
	err = each(tx, q.keys.claimers, func(k tuple.Tuple, _ []byte) error {
		ids = append(ids, k[0].(string))
		return nil
	})
	return ids, err
}

// AddClaimer adds the beat of a claimer that died at a time.
func (q *Queue) AddClaimer(tx kv.Transaction, id string, at time.Time) {
	tx.Set(q.keys.claimers.Pack(id), tuple.Tuple{at.Unix()}.Pack())
}

// Lanes returns the number of lanes that the queue's claimer knows of.
func (q *Queue) Lanes() int { return q.claimer.memory.lane.of }

// Head returns where a new process begins to read an owner's ready rows, nil for its start.
func (q *Queue) Head(tx kv.ReadTransaction, owner string) ([]byte, error) {
	return q.head(tx, owner, nil)()
}

// Retired returns the ranges that versions before this one wrote.
func (q *Queue) Retired() []kv.KeyRange { return q.keys.retired }

// Check reads all keys of the queue and reports violations of the invariants in the package's doc comment.
func (q *Queue) Check(tx kv.ReadTransaction) error {
	c := checker{queue: q, tx: tx, rows: map[string]*row{}, places: map[string]int{}, line: map[string]bool{}}
	for _, step := range []func() error{
		c.readRows, c.delayed, c.owners, c.ready, c.active, c.expiry, c.listed, c.owned, c.contents, c.jobs,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return errors.Join(c.wrong...)
}

type checker struct {
	queue  *Queue
	tx     kv.ReadTransaction
	rows   map[string]*row
	places map[string]int  // rows in delayed, ready, active and expiry
	line   map[string]bool // the owners that have a row: whether they wait
	wrong  []error
}

func (c *checker) say(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf(format, args...))
}

func each(tx kv.ReadTransaction, s tuple.Subspace, f func(key tuple.Tuple, value []byte) error) error {
	for pair, err := range tx.GetRange(rows.Range(s), kv.RangeOptions{}).All() {
		if err != nil {
			return err
		}
		key, err := s.Unpack(pair.Key)
		if err == nil {
			err = f(key, pair.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) readRows() error {
	return each(c.tx, c.queue.keys.data, func(key tuple.Tuple, value []byte) error {
		id := key[0].(string)
		r, err := parseRow(value)
		if err != nil {
			return err
		}
		c.rows[id] = r
		if r.sequence != nil && !r.sequence.IsComplete() {
			c.say("%q: its sequence is incomplete", id)
		}
		if r.resubmit != nil && r.status != Running {
			c.say("%q: %s, and yet to be queued again", id, r.status)
		}
		if r.status == Finished && r.sequence != nil {
			c.say("%q: finished, and yet with a sequence", id)
		}
		if r.status != Finished && r.expires != nil {
			c.say("%q: %s, and yet to expire", id, r.status)
		}
		return nil
	})
}

func (c *checker) delayed() error {
	return each(c.tx, c.queue.keys.delayed, func(key tuple.Tuple, value []byte) error {
		scheduled, id := key[0].(int64), key[1].(string)
		r := c.rows[id]
		if r == nil || !r.waits() || r.scheduled != scheduled || r.owner != string(value) {
			c.say("%q: in delayed at %d for %q, and its row is %+v", id, scheduled, value, r)
		}
		c.places[id]++
		return nil
	})
}

// owners are the owners' rows and ranks.
func (c *checker) owners() error {
	ranks := map[string]standing{}
	err := each(c.tx, c.queue.share.standings, func(key tuple.Tuple, value []byte) (err error) {
		owner := key[0].(string)
		c.line[owner] = false
		ranks[owner], err = parseStanding(value)
		return err
	})
	if err != nil {
		return err
	}
	err = each(c.tx, c.queue.share.waiting, func(key tuple.Tuple, _ []byte) error {
		owner := key[0].(string)
		if _, ok := ranks[owner]; !ok {
			c.say("the owner %q waits, and has no row", owner)
		}
		c.line[owner] = true
		return nil
	})
	if err != nil {
		return err
	}
	n := 0
	weights, err := c.queue.Weights(c.tx)
	if err != nil {
		return err
	}
	for owner, weight := range weights {
		if _, ok := ranks[owner]; ok && weight == 0 {
			n++ // it is paused, and has no rank
		}
	}
	err = each(c.tx, c.queue.share.ranks, func(key tuple.Tuple, _ []byte) error {
		part, rank, owner := key[0].(int64), key[1].(float64), key[2].(string)
		weight, weighs := weights[owner]
		if s, ok := ranks[owner]; !ok || s.rank != rank || c.line[owner] != (part == rankWaiting) || weighs && weight == 0 {
			c.say("the owner %q: in part %d of ranks at %v, and its row is %+v", owner, part, rank, s)
		}
		n++
		return nil
	})
	if err != nil {
		return err
	}
	if n != len(ranks) {
		c.say("%d ranks for %d owners", n, len(ranks))
	}
	for _, s := range []tuple.Subspace{c.queue.share.charges, c.queue.keys.heads} {
		err := each(c.tx, s, func(key tuple.Tuple, _ []byte) error {
			if _, ok := ranks[key[0].(string)]; !ok {
				c.say("the owner %q has charges or a head, and no row", key[0])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) expiry() error {
	return each(c.tx, c.queue.keys.expiry, func(key tuple.Tuple, _ []byte) error {
		at, id := key[0].(int64), key[1].(string)
		if r := c.rows[id]; r == nil || r.status != Finished || r.expires == nil || *r.expires != at {
			c.say("%q: expires at %d, and its row is %+v", id, at, r)
		}
		c.places[id]++
		return nil
	})
}

// owned are the index and the counters.
func (c *checker) owned() error {
	counts, indexed := map[counter]int64{}, 0
	err := each(c.tx, c.queue.keys.owned, func(key tuple.Tuple, _ []byte) error {
		p, id := counter{owner: key[0].(string), part: Part{Status(key[1].(string)), key[2].(string), key[3].(string)}}, key[4].(string)
		if r := c.rows[id]; r == nil || r.owner != p.owner || r.part() != p.part {
			c.say("%q: indexed as %v of %q, and its row is %+v", id, p.part, p.owner, r)
		}
		counts[p]++
		indexed++
		return nil
	})
	if err != nil {
		return err
	}
	if indexed != len(c.rows) {
		c.say("%d jobs indexed by owner, and there are %d", indexed, len(c.rows))
	}
	for pair, err := range c.tx.GetRange(rows.Range(c.queue.keys.counts), kv.RangeOptions{}).All() {
		if err != nil {
			return err
		}
		p, err := c.queue.keys.parseCounter(pair)
		if err != nil {
			return err
		}
		n := p.n
		if p.n = 0; n == 0 || n != counts[p] {
			c.say("%d jobs of %q are counted as %v, and there are %d", n, p.owner, p.part, counts[p])
		}
		delete(counts, p)
	}
	for p, n := range counts {
		c.say("%d jobs of %q are %v, and not counted", n, p.owner, p.part)
	}
	return nil
}

func (c *checker) ready() error {
	return each(c.tx, c.queue.keys.ready, func(key tuple.Tuple, _ []byte) error {
		owner, stamp, id := key[0].(string), key[1].(tuple.Versionstamp), key[2].(string)
		r := c.rows[id]
		if r == nil || r.status != Pending || r.owner != owner || r.sequence == nil || *r.sequence != stamp {
			c.say("%q: ready for %q at %s, and its row is %+v", id, owner, stamp, r)
		}
		if !c.line[owner] {
			c.say("%q: ready, and its owner %q is not in line", id, owner)
		}
		begin, err := c.queue.head(c.tx, owner, nil)()
		if err != nil {
			return err
		}
		if key := c.queue.keys.ready.Pack(owner, stamp, id); bytes.Compare(key, begin) < 0 {
			c.say("%q: ready for %q at %s, which is below the head that was noted", id, owner, stamp)
		}
		c.places[id]++
		return nil
	})
}

func (c *checker) active() error {
	return each(c.tx, c.queue.keys.active, func(key tuple.Tuple, _ []byte) error {
		stamp, id := key[len(key)-2].(tuple.Versionstamp), key[len(key)-1].(string)
		r := c.rows[id]
		if r == nil || r.status != Running || !bytes.Equal(c.queue.place(id, r), c.queue.keys.active.Pack(key...)) || r.lock == "" {
			c.say("%q: active at %s, and its row is %+v", id, stamp, r)
		} else if _, ok := c.line[r.owner]; !ok {
			c.say("%q: active, and its owner %q has no row", id, r.owner)
		}
		c.places[id]++
		return nil
	})
}

func (c *checker) listed() error {
	listed := map[string]bool{}
	err := each(c.tx, c.queue.keys.listed, func(key tuple.Tuple, _ []byte) error {
		listed[key[0].(string)] = true
		if r := c.rows[key[0].(string)]; r == nil || !r.listed {
			c.say("%q: has a listed part, and its row is %+v", key[0], r)
		}
		return nil
	})
	for id, r := range c.rows {
		if r.listed && !listed[id] {
			c.say("%q: has no listed part", id)
		}
	}
	return err
}

// contents are the states and args.
func (c *checker) contents() error {
	states := map[string]bool{}
	err := each(c.tx, c.queue.keys.state, func(key tuple.Tuple, _ []byte) error {
		states[key[0].(string)] = true
		return nil
	})
	if err != nil {
		return err
	}
	for id := range states {
		if c.rows[id] == nil {
			c.say("%q: a state without a job", id)
		}
	}
	for id := range c.rows {
		if !states[id] {
			c.say("%q: a job without a state", id)
		}
	}
	chunks := map[string]int64{}
	err = each(c.tx, c.queue.keys.args, func(key tuple.Tuple, _ []byte) error {
		id := key[0].(string)
		if key[1] != chunks[id] {
			c.say("%q: chunk %v of its args, and not %d", id, key[1], chunks[id])
		}
		chunks[id]++
		if c.rows[id] == nil {
			c.say("%q: args without a job", id)
		}
		return nil
	})
	for id, r := range c.rows {
		if r.chunks != chunks[id] {
			c.say("%q: %d chunks of args, and its row says %d", id, chunks[id], r.chunks)
		}
	}
	return err
}

func (c *checker) jobs() error {
	for id, r := range c.rows {
		want := 1
		if r.status == Finished && r.expires == nil {
			want = 0
		}
		if c.places[id] != want {
			c.say("%q: %s, with %d places", id, r.status, c.places[id])
		}
	}
	return nil
}

// Delay adds a job as a process whose clock is behind does.
func (q *Queue) Delay(tx kv.Transaction, id string, scheduled time.Time) error {
	old, err := awaitRow(q.readRow(tx, id))
	if err != nil {
		return err
	}
	q.setState(tx, id, nil)
	return q.batch(tx).put(id, old, queued(row{}, scheduled.Unix(), scheduled.Unix()-1, 0))
}

// ForgetCounters removes what Upgrade writes.
func (q *Queue) ForgetCounters(tx kv.Transaction) {
	tx.ClearRange(rows.Range(q.keys.counts))
	tx.Clear(q.layer.space.Pack(tagLayout))
}

// Promote moves some due jobs to ready.
func (q *Queue) Promote(ctx context.Context) error {
	return q.promote(ctx, 0, q.claimer.memory.lane)
}
