package fdbjobs

import (
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
	if spec.Ended && old != nil && old.status != Finished {
		return fmt.Errorf("%w: the job %q has not ended, it is %s", ErrInvalid, spec.ID, old.status)
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
	t.setListed(tx, spec.ID, spec.Listed, old)
	next := row{owner: spec.Owner, token: spec.Token, chunks: chunks, label: spec.Label, listed: spec.Listed != nil}
	if old != nil {
		next.generation, next.lock = old.generation, old.lock
		if old.status == Running {
			next = *old
			next.token, next.chunks, next.listed = spec.Token, chunks, spec.Listed != nil
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
	if spec.Ended {
		next.status, next.tag, next.scheduled = Finished, spec.Tag, scheduled
		t.put(tx, spec.ID, old, &next, spec.Order)
		return nil
	}
	if err := t.queue(tx, line, spec.ID, old, queued(next, scheduled, now, spec.Order), spec.Order); err != nil {
		return err
	}
	if old != nil && old.owner != spec.Owner {
		return t.settle(tx, []string{old.owner})
	}
	return nil
}

// setArgs writes the args of a job that had some chunks of them, and returns how many
// it has now.
func (t *Type) setArgs(tx kv.Transaction, id string, args json.RawMessage, had int64) int64 {
	s := t.keys.args.Sub(id)
	n := int64(0)
	for chunk := range slices.Chunk(t.sealArgs(id, args), argsChunk) {
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

// setListed writes what lists show of a job, or clears what old had.
func (t *Type) setListed(tx kv.Transaction, id string, listed json.RawMessage, old *row) {
	switch {
	case listed != nil:
		tx.Set(t.keys.listed.Pack(id), listed)
	case old != nil && old.listed:
		tx.Clear(t.keys.listed.Pack(id))
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
