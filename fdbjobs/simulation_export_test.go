package fdbjobs

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// Turnstile is what a simulation holds goroutines up with.
type Turnstile interface {
	Name(ctx context.Context, name string) context.Context
	Pass(ctx context.Context)
}

// SetTurnstile is called before the layer is used.
func (l *Layer) SetTurnstile(t Turnstile) { l.turnstile = t }

// Lock names the holding.
func (h *Held) Lock() string { return h.lock }

// Removed is the status of a job that is not there.
const Removed = removed

// JobRow is what a job's row says, and where it says that the job has other keys.
type JobRow struct {
	Status     Status
	Lock       string
	Generation int64
	Owner      string
	Scheduled  int64
	Waits      bool   // in delayed
	Sequence   string // changes with every update
	places     [][]byte
}

// ReadRow reads a job's row. The status of one that is not there is removed.
func (t *Type) ReadRow(tx kv.ReadTransaction, id string) (JobRow, error) {
	r, err := awaitRow(t.readRow(tx, id))
	if err != nil || r == nil {
		return JobRow{Status: removed}, err
	}
	out := JobRow{
		Status: r.status, Lock: r.lock, Generation: r.generation, Owner: r.owner, Scheduled: r.scheduled, Waits: r.waits(),
	}
	indexed := t.indexKeys(id, r)
	out.places = indexed[:]
	if r.sequence != nil {
		out.Sequence = fmt.Sprint(*r.sequence)
	}
	switch {
	case r.waits():
		out.places = append(out.places, t.keys.delayed.Pack(r.scheduled, id))
	case r.status == Pending:
		out.places = append(out.places, t.keys.ready.Pack(r.owner, *r.sequence, id))
	case r.status == Running:
		out.places = append(out.places, t.keys.active.Pack(*r.sequence, id))
	case r.expires != nil:
		out.places = append(out.places, t.keys.expiry.Pack(*r.expires, id))
	}
	return out, nil
}

// CheckPlaces finds the keys of a job where now says, and none where before said. With
// each commit that writes them checked so, none are left over.
func (t *Type) CheckPlaces(tx kv.ReadTransaction, before, now JobRow) error {
	for _, key := range now.places {
		value, err := tx.Get(key).Await()
		if err != nil {
			return err
		}
		if value == nil {
			return fmt.Errorf("%s, and no key %q", now.Status, key)
		}
	}
	for _, key := range before.places {
		if slices.ContainsFunc(now.places, func(k []byte) bool { return bytes.Equal(k, key) }) {
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

// JobOf returns the job that a key is of which was written, "" if it is another key.
func (t *Type) JobOf(key []byte) string {
	for _, s := range []tuple.Subspace{t.keys.data, t.keys.delayed, t.keys.ready, t.keys.active, t.keys.status, t.keys.owned, t.keys.expiry} {
		if !bytes.HasPrefix(key, s.Bytes()) {
			continue
		}
		if id, err := lastString(s, key); err == nil {
			return id
		}
	}
	return ""
}
