//go:build !race

package fdbjobs_test

import (
	"context"

	"settee/pkg/kv"
)

// recorded is the store as the ledger sees it: each commit at once.
type recorded struct {
	kv.Database
	ledger *ledger
}

func (r *recorded) Transact(ctx context.Context, fn func(kv.Transaction) error) error {
	var last *recordedTx
	err := r.Database.Transact(ctx, func(tx kv.Transaction) error {
		last = &recordedTx{Transaction: tx}
		return fn(last)
	})
	if err == nil && len(last.keys) > 0 {
		r.ledger.committed(ctx, last.keys, last.added)
	}
	return err
}

// recordedTx keeps the single keys that were written, and those to which something was added.
type recordedTx struct {
	kv.Transaction
	keys, added [][]byte
}

func (tx *recordedTx) Add(key []byte, n int64) {
	tx.added = append(tx.added, key)
	tx.Transaction.Add(key, n)
}

func (tx *recordedTx) Set(key, value []byte) {
	tx.keys = append(tx.keys, key)
	tx.Transaction.Set(key, value)
}

func (tx *recordedTx) Clear(key []byte) {
	tx.keys = append(tx.keys, key)
	tx.Transaction.Clear(key)
}

func (tx *recordedTx) SetVersionstampedKey(key, value []byte) {
	tx.keys = append(tx.keys, key[:len(key)-4])
	tx.Transaction.SetVersionstampedKey(key, value)
}

func (tx *recordedTx) SetVersionstampedValue(key, value []byte) {
	tx.keys = append(tx.keys, key)
	tx.Transaction.SetVersionstampedValue(key, value)
}

// intent is what a goroutine of the program is about to do, which limits what the commits of its context may do. A
// commit without one is the layer's.
type intent struct {
	does string // one of the constants below
	ids  []string
	n    int // the args to add

	lock    string // of the holder
	ends    bool   // it finishes the job, or resubmits it
	args    int    // of the holder
	state   string // written by the holder
	written int    // number of commits that wrote what the holder adds
	done    bool   // a commit ended it
	fails   bool   // what the holder adds fails
	keeps   bool   // it keeps the state, so perhaps the row as well

	committed map[string]bool // ids that were written, or found in the right state
}

const (
	adds     = "adds"
	hastens  = "hastens"
	removes  = "removes"
	holds    = "holds"
	monitors = "monitors"
	expires  = "expires"

	rederives = "rederives"
)

type intentKey struct{}

func (i *intent) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, intentKey{}, i)
}
