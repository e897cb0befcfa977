package fdbjobs_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
)

// BenchmarkExchange shows what it costs to decide which of 12 running jobs of three owners make
// room for others, with a thousand and with a million jobs that wait: transactions, keys read and
// keys written in each decision, those of the exchange itself included.
func BenchmarkExchange(b *testing.B) {
	for _, jobs := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("waiting=%d", jobs), func(b *testing.B) {
			db := &talliedDB{Database: openDisk(b)}
			q := &queue{db: db, jobs: openLayer(b, db).Type("work"), owners: 3}
			restore := seldomCollect()
			q.add(b, jobs)
			restore()
			held := map[string]*fdbjobs.Held{}
			for len(held) < 12 {
				some, err := q.jobs.Accept(b.Context(), fdbjobs.AcceptOptions{Count: 12 - len(held)})
				require.NoError(b, err)
				for _, h := range some {
					held[h.Job().ID] = h
				}
			}
			decide := func() {
				_, err := q.jobs.RollUp(b.Context(), fdbjobs.Usage{Coeff: 0.5, Running: 120_000})
				require.NoError(b, err)
				yielding := []fdbjobs.Yielding{}
				for id, h := range held {
					yielding = append(yielding, fdbjobs.Yielding{ID: id, Owner: h.Job().Owner})
				}
				taken, err := q.jobs.Accept(b.Context(), fdbjobs.AcceptOptions{Count: 12, Yielding: yielding})
				require.NoError(b, err)
				for _, h := range taken {
					goes := held[h.Instead()]
					delete(held, h.Instead())
					held[h.Job().ID] = h
					require.NoError(b, goes.Resubmit(b.Context(), time.Time{}, nil, nil))
				}
			}
			for range 5 {
				decide()
			}
			db.reset()
			for b.Loop() {
				decide()
			}
			n := float64(b.N)
			b.ReportMetric(float64(db.transactions.Load())/n, "transactions/op")
			b.ReportMetric(float64(db.reads.Load())/n, "reads/op")
			b.ReportMetric(float64(db.writes.Load())/n, "writes/op")
			for _, h := range held {
				require.NoError(b, h.Finish(b.Context(), nil, nil))
			}
		})
	}
}

// talliedDB counts transactions, and the keys that they read and write.
type talliedDB struct {
	kv.Database
	transactions, reads, writes atomic.Int64
}

func (c *talliedDB) reset() {
	c.transactions.Store(0)
	c.reads.Store(0)
	c.writes.Store(0)
}

func (c *talliedDB) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	c.transactions.Add(1)
	return c.Database.Transact(ctx, func(tx kv.Transaction) error { return fn(&talliedTx{tx, talliedReads{tx, c}}) })
}

type talliedReads struct {
	kv.ReadTransaction
	of *talliedDB
}

func (t talliedReads) Get(key []byte) kv.Future[[]byte] {
	t.of.reads.Add(1)
	return t.ReadTransaction.Get(key)
}

func (t talliedReads) GetRange(r kv.Range, o kv.RangeOptions) kv.RangeResult {
	return talliedRows{t.ReadTransaction.GetRange(r, o), t.of}
}

type talliedRows struct {
	kv.RangeResult
	of *talliedDB
}

func (r talliedRows) Slice() ([]kv.KeyValue, error) {
	rows, err := r.RangeResult.Slice()
	r.of.reads.Add(int64(len(rows)))
	return rows, err
}

func (r talliedRows) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		for row, err := range r.RangeResult.All() {
			r.of.reads.Add(1)
			if !yield(row, err) {
				return
			}
		}
	}
}

type talliedTx struct {
	kv.Transaction
	reads talliedReads
}

func (t *talliedTx) Get(key []byte) kv.Future[[]byte] { return t.reads.Get(key) }

func (t *talliedTx) GetRange(r kv.Range, o kv.RangeOptions) kv.RangeResult {
	return t.reads.GetRange(r, o)
}

func (t *talliedTx) Snapshot() kv.ReadTransaction {
	return talliedReads{t.Transaction.Snapshot(), t.reads.of}
}

func (t *talliedTx) Set(key, value []byte) {
	t.reads.of.writes.Add(1)
	t.Transaction.Set(key, value)
}

func (t *talliedTx) Clear(key []byte) {
	t.reads.of.writes.Add(1)
	t.Transaction.Clear(key)
}

func (t *talliedTx) Atomic(m kv.MutationType, key, operand []byte) {
	t.reads.of.writes.Add(1)
	t.Transaction.Atomic(m, key, operand)
}

func (t *talliedTx) SetVersionstampedKey(key, value []byte) {
	t.reads.of.writes.Add(1)
	t.Transaction.SetVersionstampedKey(key, value)
}

func (t *talliedTx) SetVersionstampedValue(key, value []byte) {
	t.reads.of.writes.Add(1)
	t.Transaction.SetVersionstampedValue(key, value)
}
