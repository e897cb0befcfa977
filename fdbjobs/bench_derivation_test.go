package fdbjobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/costtest"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/tuple"
)

// BenchmarkDerivation runs jobs through their life cycle in three queues, which take turns: without a derivation, with one that
// has four static entries and two that follow the status, and without one in a store that writes the keys of these entries
// by itself. plain/derived is the processor time of a cycle without a derivation for one with it, and keys/derived is the same
// with the keys: what the derivation costs besides its keys. keys is the number of keys that it writes in a cycle.
func BenchmarkDerivation(b *testing.B) {
	const cyclesAtOnce = 200
	entriesOf := func(_ int64, f fdbjobs.Facts) []fdbjobs.Entry {
		entries := make([]fdbjobs.Entry, 0, 6)
		for i := range 4 {
			entries = append(entries, fdbjobs.Entry{Index: staticIndex(i), Key: tuple.Tuple{"host", string(f.Listed)}})
		}
		entries[0].Adds = []fdbjobs.Add{{Prefix: 1, Name: "all", N: 1}}
		for i := range 2 {
			entries = append(entries, fdbjobs.Entry{
				Index: statusIndex(i), Key: tuple.Tuple{f.Owner, string(f.Status)}, Adds: []fdbjobs.Add{{Prefix: 1, Name: string(f.Status), N: 1}},
			})
		}
		return entries
	}
	d := fdbjobs.Derivation{
		OfListed: func(_ int64, listed json.RawMessage) []byte { return listed[5:15] },
		OfState:  func(_ int64, state json.RawMessage) []byte { return state[5:8] },
		Entries:  entriesOf,
	}
	type variant struct {
		store *alsoKeys
		jobs  *fdbjobs.Queue
		n     int
		cost  costtest.Cost
	}
	var variants []*variant // plain, keys, derived
	for i := range 3 {
		v := &variant{store: &alsoKeys{Controlled: enginetest.Control(enginetest.Disk(b)), also: i == 1, puts: map[string]int{}}}
		opts := fdbjobs.Options{}
		if i == 2 {
			opts.Derive = map[string]fdbjobs.Derivation{"work": d}
		}
		layer := fdbjobs.Open(v.store, prefix, opts)
		b.Cleanup(layer.Close)
		v.jobs = layer.Queue("work")
		variants = append(variants, v)
	}
	add := func(v *variant, scheduled time.Time) {
		id := fmt.Sprintf("%032d", v.n)
		v.n++
		require.NoError(b, v.store.Transact(b.Context(), func(tx kv.Transaction) error {
			return v.jobs.Add(tx, fdbjobs.Spec{
				ID: id, Owner: "owner", Args: text(`{"n":1}`), State: text(`{"s":"123"}`), Listed: text(`{"l":"0123456789"}`), Scheduled: scheduled,
			})
		}))
	}
	cycle := func(v *variant) {
		ctx := b.Context()
		add(v, time.Time{})
		held, err := v.jobs.Accept(ctx, fdbjobs.AcceptOptions{})
		require.NoError(b, err)
		require.NoError(b, held[0].Update(ctx, text(`{"s":"123"}`), nil))
		require.NoError(b, held[0].Finish(ctx, text(`{"s":"124"}`), nil))
	}
	for _, v := range variants {
		// No counter becomes 0: the embedded engine reads those that do slowly.
		add(v, time.Now().Add(time.Hour))
		add(v, time.Time{})
		_, err := v.jobs.Accept(b.Context(), fdbjobs.AcceptOptions{})
		require.NoError(b, err)
		for range cyclesAtOnce {
			cycle(v)
		}
		v.store.KeysWritten.Store(0)
	}
	cycles := 0
	for b.Loop() {
		for _, v := range variants {
			cost := costtest.Of(func() {
				for range cyclesAtOnce {
					cycle(v)
				}
			})
			v.cost.Processor, v.cost.Allocated = v.cost.Processor+cost.Processor, v.cost.Allocated+cost.Allocated
		}
		cycles += cyclesAtOnce
	}
	plain, keys, derived := variants[0], variants[1], variants[2]
	perCycle := func(t time.Duration) float64 { return float64(t.Microseconds()) / float64(cycles) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(perCycle(plain.cost.Processor), "plain-µs")
	b.ReportMetric(perCycle(keys.cost.Processor), "keys-µs")
	b.ReportMetric(perCycle(derived.cost.Processor), "derived-µs")
	b.ReportMetric(float64(plain.cost.Processor)/float64(derived.cost.Processor), "plain/derived")
	b.ReportMetric(float64(keys.cost.Processor)/float64(derived.cost.Processor), "keys/derived")
	b.ReportMetric(float64(keys.cost.Allocated)/float64(derived.cost.Allocated), "allocated-keys/derived")
	b.ReportMetric(float64(derived.store.KeysWritten.Load()-plain.store.KeysWritten.Load())/float64(cycles), "keys")
	require.InEpsilon(b, derived.store.KeysWritten.Load(), keys.store.KeysWritten.Load(), 0.01, "both write the same number of keys")
}

func staticIndex(i int) string { return []string{"static 0", "static 1", "static 2", "static 3"}[i] }
func statusIndex(i int) string { return []string{"status 0", "status 1"}[i] }

// alsoKeys is a store that writes the keys of the entries of BenchmarkDerivation, if also is set.
type alsoKeys struct {
	*enginetest.Controlled
	also bool
	puts map[string]int // writes of the rows of a job, by key
}

func (s *alsoKeys) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	return s.Controlled.Transact(ctx, func(tx kv.Transaction) error { return fn(alsoKeysTx{tx, s}) })
}

type alsoKeysTx struct {
	kv.Transaction
	of *alsoKeys
}

var (
	benchSpace = tuple.SubspaceFromBytes(prefix)
	benchRows  = benchSpace.Sub(0, "work").Bytes()
)

func (tx alsoKeysTx) SetVersionstampedValue(key, value []byte) {
	tx.Transaction.SetVersionstampedValue(key, value)
	tx.row(key)
}

func (tx alsoKeysTx) Set(key, value []byte) {
	tx.Transaction.Set(key, value)
	tx.row(key)
}

// row writes what follows from a row: all when the job is added, and what changes with its status later.
func (tx alsoKeysTx) row(key []byte) {
	if !tx.of.also || !bytes.HasPrefix(key, benchRows) {
		return
	}
	id := string(key[len(benchRows):])
	puts := tx.of.puts[id]
	tx.of.puts[id] = (puts + 1) % 3
	statuses := []string{"", "pending", "running", "finished"}
	if puts == 0 {
		for i := range 4 {
			tx.Transaction.Set(benchSpace.Pack(14, "work", staticIndex(i), "host", "0123456789", id), nil)
		}
		tx.Add(benchSpace.Pack(15, "work", staticIndex(0), 1, "host", "all"), 1)
	}
	for i := range 2 {
		tx.Transaction.Set(benchSpace.Pack(14, "work", statusIndex(i), "owner", statuses[puts+1], id), nil)
		tx.Add(benchSpace.Pack(15, "work", statusIndex(i), 1, "owner", statuses[puts+1]), 1)
		if puts > 0 {
			tx.Clear(benchSpace.Pack(14, "work", statusIndex(i), "owner", statuses[puts], id))
			tx.AddOrClear(benchSpace.Pack(15, "work", statusIndex(i), 1, "owner", statuses[puts]), -1)
		}
	}
}
