package enginetest

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/kv"
)

// Controlled is a store whose transactions a test can count, hold back, break and interrupt. The reads and writes of
// all runs count.
type Controlled struct {
	kv.Database
	Transactions atomic.Int64 // started
	Runs         atomic.Int64 // of transactions' functions
	Watches      atomic.Int64 // requested
	Gets         atomic.Int64 // reads of single keys that were started
	Ranges       atomic.Int64 // reads of ranges that were started
	Rows         atomic.Int64 // of ranges that were read
	KeysRead     atomic.Int64
	KeysWritten  atomic.Int64
	Mutations    atomic.Int64 // as FoundationDB counts writes: AddOrClear is two
	BytesRead    atomic.Int64 // of values
	BytesWritten atomic.Int64 // of values that were set
	SizeWritten  atomic.Int64 // bytes of the keys and values of all writes
	// Delay is the time from the start of a read to its result, in nanoseconds. Reads that are started together wait
	// together.
	Delay atomic.Int64
	// CommitDelay is the time from the end of a transaction's function to its commit, in nanoseconds.
	CommitDelay atomic.Int64

	mu           sync.Mutex
	err          error
	before       chan struct{} // closed by its release; nil means that nothing is held back
	after        chan struct{}
	betweenRuns  func()
	beforeCommit func()
}

// Control returns a store that behaves like db until a test changes that.
func Control(db kv.Database) *Controlled { return &Controlled{Database: db} }

// Fail makes all transactions fail with an error. nil ends that.
func (c *Controlled) Fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// HoldBefore holds transactions back before they begin, until release is called or their contexts end.
func (c *Controlled) HoldBefore() (release func()) { return c.hold(&c.before) }

// HoldAfter holds transactions back after they have been committed, until release is called.
func (c *Controlled) HoldAfter() (release func()) { return c.hold(&c.after) }

func (c *Controlled) hold(gate *chan struct{}) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := make(chan struct{})
	*gate = held
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		*gate = nil
		close(held)
	}
}

// BetweenRuns calls f once, between the first and the second run of a transaction. The second run reads what f wrote.
func (c *Controlled) BetweenRuns(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.betweenRuns = f
}

// BeforeCommit calls f once, after a transaction's function has succeeded and before its commit.
func (c *Controlled) BeforeCommit(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beforeCommit = f
}

// take returns a function to call once, or nil.
func (c *Controlled) take(f *func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := *f
	*f = nil
	return taken
}

func (c *Controlled) pass(ctx context.Context, gate *chan struct{}) error {
	c.mu.Lock()
	held := *gate
	c.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Controlled) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Transact implements kv.Database.
func (c *Controlled) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	c.Transactions.Add(1)
	if err := c.pass(ctx, &c.before); err != nil {
		return err
	}
	if err := c.failure(); err != nil {
		return err
	}
	run := 0
	err := c.Database.Transact(ctx, func(tx kv.Transaction) error {
		c.Runs.Add(1)
		if run++; run == 2 {
			if f := c.take(&c.betweenRuns); f != nil {
				f()
				return kv.ErrNotCommitted
			}
		}
		err := fn(controlledTx{tx, controlledReads{tx, c}})
		if err != nil {
			return err
		}
		if f := c.take(&c.beforeCommit); f != nil {
			f()
		}
		time.Sleep(time.Duration(c.CommitDelay.Load()))
		return nil
	})
	if err != nil {
		return err
	}
	return c.pass(context.Background(), &c.after)
}

type controlledReads struct {
	kv.ReadTransaction
	of *Controlled
}

func (r controlledReads) Get(key []byte) kv.Future[[]byte] {
	r.of.Gets.Add(1)
	return controlledValue{r.ReadTransaction.Get(key), r.started()}
}

func (r controlledReads) GetRange(of kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	r.of.Ranges.Add(1)
	return controlledRange{r.ReadTransaction.GetRange(of, opts), r.started()}
}

// controlledRead is a read that has been started.
type controlledRead struct {
	of  *Controlled
	due time.Time // when it has a result
}

func (r controlledReads) started() controlledRead {
	return controlledRead{r.of, time.Now().Add(time.Duration(r.of.Delay.Load()))}
}

// wait returns when the read has a result.
func (r controlledRead) wait() {
	if left := time.Until(r.due); left > 0 {
		time.Sleep(left)
	}
}

func (r controlledRead) count(value []byte) {
	r.of.KeysRead.Add(1)
	r.of.BytesRead.Add(int64(len(value)))
}

type controlledValue struct {
	kv.Future[[]byte]
	read controlledRead
}

func (v controlledValue) Await() ([]byte, error) {
	v.read.wait()
	value, err := v.Future.Await()
	v.read.count(value)
	return value, err
}

type controlledRange struct {
	kv.RangeResult
	read controlledRead
}

func (r controlledRange) All() iter.Seq2[kv.KeyValue, error] {
	return func(yield func(kv.KeyValue, error) bool) {
		r.read.wait()
		for pair, err := range r.RangeResult.All() {
			r.read.of.Rows.Add(1)
			r.read.count(pair.Value)
			if !yield(pair, err) {
				return
			}
		}
	}
}

func (r controlledRange) Slice() ([]kv.KeyValue, error) {
	r.read.wait()
	pairs, err := r.RangeResult.Slice()
	r.read.of.Rows.Add(int64(len(pairs)))
	for _, pair := range pairs {
		r.read.count(pair.Value)
	}
	return pairs, err
}

type controlledTx struct {
	kv.Transaction
	reads controlledReads
}

func (tx controlledTx) Get(key []byte) kv.Future[[]byte] { return tx.reads.Get(key) }

func (tx controlledTx) GetRange(r kv.KeyRange, opts kv.RangeOptions) kv.RangeResult {
	return tx.reads.GetRange(r, opts)
}

func (tx controlledTx) Snapshot() kv.ReadTransaction {
	return controlledReads{tx.Transaction.Snapshot(), tx.reads.of}
}

func (tx controlledTx) Watch(key []byte) kv.Watch {
	tx.reads.of.Watches.Add(1)
	return tx.Transaction.Watch(key)
}

// wrote counts a write of a key and a value.
func (tx controlledTx) wrote(key, value int) {
	tx.reads.of.KeysWritten.Add(1)
	tx.reads.of.Mutations.Add(1)
	tx.reads.of.SizeWritten.Add(int64(key + value))
}

const (
	counterSize = 8 // of what is added
	offsetSize  = 4 // at the end of what gets a versionstamp
)

func (tx controlledTx) Set(key, value []byte) {
	tx.wrote(len(key), len(value))
	tx.reads.of.BytesWritten.Add(int64(len(value)))
	tx.Transaction.Set(key, value)
}

func (tx controlledTx) Clear(key []byte) {
	tx.wrote(len(key), 0)
	tx.Transaction.Clear(key)
}

func (tx controlledTx) Add(key []byte, n int64) {
	tx.wrote(len(key), counterSize)
	tx.Transaction.Add(key, n)
}

func (tx controlledTx) AddOrClear(key []byte, n int64) {
	tx.wrote(len(key), counterSize)
	tx.reads.of.Mutations.Add(1)
	tx.Transaction.AddOrClear(key, n)
}

func (tx controlledTx) SetVersionstampedKey(key, value []byte) {
	tx.wrote(len(key)-offsetSize, len(value))
	tx.Transaction.SetVersionstampedKey(key, value)
}

func (tx controlledTx) SetVersionstampedValue(key, value []byte) {
	tx.wrote(len(key), len(value)-offsetSize)
	tx.Transaction.SetVersionstampedValue(key, value)
}
