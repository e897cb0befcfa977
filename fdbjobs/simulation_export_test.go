package fdbjobs

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Turnstile orders the goroutines of a simulation.
type Turnstile interface {
	Name(ctx context.Context, name string) context.Context
	Pass(ctx context.Context)
}

// SetTurnstile must be called before the layer is used.
func (l *Layer) SetTurnstile(t Turnstile) { l.turnstile = t }

// Removed is the status of a job that does not exist.
const Removed Status = "removed"

// JobRow is the content of a job's row, and which other keys the job has.
type JobRow struct {
	Status     Status
	Lock       string
	Generation int64
	Owner      string
	Scheduled  int64
	Waits      bool   // in delayed
	Sequence   string // changes with every update
	keys       [][]byte
}

// ReadRow reads a job's row. The status of a job that does not exist is Removed.
func (q *Queue) ReadRow(tx kv.ReadTransaction, id string) (JobRow, error) {
	r, err := q.readRow(tx, id).Await()
	if err != nil || r == nil {
		return JobRow{Status: Removed}, err
	}
	out := JobRow{
		Status: r.status, Lock: r.lock, Generation: r.generation, Owner: r.owner, Scheduled: r.scheduled, Waits: r.waits(),
	}
	d := q.derive(id, r)
	for _, e := range q.ownEntries(r) {
		if !e.keyless {
			out.keys = append(out.keys, q.keys.entryOf(id, e))
		}
	}
	if r.sequence != nil {
		out.Sequence = fmt.Sprint(*r.sequence)
	}
	if r.status == Running {
		value, err := tx.Get(d.key()).Await()
		if err != nil {
			return out, err
		}
		renewed, _, err := parseActive(value)
		if err != nil {
			return out, err
		}
		out.Sequence = fmt.Sprint(renewed)
	}
	if place := d.key(); place != nil {
		out.keys = append(out.keys, place)
	}
	return out, nil
}

// Same reports whether the rows agree in everything but what follows from them.
func (r JobRow) Same(other JobRow) bool {
	r.keys, other.keys = nil, nil
	return reflect.DeepEqual(r, other)
}

// Paused reports whether an owner is paused.
func (q *Queue) Paused(tx kv.ReadTransaction, owner string) (bool, error) {
	weight, err := q.share.readWeight(tx, owner).Await()
	return weight == 0, err
}

// CheckKeys checks that the keys of a job exist where now says, and not where before said. It runs after each commit
// that writes them, so none are left over.
func (q *Queue) CheckKeys(tx kv.ReadTransaction, before, now JobRow) error {
	for _, key := range now.keys {
		value, err := tx.Get(key).Await()
		if err != nil {
			return err
		}
		if value == nil {
			return fmt.Errorf("%s, and no key %q", now.Status, key)
		}
	}
	for _, key := range before.keys {
		if slices.ContainsFunc(now.keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
			continue
		}
		value, err := tx.Get(key).Await()
		if err != nil {
			return err
		}
		if value != nil {
			return fmt.Errorf("%s, and still a key %q", now.Status, key)
		}
	}
	return nil
}

// Wakes reports whether a change of a key wakes the claimers.
func (q *Queue) Wakes(key []byte) bool { return bytes.Equal(key, q.keys.watchReady) }

// JobOf returns the job that a written key belongs to, or "" if it is another key.
func (q *Queue) JobOf(key []byte) string {
	for _, s := range []tuple.Subspace{q.keys.data, q.keys.state, q.keys.delayed, q.keys.ready, q.keys.active, q.keys.entries} {
		if !bytes.HasPrefix(key, s.Bytes()) {
			continue
		}
		if id, err := rows.LastString(s, key); err == nil {
			return id
		}
	}
	return ""
}
