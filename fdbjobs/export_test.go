package fdbjobs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// MaxClaim is how many jobs one claim takes at most.
const MaxClaim = maxClaim

// The sizes at which args are divided, and at which sealing them anew is.
const (
	ArgsChunk    = argsChunk
	ResealAtOnce = resealAtOnce
)

// StopTimer has the timer that ends Context not go off, as in a process that was stopped.
func (h *Held) StopTimer() { h.timer.Stop() }

// OwnerKeys returns how many keys there are of owners, but for weights.
func (t *Type) OwnerKeys(tx kv.ReadTransaction) (n int, err error) {
	for _, s := range []tuple.Subspace{t.keys.waiting, t.keys.owners, t.keys.ranks, t.keys.charges, t.keys.heads, t.keys.ownedCount, t.keys.ownedTagged} {
		err = errors.Join(err, each(tx, s, func(tuple.Tuple, []byte) error {
			n++
			return nil
		}))
	}
	return n, err
}

// RolledUpAt makes the latest roll-up one of another time.
func (t *Type) RolledUpAt(tx kv.Transaction, at time.Time) error {
	r, err := awaitRollup(tx.Get(t.keys.rollup))
	if err == nil {
		tx.Set(t.keys.rollup, tuple.Tuple{r.generation, at.Unix(), r.coeff, r.running}.Pack())
	}
	return err
}

// Standing returns the names of the owners in the line, the next to be served first.
func (t *Type) Standing(tx kv.ReadTransaction) (owners []string, err error) {
	err = each(tx, t.keys.ranks.Sub(rankWaiting), func(k tuple.Tuple, _ []byte) error {
		owners = append(owners, k[1].(string))
		return nil
	})
	return owners, err
}

// Head returns where a new process begins to read an owner's ready queue, nil for its start.
func (t *Type) Head(tx kv.ReadTransaction, owner string) ([]byte, error) {
	return t.head(tx, owner, nil)()
}

// Transitions returns how many transitions are stored.
func (t *Type) Transitions(tx kv.ReadTransaction) (n int, err error) {
	err = each(tx, t.keys.transitions, func(tuple.Tuple, []byte) error {
		n++
		return nil
	})
	return n, err
}

// Check reads all keys of the type and reports what contradicts the invariants in
// the package's comment.
func (t *Type) Check(tx kv.ReadTransaction) error {
	c := checker{typ: t, tx: tx, rows: map[string]*row{}, places: map[string]int{}, last: map[string]Status{}, line: map[string]bool{}}
	for _, step := range []func() error{
		c.readRows, c.delayed, c.owners, c.ready, c.active, c.expiry, c.statuses, c.owned, c.contents, c.transitions, c.jobs,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return errors.Join(c.wrong...)
}

type checker struct {
	typ    *Type
	tx     kv.ReadTransaction
	rows   map[string]*row
	places map[string]int  // rows in delayed, ready, active and expiry
	line   map[string]bool // the owners that have a row: whether they wait
	last   map[string]Status
	wrong  []error
}

func (c *checker) say(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf(format, args...))
}

func each(tx kv.ReadTransaction, s tuple.Subspace, f func(key tuple.Tuple, value []byte) error) error {
	for pair, err := range tx.GetRange(keyRange(s), kv.RangeOptions{Mode: kv.StreamWantAll}).All() {
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
	return each(c.tx, c.typ.keys.data, func(key tuple.Tuple, value []byte) error {
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
	return each(c.tx, c.typ.keys.delayed, func(key tuple.Tuple, value []byte) error {
		scheduled, id := key[0].(int64), key[1].(string)
		r := c.rows[id]
		if r == nil || !r.waits() || r.scheduled != scheduled || r.owner != string(value) {
			c.say("%q: in delayed at %d for %q, and its row is %+v", id, scheduled, value, r)
		}
		c.places[id]++
		return nil
	})
}

// owners are the owners' rows, and where they stand.
func (c *checker) owners() error {
	ranks := map[string]standing{}
	err := each(c.tx, c.typ.keys.owners, func(key tuple.Tuple, value []byte) (err error) {
		owner := key[0].(string)
		c.line[owner] = false
		ranks[owner], err = parseStanding(value)
		return err
	})
	if err != nil {
		return err
	}
	err = each(c.tx, c.typ.keys.waiting, func(key tuple.Tuple, _ []byte) error {
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
	err = each(c.tx, c.typ.keys.ranks, func(key tuple.Tuple, _ []byte) error {
		part, rank, owner := key[0].(int64), key[1].(float64), key[2].(string)
		if s, ok := ranks[owner]; !ok || s.rank != rank || c.line[owner] != (part == rankWaiting) {
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
	for _, s := range []tuple.Subspace{c.typ.keys.charges, c.typ.keys.heads} {
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
	return each(c.tx, c.typ.keys.expiry, func(key tuple.Tuple, _ []byte) error {
		at, id := key[0].(int64), key[1].(string)
		if r := c.rows[id]; r == nil || r.status != Finished || r.expires == nil || *r.expires != at {
			c.say("%q: expires at %d, and its row is %+v", id, at, r)
		}
		c.places[id]++
		return nil
	})
}

// owned are the index and the counts by owner.
func (c *checker) owned() error {
	type place struct{ owner, status string }
	counts, indexed := map[place]int64{}, 0
	err := each(c.tx, c.typ.keys.owned, func(key tuple.Tuple, _ []byte) error {
		p, id := place{key[0].(string), key[1].(string)}, key[4].(string)
		part := Part{Status(p.status), key[2].(string), key[3].(string)}
		if r := c.rows[id]; r == nil || r.owner != p.owner || r.part() != part {
			c.say("%q: indexed as %s of %q, and its row is %+v", id, p.status, p.owner, r)
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
	err = each(c.tx, c.typ.keys.ownedCount, func(key tuple.Tuple, value []byte) error {
		p := place{key[0].(string), key[1].(string)}
		if n := int64(binary.LittleEndian.Uint64(value)); n != counts[p] {
			c.say("%d jobs of %q are counted as %s, and there are %d", n, p.owner, p.status, counts[p])
		}
		delete(counts, p)
		return nil
	})
	for p, n := range counts {
		c.say("%d jobs of %q are %s, and not counted", n, p.owner, p.status)
	}
	if err != nil {
		return err
	}
	type tagged struct{ owner, status, tag string }
	tags := map[tagged]int64{}
	for _, r := range c.rows {
		if r.tag != "" {
			tags[tagged{r.owner, string(r.status), r.tag}]++
		}
	}
	err = each(c.tx, c.typ.keys.ownedTagged, func(key tuple.Tuple, value []byte) error {
		p := tagged{key[0].(string), key[1].(string), key[2].(string)}
		if n := int64(binary.LittleEndian.Uint64(value)); n != tags[p] {
			c.say("%d jobs of %q are counted as %s and tagged %q, and there are %d", n, p.owner, p.status, p.tag, tags[p])
		}
		delete(tags, p)
		return nil
	})
	for p, n := range tags {
		c.say("%d jobs of %q are %s and tagged %q, and not counted", n, p.owner, p.status, p.tag)
	}
	return err
}

func (c *checker) ready() error {
	return each(c.tx, c.typ.keys.ready, func(key tuple.Tuple, _ []byte) error {
		owner, stamp, id := key[0].(string), key[1].(tuple.Versionstamp), key[2].(string)
		r := c.rows[id]
		if r == nil || r.status != Pending || r.owner != owner || r.sequence == nil || *r.sequence != stamp {
			c.say("%q: ready for %q at %s, and its row is %+v", id, owner, stamp, r)
		}
		if !c.line[owner] {
			c.say("%q: ready, and its owner %q is not in line", id, owner)
		}
		begin, err := c.typ.head(c.tx, owner, nil)()
		if err != nil {
			return err
		}
		if key := c.typ.keys.ready.Pack(owner, stamp, id); bytes.Compare(key, begin) < 0 {
			c.say("%q: ready for %q at %s, which is below the head that was noted", id, owner, stamp)
		}
		c.places[id]++
		return nil
	})
}

func (c *checker) active() error {
	return each(c.tx, c.typ.keys.active, func(key tuple.Tuple, _ []byte) error {
		stamp, id := key[0].(tuple.Versionstamp), key[1].(string)
		r := c.rows[id]
		if r == nil || r.status != Running || r.sequence == nil || *r.sequence != stamp || r.lock == "" {
			c.say("%q: active at %s, and its row is %+v", id, stamp, r)
		} else if _, ok := c.line[r.owner]; !ok {
			c.say("%q: active, and its owner %q has no row", id, r.owner)
		}
		c.places[id]++
		return nil
	})
}

func (c *checker) statuses() error {
	counts, ids := map[Part]int64{}, map[string]bool{}
	err := each(c.tx, c.typ.keys.status, func(key tuple.Tuple, _ []byte) error {
		part, id := Part{Status(key[0].(string)), key[1].(string), key[2].(string)}, key[3].(string)
		if r := c.rows[id]; r == nil || r.part() != part {
			c.say("%q: indexed as %v, and its row is %+v", id, part, r)
		}
		counts[part]++
		ids[id] = true
		return nil
	})
	if err != nil {
		return err
	}
	for id := range c.rows {
		if !ids[id] {
			c.say("%q: not indexed by its status", id)
		}
	}
	counted := map[Part]bool{}
	err = each(c.tx, c.typ.keys.count, func(key tuple.Tuple, value []byte) error {
		part := Part{Status(key[0].(string)), key[1].(string), key[2].(string)}
		if n := int64(binary.LittleEndian.Uint64(value)); n != counts[part] {
			c.say("%d jobs are counted as %v, and there are %d", n, part, counts[part])
		}
		counted[part] = true
		return nil
	})
	if err != nil {
		return err
	}
	for part, n := range counts {
		if !counted[part] {
			c.say("%d jobs are %v, and not counted", n, part)
		}
	}
	listed := map[string]bool{}
	err = each(c.tx, c.typ.keys.listed, func(key tuple.Tuple, _ []byte) error {
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
	err := each(c.tx, c.typ.keys.state, func(key tuple.Tuple, _ []byte) error {
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
	err = each(c.tx, c.typ.keys.args, func(key tuple.Tuple, _ []byte) error {
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

func (c *checker) transitions() error {
	return each(c.tx, c.typ.keys.transitions, func(key tuple.Tuple, value []byte) error {
		c.last[key[1].(string)] = Status(value)
		return nil
	})
}

func (c *checker) jobs() error {
	for id, r := range c.rows {
		want := 1
		if r.status == Finished && r.expires == nil {
			want = 0
		}
		if c.places[id] != want {
			c.say("%q: %s, in %d queues", id, r.status, c.places[id])
		}
	}
	for id, last := range c.last {
		if now := statusOf(c.rows[id]); now != last {
			c.say("%q: %s, and its last transition says %s", id, now, last)
		}
	}
	return nil
}

// Delay adds a job as a process does for whose clock scheduled lies ahead.
func (t *Type) Delay(tx kv.Transaction, id string, scheduled time.Time) error {
	old, err := awaitRow(t.readRow(tx, id))
	if err != nil {
		return err
	}
	t.setState(tx, id, nil)
	t.put(tx, id, old, queued(row{}, scheduled.Unix(), scheduled.Unix()-1, 0), 0)
	return nil
}
