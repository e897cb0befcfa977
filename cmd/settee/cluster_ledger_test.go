package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/jobs"
)

// ledger records each state of a replication job that a node writes, in the same transaction, keyed by the commit's
// versionstamp. So it has exactly the committed states, in the order of the commits, even if a node does not learn the
// result of a commit.
type ledger struct {
	states tuple.Subspace // (state, type) of the job layer
	rows   tuple.Subspace
	writes atomic.Int64 // attempted
}

// stateTag is the first element of fdbjobs' keys of states.
const stateTag = 1

func newLedger(prefix []byte) *ledger {
	return &ledger{
		states: tuple.SubspaceFromBytes(prefix).Sub(stateTag, jobs.QueueName),
		rows:   tuple.NewSubspace("ledger"),
	}
}

// record returns a store that records the writes of a node.
func (l *ledger) record(db kv.Database) kv.Database { return recorded{db, l} }

type recorded struct {
	kv.Database
	ledger *ledger
}

func (r recorded) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	return r.Database.Transact(ctx, func(tx kv.Transaction) error {
		return fn(&recordedTx{Transaction: tx, ledger: r.ledger})
	})
}

type recordedTx struct {
	kv.Transaction
	ledger *ledger
	writes atomic.Int64
}

func (tx *recordedTx) Set(key, value []byte) {
	tx.Transaction.Set(key, value)
	id, err := tx.ledger.states.Unpack(key)
	if err != nil {
		return
	}
	tx.ledger.writes.Add(1)
	stamp := tuple.IncompleteVersionstamp(uint16(tx.writes.Add(1)))
	row, err := tx.ledger.rows.PackWithVersionstamp(stamp, id[0])
	if err != nil {
		panic(err) // the key has one versionstamp
	}
	tx.SetVersionstampedKey(row, value)
}

// await waits until the nodes have written n more states. It returns false if ctx ends first.
func (l *ledger) await(ctx context.Context, writes int) bool {
	until := l.writes.Load() + int64(writes)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for l.writes.Load() < until {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// history is the history of one job in the ledger.
type history struct {
	runs   map[string]bool // all so far, by node and run name
	run    string          // the latest
	last   replicator.JobState
	trail  []string // states written
	faults []string
}

// read reads the whole ledger.
func (l *ledger) read(ctx context.Context, db kv.Database) (map[string]*history, error) {
	found := map[string]*history{}
	begin, end := l.rows.Range()
	for more := true; more; {
		pairs, err := kv.TransactValue(ctx, db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			return tx.Snapshot().GetRange(kv.KeyRange{Begin: begin, End: end}, kv.RangeOptions{Limit: 2_000}).Slice()
		})
		if err != nil {
			return nil, err
		}
		for _, pair := range pairs {
			key, err := l.rows.Unpack(pair.Key)
			if err != nil {
				return nil, err
			}
			var state replicator.JobState
			if err := json.Unmarshal(pair.Value, &state); err != nil {
				return nil, err
			}
			id := key[1].(string)
			if found[id] == nil {
				found[id] = &history{runs: map[string]bool{}}
			}
			found[id].add(state)
			begin = kv.KeyAfter(pair.Key)
		}
		more = len(pairs) > 0
	}
	return found, nil
}

// add checks the next state. Runs must not overlap: a run must not write after another one has, or after the end of the
// job. The statistics of a replication id must not shrink.
func (h *history) add(state replicator.JobState) {
	run := state.Node + "/" + state.PID
	h.trail = append(h.trail, fmt.Sprintf("%s %s %s docs_written=%d %v",
		run, state.State, state.LastUpdated.Format(time.TimeOnly), state.Stats.DocsWritten, state.History[0].Type))
	same := h.run != "" && h.last.Definition == state.Definition
	switch {
	case run == h.run:
	case h.runs[run]:
		h.fault("the run %s wrote after %s had begun", run, h.run)
	case same && h.last.State.Terminal():
		h.fault("the run %s began after the job had ended", run)
	}
	if same && h.last.ReplicationID == state.ReplicationID && state.Stats.DocsWritten < h.last.Stats.DocsWritten {
		h.fault("after %d written documents there are %d", h.last.Stats.DocsWritten, state.Stats.DocsWritten)
	}
	h.runs[run], h.run, h.last = true, run, state
}

func (h *history) fault(format string, args ...any) {
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}
