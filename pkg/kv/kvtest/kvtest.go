// Package kvtest is the conformance suite of package kv: tests for every engine, including FoundationDB.
//
// The store may be shared and may be a real cluster. All keys of the suite begin with a random prefix, and are cleared
// when a test ends. The suite asserts nothing about other keys, and nothing that FoundationDB does not promise: a
// transaction may run again at any time without a reason in the test, or after a commit that was made, a watch may end
// early, and a conflict may be reported where there is none.
package kvtest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// Advancer is a database whose clock the suite can move. With other databases the suite waits.
type Advancer interface {
	// Advance lets d pass on the database's clock.
	Advance(d time.Duration)
}

// Clock is a clock that only Advance moves. A store with its Now, together with the clock, is an [Advancer].
type Clock struct{ sinceEpoch atomic.Int64 }

// Now returns the clock's time, which begins at the Unix epoch.
func (c *Clock) Now() time.Time { return time.Unix(0, c.sinceEpoch.Load()) }

// Advance implements [Advancer].
func (c *Clock) Advance(d time.Duration) { c.sinceEpoch.Add(int64(d)) }

// Run runs the suite. open returns a database of the engine that is closed when t ends. It may be the same for several
// tests. With an [Advancer] the suite is some seconds faster.
func Run(t *testing.T, open func(t *testing.T) kv.Database) {
	groups := []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"Reads", testReads},
		{"Writes", testWrites},
		{"Add", testAdd},
		{"ReadYourWrites", testReadYourWrites},
		{"Unreadable", testUnreadable},
		{"Versionstamps", testVersionstamps},
		{"MetadataVersion", testMetadataVersion},
		{"Isolation", testIsolation},
		{"Anomalies", testAnomalies},
		{"Watches", testWatches},
		{"Limits", testLimits},
		{"Age", testAge},
		{"Transact", testTransact},
		{"Model", testModel},
		{"Linearizable", testLinearizable},
	}
	// Watches have one limit for a process, so no other test may need one now.
	t.Run("TooManyWatches", func(t *testing.T) { testTooManyWatches(t, newBench(t, open(t))) })
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			group.test(t, newBench(t, open(t)))
		})
	}
}

// bench is a database under test and the test's keys in it.
type bench struct {
	t  *testing.T
	db kv.Database
	// data is the prefix of the test's keys, and marks is the prefix of the keys that write leaves.
	data, marks string
}

func newBench(t *testing.T, db kv.Database) *bench {
	prefix := "kvtest/" + randomName() + "/"
	b := &bench{t: t, db: db, data: prefix + "data/", marks: prefix + "marks/"}
	t.Cleanup(func() {
		require.NoError(t, b.run(func(tx kv.Transaction) { tx.ClearRange(kv.PrefixRange([]byte(prefix))) }))
	})
	return b
}

func randomName() string {
	var name [8]byte
	for i := range name {
		name[i] = byte(rand.Uint32())
	}
	return hex.EncodeToString(name[:])
}

// patience is the longest time that a test waits for an event.
const patience = 2 * time.Minute

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

// key returns the database's key for a key of the test.
func (b *bench) key(key string) []byte { return []byte(b.data + key) }

func (b *bench) between(begin, end string) kv.KeyRange {
	return kv.KeyRange{Begin: b.key(begin), End: b.key(end)}
}

// all returns the range of the test's keys.
func (b *bench) all() kv.KeyRange { return kv.PrefixRange([]byte(b.data)) }

// own removes the prefix from a key of the database.
func (b *bench) own(key []byte) string {
	own, ok := strings.CutPrefix(string(key), b.data)
	if !ok {
		b.check(fmt.Errorf("%q was read, a key that does not begin with %q", key, b.data))
	}
	return own
}

// aborted carries an error from a function under test to Transact.
type aborted struct{ err error }

// check ends a run if there is an error. The transaction runs again, or returns the error.
func (b *bench) check(err error) {
	if err != nil {
		panic(aborted{err})
	}
}

func (b *bench) run(fn func(tx kv.Transaction)) error {
	return b.runErr(func(tx kv.Transaction) error {
		fn(tx)
		return nil
	})
}

func (b *bench) runErr(fn func(tx kv.Transaction) error) error {
	return b.db.Transact(b.ctx(), func(tx kv.Transaction) (err error) {
		defer func() {
			switch p := recover().(type) {
			case nil:
			case aborted:
				err = p.err
			default:
				panic(p)
			}
		}()
		return fn(tx)
	})
}

// read runs fn, which writes nothing.
func (b *bench) read(fn func(tx kv.Transaction)) {
	b.t.Helper()
	require.NoError(b.t, b.run(fn))
}

// errRollback ends a transaction that must not be committed.
var errRollback = errors.New("not to be committed")

// try runs fn and commits nothing.
func (b *bench) try(fn func(tx kv.Transaction)) {
	b.t.Helper()
	require.ErrorIs(b.t, b.runErr(func(tx kv.Transaction) error {
		fn(tx)
		return errRollback
	}), errRollback)
}

// write runs fn and commits it once: if a commit's result was lost, the next run finds its mark.
func (b *bench) write(fn func(tx kv.Transaction)) {
	b.t.Helper()
	require.NoError(b.t, b.once(fn))
}

func (b *bench) once(fn func(tx kv.Transaction)) error {
	mark := []byte(b.marks + randomName())
	first := true
	return b.run(func(tx kv.Transaction) {
		if !first {
			done, err := tx.Get(mark).Await()
			b.check(err)
			if done != nil {
				return
			}
		}
		first = false
		tx.Set(mark, nil)
		fn(tx)
	})
}

// failure runs fn in a transaction that must fail without a retry, and returns the error.
func (b *bench) failure(fn func(tx kv.Transaction) error) error {
	b.t.Helper()
	err := b.runErr(fn)
	require.Error(b.t, err)
	return err
}

// set writes pairs, given as key, value, key, value and so on.
func (b *bench) set(pairs ...string) {
	b.t.Helper()
	b.write(func(tx kv.Transaction) {
		for i := 0; i < len(pairs); i += 2 {
			tx.Set(b.key(pairs[i]), []byte(pairs[i+1]))
		}
	})
}

// reset replaces all pairs.
func (b *bench) reset(pairs ...string) {
	b.t.Helper()
	b.write(func(tx kv.Transaction) {
		tx.ClearRange(b.all())
		for i := 0; i < len(pairs); i += 2 {
			tx.Set(b.key(pairs[i]), []byte(pairs[i+1]))
		}
	})
}

// none stands for a missing value.
const none = "<none>"

// value reads one key in a transaction of its own.
func (b *bench) value(key string) (value string) {
	b.t.Helper()
	b.read(func(tx kv.Transaction) { value = b.get(tx, key) })
	return value
}

func (b *bench) get(tx kv.ReadTransaction, key string) string {
	b.t.Helper()
	value, err := tx.Get(b.key(key)).Await()
	b.check(err)
	if value == nil {
		return none
	}
	return string(value)
}

// pairs reads a range as key=value.
func (b *bench) pairs(tx kv.ReadTransaction, r kv.KeyRange, opts kv.RangeOptions) []string {
	b.t.Helper()
	pairs, err := tx.GetRange(r, opts).Slice()
	b.check(err)
	list := []string{}
	for _, pair := range pairs {
		if pair.Value == nil {
			b.check(fmt.Errorf("the value of %q is nil", pair.Key))
		}
		list = append(list, b.own(pair.Key)+"="+string(pair.Value))
	}
	return list
}

// keys reads the keys of a range.
func (b *bench) keys(tx kv.ReadTransaction, begin, end string, opts kv.RangeOptions) []string {
	b.t.Helper()
	pairs, err := tx.GetRange(b.between(begin, end), opts).Slice()
	b.check(err)
	keys := []string{}
	for _, pair := range pairs {
		keys = append(keys, b.own(pair.Key))
	}
	return keys
}
