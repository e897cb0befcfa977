// Package rates keeps what the nodes did: in slots of ten seconds for two hours, and of two minutes for a day. The scheduler records
// what its process does, and the HTTP interface shows the sum of all.
//
// Keys, below the subspace ("replicator"):
//
//	("rates", length, slot, process) -> Work    what a process did in a slot
//
// length is the length of the slot in seconds, and slot its number from the Unix epoch. A process sets its
// own rows, which a repeated transaction does not count twice. It writes nothing for a slot in which
// it did nothing. Each process that writes also removes the old rows of all, so there are at most
// 1,440 for each process that lived in the last day.
package rates

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

const (
	// FineSlot is the length of short slots.
	FineSlot = 10 * time.Second
	// CoarseSlot is the length of long slots.
	CoarseSlot = 12 * FineSlot
	// SlotsKept is the number of slots of each length that is kept.
	SlotsKept = 720
)

// Work is what nodes did in some time.
type Work struct {
	replicator.DocCounts
	// Starts counts runs that began, Stops those that ended to go on later, Crashes those that failed
	// and are tried again. Completed and Failed count jobs that ended.
	Starts, Stops, Crashes, Completed, Failed int64
	// BytesReceived from endpoints and BytesSent to them, with everything that HTTP and TLS add.
	BytesReceived, BytesSent int64
}

// fields are the counters in the order in which they are stored.
func (w *Work) fields() []*int64 {
	return []*int64{
		&w.DocsRead, &w.DocsWritten, &w.DocWriteFailures, &w.Starts, &w.Stops, &w.Crashes, &w.Completed, &w.Failed,
		&w.BytesReceived, &w.BytesSent,
	}
}

// Add adds the counters of other.
func (w *Work) Add(other Work) {
	more := other.fields()
	for i, n := range w.fields() {
		*n += *more[i]
	}
}

func (w *Work) pack() []byte {
	var t tuple.Tuple
	for _, n := range w.fields() {
		t = append(t, *n)
	}
	return t.Pack()
}

func parseWork(value []byte) (w Work, err error) {
	t, err := tuple.Unpack(value)
	fields := w.fields()
	if err == nil && len(t) != len(fields) {
		err = tuple.ErrMalformed
	}
	for i := 0; err == nil && i < len(fields); i++ {
		if !rows.As(t[i], fields[i]) {
			err = tuple.ErrMalformed
		}
	}
	if err != nil {
		return w, fmt.Errorf("reading what nodes did: %w", err)
	}
	return w, nil
}

// slot is the time in which work is counted.
type slot struct {
	length time.Duration
	number int64
}

func slotAt(t time.Time, length time.Duration) slot {
	return slot{length, t.Unix() / int64(length/time.Second)}
}

// Rates are the rates of a store. It is safe for concurrent use.
type Rates struct {
	db      kv.Database
	process string

	mu      sync.Mutex
	latest  time.Time
	unsaved map[slot]struct{}
	work    map[slot]*Work // of the latest slots, and of those that could not be saved
	cleared slot
}

// Open returns the rates of a store, for a process.
func Open(db kv.Database) *Rates {
	return &Rates{db: db, process: rand.Text(), unsaved: map[slot]struct{}{}, work: map[slot]*Work{}}
}

// rowsOf returns the rows of the slots of a length.
func rowsOf(length time.Duration) tuple.Subspace {
	return tuple.NewSubspace("replicator", "rates", int64(length/time.Second))
}

// Valid reports whether a value is one that Record writes.
func Valid(value []byte) bool {
	_, err := parseWork(value)
	return err == nil
}

// Record adds what the process did around a time. If that cannot be stored, it returns the error, and
// the next Record stores it.
func (r *Rates) Record(ctx context.Context, at time.Time, w Work) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.Before(r.latest) {
		at = r.latest // the rows of earlier slots are forgotten here
	}
	r.latest = at
	if w != (Work{}) {
		for _, length := range []time.Duration{FineSlot, CoarseSlot} {
			at := slotAt(at, length)
			if r.work[at] == nil {
				r.work[at] = new(Work)
			}
			r.work[at].Add(w)
			r.unsaved[at] = struct{}{}
		}
	}
	for of := range r.work {
		_, unsaved := r.unsaved[of]
		if now := slotAt(at, of.length); of.number <= now.number-SlotsKept || of != now && !unsaved {
			delete(r.work, of)
			delete(r.unsaved, of)
		}
	}
	if len(r.unsaved) == 0 {
		return nil
	}
	now := slotAt(at, CoarseSlot)
	err := r.db.Transact(ctx, func(tx kv.Transaction) error {
		for of := range r.unsaved {
			tx.Set(rowsOf(of.length).Pack(of.number, r.process), r.work[of].pack())
		}
		for _, length := range []time.Duration{FineSlot, CoarseSlot} {
			if all := rowsOf(length); now != r.cleared {
				old := rows.Range(all)
				old.End = all.Pack(slotAt(at, length).number - SlotsKept)
				tx.ClearRange(old)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("recording what this node did: %w", err)
	}
	clear(r.unsaved)
	r.cleared = now
	return nil
}

// Read returns what all nodes did from a time on, in each of n steps of whole slots of that length,
// FineSlot or CoarseSlot. since is the beginning of a slot. A step of the last twenty seconds may
// be incomplete.
func (r *Rates) Read(ctx context.Context, length time.Duration, since time.Time, step time.Duration, n int) ([]Work, error) {
	const atOnce = 2_000
	steps, first, inStep := make([]Work, n), slotAt(since, length).number, int64(step/length)
	all := rowsOf(length)
	rest := kv.KeyRange{Begin: all.Pack(first), End: all.Pack(first + int64(n)*inStep)}
	for {
		pairs, err := kv.TransactValue(ctx, r.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			return tx.Snapshot().GetRange(rest, kv.RangeOptions{Limit: atOnce}).Slice()
		})
		if err != nil {
			return nil, fmt.Errorf("reading what nodes did: %w", err)
		}
		for _, pair := range pairs {
			key, err := all.Unpack(pair.Key)
			var number int64
			if err != nil || len(key) != 2 || !rows.As(key[0], &number) {
				return nil, fmt.Errorf("reading what nodes did: %w", tuple.ErrMalformed)
			}
			w, err := parseWork(pair.Value)
			if err != nil {
				return nil, err
			}
			steps[(number-first)/inStep].Add(w)
		}
		if len(pairs) < atOnce {
			return steps, nil
		}
		rest.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
}
