package fdbjobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// argsChunk is how many bytes of args one value holds.
const argsChunk = 90_000

// Add adds a job, or changes the one that has its id: of a pending one the args,
// the owner and the scheduled time are replaced; of a running one the args, and
// it stops at its next update and is queued again; a finished one is queued
// again. A job can be added once in a transaction: the second time is
// kv.ErrUnreadable.
//
// The errors are ErrTooLarge and ErrInvalid, with the field's name. They come
// before anything is written.
func (t *Type) Add(tx kv.Transaction, spec Spec) error {
	if err := spec.check(); err != nil {
		return err
	}
	reading, line := t.readRow(tx, spec.ID), t.line(tx)
	line.want(spec.Owner)
	old, err := awaitRow(reading)
	if err != nil {
		return err
	}
	if old != nil && spec.Token != "" && old.token == spec.Token {
		return nil // an earlier run of the transaction did it
	}
	had := int64(0)
	if old != nil {
		had = old.chunks
	}
	chunks := t.setArgs(tx, spec.ID, spec.Args, had)
	now := time.Now().Unix()
	scheduled := now
	if !spec.Scheduled.IsZero() {
		scheduled = spec.Scheduled.Unix()
	}
	next := row{owner: spec.Owner, token: spec.Token, chunks: chunks}
	if old != nil {
		next.generation, next.lock = old.generation, old.lock
		if old.status == Running {
			next = *old
			next.token, next.chunks = spec.Token, chunks
			next.generation++
			next.resubmit = &scheduled
			// The row is written without moving the job: its processor, or the
			// activity monitor, queues it. Who follows the job is told.
			tx.Set(t.keys.data.Pack(spec.ID), next.tuple().Pack())
			t.transition(tx, spec.ID, Running, spec.Order)
			return nil
		}
	}
	if old == nil || old.status == Finished {
		t.setState(tx, spec.ID, spec.State)
	}
	if err := t.queue(tx, line, spec.ID, old, queued(next, scheduled, now, spec.Order), spec.Order); err != nil {
		return err
	}
	if old != nil && old.owner != spec.Owner {
		return t.settle(tx, []string{old.owner})
	}
	return nil
}

// Remove removes a job, and reports whether it was there. If it runs, its
// processor gets ErrHalt at its next update.
//
// After a commit whose result was unknown the function of the transaction runs
// again and does not find what it has removed. Who tells a user keeps the answer
// outside, and takes a job that any run has seen for one that was there.
func (t *Type) Remove(tx kv.Transaction, id string) (bool, error) {
	old, err := awaitRow(t.readRow(tx, id))
	if err != nil || old == nil {
		return false, err
	}
	t.drop(tx, id, old, 0)
	return true, t.settle(tx, []string{old.owner})
}

// drop removes a job with all that is its own.
func (t *Type) drop(tx kv.Transaction, id string, old *row, order uint16) {
	t.clearArgs(tx, id, 0, old.chunks)
	tx.Clear(t.keys.state.Pack(id))
	t.put(tx, id, old, nil, order)
}

// expireBatch is how many expired jobs one transaction removes.
const expireBatch = 100

// RemoveExpired removes some of the finished jobs whose time is over ([Held.FinishFor]),
// and reports how many, and whether there may be more. Upkeep calls it.
func (t *Type) RemoveExpired(ctx context.Context) (removed int, more bool, err error) {
	removed, err = kv.TransactValue(ctx, t.layer.db, func(tx kv.Transaction) (int, error) {
		expired := keyRange(t.keys.expiry)
		expired.End = t.keys.expiry.Pack(time.Now().Unix() + 1)
		pairs, err := tx.Snapshot().GetRange(expired, kv.RangeOptions{Limit: expireBatch, Mode: kv.StreamWantAll}).Slice()
		if err != nil {
			return 0, err
		}
		more = len(pairs) == expireBatch
		ids, rows := make([]string, len(pairs)), make([]kv.Future[[]byte], len(pairs))
		for i, pair := range pairs {
			if ids[i], err = lastString(t.keys.expiry, pair.Key); err != nil {
				return 0, err
			}
			rows[i] = t.readRow(tx, ids[i])
		}
		var owners []string
		for i, id := range ids {
			old, err := awaitRow(rows[i])
			if err != nil {
				return 0, err
			}
			if old == nil || old.expires == nil || !bytes.Equal(pairs[i].Key, t.keys.expiry.Pack(*old.expires, id)) {
				continue // the invariant says never
			}
			t.drop(tx, id, old, uint16(i))
			owners = append(owners, old.owner)
		}
		slices.Sort(owners)
		return len(pairs), t.settle(tx, slices.Compact(owners))
	})
	return removed, more, err
}

// setArgs writes the args of a job that had some chunks of them, and returns how many
// it has now.
func (t *Type) setArgs(tx kv.Transaction, id string, args json.RawMessage, had int64) int64 {
	s := t.keys.args.Sub(id)
	n := int64(0)
	for chunk := range slices.Chunk([]byte(args), argsChunk) {
		tx.Set(s.Pack(n), chunk)
		n++
	}
	t.clearArgs(tx, id, n, had)
	return n
}

// clearArgs removes the chunks from one on, one by one: a cleared range is more work for
// a store, for as long as it remembers it, than some keys.
func (t *Type) clearArgs(tx kv.Transaction, id string, begin, end int64) {
	for n := begin; n < end; n++ {
		tx.Clear(t.keys.args.Pack(id, n))
	}
}

func (t *Type) setState(tx kv.Transaction, id string, state json.RawMessage) {
	if state == nil {
		state = json.RawMessage("{}")
	}
	tx.Set(t.keys.state.Pack(id), state)
}

// SetTimeout sets the type's activity timeout: how long a job may go without an
// update before it is queued again. It holds for processors from their next
// update on, and until then the one that they have read, if that is longer.
func (t *Type) SetTimeout(tx kv.Transaction, timeout time.Duration) error {
	if timeout <= 0 {
		return fmt.Errorf("%w: the activity timeout of %s is not positive", ErrInvalid, timeout)
	}
	tx.Set(t.keys.timeout, packTimeout(timeout))
	return nil
}

// Timeout reads the type's activity timeout, DefaultTimeout if none was set.
func (t *Type) Timeout(tx kv.ReadTransaction) (time.Duration, error) {
	return awaitTimeout(tx.Get(t.keys.timeout))
}

func awaitTimeout(f kv.Future[[]byte]) (time.Duration, error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return DefaultTimeout, err
	}
	return parseTimeout(value)
}

func packTimeout(timeout time.Duration) []byte { return tuple.Tuple{timeout.Seconds()}.Pack() }

func parseTimeout(value []byte) (time.Duration, error) {
	elements, err := tuple.Unpack(value)
	if err != nil {
		return 0, fmt.Errorf("reading a timeout: %w", err)
	}
	var seconds float64
	if len(elements) != 1 || !as(elements[0], &seconds) || !(seconds > 0) {
		return 0, fmt.Errorf("reading a timeout: unknown form %v", elements)
	}
	return time.Duration(math.Round(seconds * float64(time.Second))), nil
}
