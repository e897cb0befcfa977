package kvtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

func testIsolation(t *testing.T, b *bench) {
	set := func(key string) func(kv.Transaction) {
		return func(tx kv.Transaction) { tx.Set([]byte(key), []byte("other")) }
	}
	out := func(tx kv.Transaction) { tx.Set([]byte("out"), nil) } // something to commit
	for _, c := range []struct {
		name      string
		conflicts bool
		first     func(tx kv.Transaction)
		other     func(tx kv.Transaction)
	}{
		{"point read", true, func(tx kv.Transaction) { b.get(tx, "b"); out(tx) }, set("b")},
		{"read of nothing", true, func(tx kv.Transaction) { b.get(tx, "bb"); out(tx) }, set("bb")},
		{"read of another key", false, func(tx kv.Transaction) { b.get(tx, "b"); out(tx) }, set("c")},
		{"snapshot read", false, func(tx kv.Transaction) { b.get(tx.Snapshot(), "b"); out(tx) }, set("b")},
		{"read only", false, func(tx kv.Transaction) { b.get(tx, "b") }, set("b")},
		{"phantom", true, func(tx kv.Transaction) { b.keys(tx, "a", "d", kv.RangeOptions{}); out(tx) }, set("bbb")},
		{"behind the limit", false, func(tx kv.Transaction) {
			b.keys(tx, "a", "d", kv.RangeOptions{Limit: 2})
			out(tx)
		}, set("c")},
		{"before the limit", true, func(tx kv.Transaction) {
			b.keys(tx, "a", "d", kv.RangeOptions{Limit: 2})
			out(tx)
		}, set("aa")},
		{"before the limit in reverse", false, func(tx kv.Transaction) {
			b.keys(tx, "a", "d", kv.RangeOptions{Limit: 1, Reverse: true})
			out(tx)
		}, set("a")},
		{"cleared range", true, func(tx kv.Transaction) { b.get(tx, "b"); out(tx) },
			func(tx kv.Transaction) { tx.ClearRange(between("a", "c")) }},
		{"own writes", false, func(tx kv.Transaction) {
			tx.Set([]byte("b"), []byte("mine"))
			b.get(tx, "b")
		}, set("b")},
		{"selector", true, func(tx kv.Transaction) {
			_, err := tx.GetKey(kv.FirstGreaterThan([]byte("a"))).Await()
			require.NoError(t, err)
			out(tx)
		}, set("aa")},
		{"explicit read conflict", true, func(tx kv.Transaction) {
			b.get(tx.Snapshot(), "zz") // draws the read version
			tx.AddReadConflictKey([]byte("b"))
			out(tx)
		}, set("b")},
		{"explicit read range", true, func(tx kv.Transaction) {
			b.get(tx.Snapshot(), "zz")
			tx.AddReadConflictRange(between("a", "c"))
			out(tx)
		}, set("b")},
		{"explicit write conflict", true, func(tx kv.Transaction) { b.get(tx, "b"); out(tx) },
			func(tx kv.Transaction) { tx.AddWriteConflictKey([]byte("b")) }},
		{"explicit write range", true, func(tx kv.Transaction) { b.get(tx, "b"); out(tx) },
			func(tx kv.Transaction) { tx.AddWriteConflictRange(between("a", "c")) }},
	} {
		b.do(func(tx kv.Transaction) { tx.ClearRange(between("", "\xff")) })
		b.set("a", "1", "b", "2", "c", "3")
		err := b.committedBeside(c.first, c.other)
		if c.conflicts {
			require.ErrorIs(t, err, kv.ErrNotCommitted, c.name)
		} else {
			require.NoError(t, err, c.name)
		}
	}
	b.testWriteSkew()
	b.testCounter()
}

// testWriteSkew: two transactions that each read what the other writes cannot
// both commit.
func (b *bench) testWriteSkew() {
	b.set("x", "1", "y", "1")
	err := b.committedBeside(
		func(tx kv.Transaction) { b.get(tx, "x"); tx.Set([]byte("y"), []byte("0")) },
		func(tx kv.Transaction) { b.get(tx, "y"); tx.Set([]byte("x"), []byte("0")) })
	require.ErrorIs(b.t, err, kv.ErrNotCommitted)
}

// testCounter: increments by read and write from many goroutines all count.
func (b *bench) testCounter() {
	const workers, increments = 8, 25
	ctx := b.ctx()
	var group sync.WaitGroup
	errs := make(chan error, workers)
	for range workers {
		group.Go(func() {
			for range increments {
				if err := b.db.Transact(ctx, increment); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	require.NoError(b.t, <-errs)
	require.Equal(b.t, number(workers*increments, 8), b.value("counter"))
}

func increment(tx kv.Transaction) error {
	value, err := tx.Get([]byte("counter")).Await()
	if err != nil {
		return err
	}
	n := uint64(0)
	if value != nil {
		n = binary.LittleEndian.Uint64(value)
	}
	tx.Set([]byte("counter"), binary.LittleEndian.AppendUint64(nil, n+1))
	return nil
}

// stampedKey returns a key of prefix, a stamp and the writer's two bytes.
func stampedKey(prefix string, order uint16) []byte {
	key := append([]byte(prefix), make([]byte, 10)...)
	key = binary.BigEndian.AppendUint16(key, order)
	return binary.LittleEndian.AppendUint32(key, uint32(len(prefix)))
}

func testVersionstamps(t *testing.T, b *bench) {
	var last []byte
	for i := range 20 {
		var stamp kv.Future[kv.Versionstamp]
		b.do(func(tx kv.Transaction) {
			tx.SetVersionstampedKey(stampedKey("k/", 1), []byte("one"))
			tx.SetVersionstampedKey(stampedKey("k/", 2), []byte("two"))
			tx.SetVersionstampedValue([]byte("v"), stampedKey("", 0))
			stamp = tx.Versionstamp()
		})
		got, err := stamp.Await()
		require.NoError(t, err)
		require.Positive(t, bytes.Compare(got[:], last), "stamps grow with each commit")
		last = got[:]
		require.Equal(t, string(got[:])+"\x00\x00", b.value("v"))
		require.Equal(t, "one", b.value("k/"+string(got[:])+"\x00\x01"))
		b.do(func(tx kv.Transaction) {
			require.Len(t, b.keys(tx, "k/", "k0", kv.RangeOptions{}), 2*(i+1))
		})
	}
	b.do(func(tx kv.Transaction) { // many in one transaction
		for i := range 1000 {
			tx.SetVersionstampedKey(stampedKey("many/", uint16(i)), nil)
		}
	})
	b.do(func(tx kv.Transaction) {
		require.Len(t, b.keys(tx, "many/", "many0", kv.RangeOptions{}), 1000)
	})

	var none kv.Future[kv.Versionstamp]
	b.do(func(tx kv.Transaction) { none = tx.Versionstamp() })
	_, err := none.Await()
	require.ErrorIs(t, err, kv.ErrNoCommitVersion)
	b.testUnreadable()
	b.testConcurrentStamps()
}

func (b *bench) testUnreadable() {
	stamped := func(tx kv.Transaction) {
		tx.SetVersionstampedKey(stampedKey("k/", 0), nil)
		tx.SetVersionstampedValue([]byte("v"), stampedKey("", 0))
	}
	for name, read := range map[string]func(tx kv.Transaction) error{
		"value": func(tx kv.Transaction) error { _, err := tx.Get([]byte("v")).Await(); return err },
		"range over the value": func(tx kv.Transaction) error {
			_, err := tx.GetRange(between("u", "w"), kv.RangeOptions{}).Slice()
			return err
		},
		"range over the key": func(tx kv.Transaction) error {
			_, err := tx.GetRange(between("k", "l"), kv.RangeOptions{}).Slice()
			return err
		},
		"snapshot": func(tx kv.Transaction) error { _, err := tx.Snapshot().Get([]byte("v")).Await(); return err },
	} {
		err := b.fails(func(tx kv.Transaction) error {
			stamped(tx)
			return read(tx)
		})
		require.ErrorIs(b.t, err, kv.ErrUnreadable, name)
	}
	b.do(func(tx kv.Transaction) { // what lies beside them is readable
		stamped(tx)
		require.Equal(b.t, "<none>", b.get(tx, "kk"))
		require.Empty(b.t, b.keys(tx, "l", "m", kv.RangeOptions{}))
	})
}

// testConcurrentStamps: no stamp is given twice.
func (b *bench) testConcurrentStamps() {
	const writers, commits = 8, 25
	ctx := b.ctx()
	var group sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		group.Go(func() {
			for range commits {
				err := b.db.Transact(ctx, func(tx kv.Transaction) error {
					tx.SetVersionstampedKey(stampedKey("c/", 0), fmt.Append(nil, w))
					return nil
				})
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	require.NoError(b.t, <-errs)
	b.do(func(tx kv.Transaction) {
		require.Len(b.t, b.keys(tx, "c/", "c0", kv.RangeOptions{}), writers*commits)
	})
}

func testWatches(t *testing.T, b *bench) {
	watch := func(key string) (w kv.Watch) {
		b.do(func(tx kv.Transaction) { w = tx.Watch([]byte(key)) })
		return w
	}
	b.set("k", "1")
	set := watch("k")
	b.set("k", "2")
	require.NoError(t, set.Wait(b.ctx()))

	cleared := watch("k")
	b.do(func(tx kv.Transaction) { tx.ClearRange(between("a", "z")) })
	require.NoError(t, cleared.Wait(b.ctx()))

	created, atomic := watch("new"), watch("sum")
	b.set("new", "")
	b.do(func(tx kv.Transaction) { tx.Atomic(kv.MutationAdd, []byte("sum"), []byte{1}) })
	require.NoError(t, created.Wait(b.ctx()))
	require.NoError(t, atomic.Wait(b.ctx()))

	// A change between the read and the arming is not missed.
	var between kv.Watch
	require.NoError(t, b.committedBeside(
		func(tx kv.Transaction) { between = tx.Watch([]byte("k")) },
		func(tx kv.Transaction) { tx.Set([]byte("k"), []byte("3")) }))
	require.NoError(t, between.Wait(b.ctx()))

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	idle := watch("k")
	require.ErrorIs(t, idle.Wait(ctx), context.Canceled)
	idle.Cancel()
	require.ErrorIs(t, idle.Wait(b.ctx()), kv.ErrWatchCancelled)

	var dropped kv.Watch
	_ = b.fails(func(tx kv.Transaction) error {
		dropped = tx.Watch([]byte("k"))
		return context.Canceled
	})
	require.ErrorIs(t, dropped.Wait(b.ctx()), kv.ErrWatchCancelled)
}
