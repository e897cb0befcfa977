package kvtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// errSecondRun ends a transaction whose first run was not acknowledged.
var errSecondRun = errors.New("ran again")

// besides runs first in a transaction, commits other before the first one commits, and reports whether the first run
// was committed.
func (b *bench) besides(first, other func(tx kv.Transaction)) bool {
	b.t.Helper()
	ran := false
	err := b.runErr(func(tx kv.Transaction) error {
		if ran {
			return errSecondRun
		}
		ran = true
		first(tx)
		b.write(other)
		return nil
	})
	if !errors.Is(err, errSecondRun) {
		require.NoError(b.t, err)
	}
	return err == nil
}

// isolationCase has two transactions. other is committed between the reads of first and its commit.
type isolationCase struct {
	name         string
	conflicts    bool
	first, other func(tx kv.Transaction)
}

// testIsolation tests what conflicts, and what does not.
func testIsolation(t *testing.T, b *bench) {
	for _, c := range isolationCases(b) {
		if c.conflicts {
			b.reset("a", "1", "b", "2", "c", "3")
			require.False(t, b.besides(c.first, c.other), "%s: conflicts", c.name)
			require.Equal(t, none, b.value("out"), "%s: the transaction commits nothing", c.name)
			continue
		}
		// An engine may report a conflict where there is none, but hardly each time.
		committed := false
		for tries := 0; tries < 10 && !committed; tries++ {
			b.reset("a", "1", "b", "2", "c", "3")
			committed = b.besides(c.first, c.other)
		}
		require.True(t, committed, "%s: does not conflict", c.name)
	}
}

func isolationCases(b *bench) []isolationCase {
	out := func(tx kv.Transaction) { tx.Set(b.key("out"), nil) } // something to commit
	reads := func(read func(tx kv.Transaction)) func(tx kv.Transaction) {
		return func(tx kv.Transaction) {
			read(tx)
			out(tx)
		}
	}
	get := func(key string) func(tx kv.Transaction) {
		return reads(func(tx kv.Transaction) { b.get(tx, key) })
	}
	scan := func(begin, end string, opts kv.RangeOptions) func(tx kv.Transaction) {
		return reads(func(tx kv.Transaction) { b.keys(tx, begin, end, opts) })
	}
	explicit := func(add func(tx kv.Transaction)) func(tx kv.Transaction) {
		return reads(func(tx kv.Transaction) {
			b.get(tx.Snapshot(), "zz") // draws the read version
			add(tx)
		})
	}
	set := func(key string) func(kv.Transaction) {
		return func(tx kv.Transaction) { tx.Set(b.key(key), []byte("other")) }
	}
	return []isolationCase{
		{"point read", true, get("b"), set("b")},
		{"point read, and a clear", true, get("b"), func(tx kv.Transaction) { tx.Clear(b.key("b")) }},
		{"point read, and an addition", true, get("b"),
			func(tx kv.Transaction) { tx.Add(b.key("b"), 1) }},
		{"point read, and a versionstamped value", true, get("b"),
			func(tx kv.Transaction) { tx.SetVersionstampedValue(b.key("b"), stampedValue("", 0)) }},
		{"point read, and a cleared range", true, get("b"),
			func(tx kv.Transaction) { tx.ClearRange(b.between("a", "c")) }},
		{"read of nothing", true, get("bb"), set("bb")},
		{"read of another key", false, get("b"), set("c")},
		{"read of the metadata version, and a change", false, reads(func(tx kv.Transaction) { b.metadata(tx) }),
			func(tx kv.Transaction) { tx.ChangeMetadataVersion() }},
		{"read of the metadata version with a conflict key, and a change with its write", true,
			reads(func(tx kv.Transaction) {
				b.metadata(tx)
				tx.AddReadConflictKey(b.key("b"))
			}),
			func(tx kv.Transaction) {
				tx.Set(b.key("b"), nil)
				tx.ChangeMetadataVersion()
			}},
		{"snapshot read", false, reads(func(tx kv.Transaction) { b.get(tx.Snapshot(), "b") }), set("b")},
		{"snapshot range", false, reads(func(tx kv.Transaction) {
			b.pairs(tx.Snapshot(), b.all(), kv.RangeOptions{})
		}), set("b")},
		{"read only", false, func(tx kv.Transaction) { b.get(tx, "b") }, set("b")},

		{"phantom", true, scan("a", "d", kv.RangeOptions{}), set("bbb")},
		{"phantom in a versionstamped key", true, scan("a", "d", kv.RangeOptions{}),
			func(tx kv.Transaction) { tx.SetVersionstampedKey(stampedKey(b.key("c"), 0), nil) }},
		{"phantom in an empty range", true, scan("x", "y", kv.RangeOptions{}), set("xx")},
		{"phantom in reverse", true, scan("a", "d", kv.RangeOptions{Reverse: true}), set("aa")},
		{"change of a value in a range", true, scan("a", "d", kv.RangeOptions{}), set("c")},
		{"removal from a range", true, scan("a", "d", kv.RangeOptions{}),
			func(tx kv.Transaction) { tx.Clear(b.key("c")) }},
		{"at the end of a range", false, scan("a", "c", kv.RangeOptions{}), set("c")},
		{"behind the limit", false, scan("a", "d", kv.RangeOptions{Limit: 2}), set("c")},
		{"before the limit", true, scan("a", "d", kv.RangeOptions{Limit: 2}), set("aa")},
		{"at the limit", true, scan("a", "d", kv.RangeOptions{Limit: 2}), set("b")},
		{"behind the limit in reverse", false, scan("a", "d", kv.RangeOptions{Limit: 1, Reverse: true}), set("a")},
		{"before the limit in reverse", true, scan("a", "d", kv.RangeOptions{Limit: 1, Reverse: true}), set("cc")},

		{"own write", false, func(tx kv.Transaction) {
			tx.Set(b.key("b"), []byte("mine"))
			b.get(tx, "b")
		}, set("b")},
		{"own cleared range", false, func(tx kv.Transaction) {
			tx.ClearRange(b.between("a", "c"))
			b.get(tx, "b")
		}, set("b")},
		{"blind write", false, func(tx kv.Transaction) { tx.Set(b.key("b"), []byte("mine")) }, set("b")},
		{"addition", false,
			func(tx kv.Transaction) { tx.Add(b.key("b"), 1) },
			func(tx kv.Transaction) { tx.Add(b.key("b"), 1) }},
		{"addition that is read", true, reads(func(tx kv.Transaction) {
			tx.Add(b.key("b"), 1)
			b.get(tx, "b")
		}), set("b")},

		{"explicit read conflict", true,
			explicit(func(tx kv.Transaction) { tx.AddReadConflictKey(b.key("b")) }), set("b")},
		{"explicit read conflict of another key", false,
			explicit(func(tx kv.Transaction) { tx.AddReadConflictKey(b.key("b")) }), set("c")},
		{"explicit read range", true,
			explicit(func(tx kv.Transaction) { tx.AddReadConflictRange(b.between("a", "c")) }), set("b")},
		{"explicit write conflict", true, get("b"),
			func(tx kv.Transaction) { tx.AddWriteConflictKey(b.key("b")) }},
		{"explicit write conflict of another key", false, get("b"),
			func(tx kv.Transaction) { tx.AddWriteConflictKey(b.key("c")) }},
		{"explicit empty read range", false,
			explicit(func(tx kv.Transaction) { tx.AddReadConflictRange(b.between("b", "b")) }), set("b")},
	}
}

// testAnomalies tests what weaker isolation allows.
func testAnomalies(t *testing.T, b *bench) {
	// Write skew: two transactions that each read what the other writes.
	b.reset("x", "1", "y", "1")
	require.False(t, b.besides(
		func(tx kv.Transaction) { b.get(tx, "x"); tx.Set(b.key("y"), []byte("0")) },
		func(tx kv.Transaction) { b.get(tx, "y"); tx.Set(b.key("x"), []byte("0")) }))
	require.Equal(t, "1", b.value("y"))

	// Read skew: a transaction reads all at one version.
	b.reset("x", "1", "y", "1")
	b.read(func(tx kv.Transaction) {
		x := b.get(tx.Snapshot(), "x")
		next := fmt.Sprint(len(x) + len(randomName()))
		b.set("x", next, "y", next)
		require.Equal(t, x, b.get(tx.Snapshot(), "y"))
		require.Equal(t, []string{"x=" + x, "y=" + x}, b.pairs(tx.Snapshot(), b.between("x", "z"), kv.RangeOptions{}))
	})

	// An acknowledged commit is visible to every later transaction.
	for i := range 20 {
		want := fmt.Sprint(i)
		b.set("seen", want)
		require.Equal(t, want, b.value("seen"))
	}
	b.testLostUpdates()
	b.testTransfers()
}

// concurrently runs work in several goroutines, each until its first error.
func (b *bench) concurrently(workers int, work func(worker int) error) {
	b.t.Helper()
	var group sync.WaitGroup
	errs := make(chan error, workers)
	for worker := range workers {
		group.Go(func() {
			if err := work(worker); err != nil {
				errs <- err
			}
		})
	}
	group.Wait()
	close(errs)
	require.NoError(b.t, <-errs)
}

// testLostUpdates: increments by read and write from many goroutines all count.
func (b *bench) testLostUpdates() {
	const workers, increments = 8, 25
	b.concurrently(workers, func(int) error {
		for range increments {
			if err := b.once(b.increment); err != nil {
				return err
			}
		}
		return nil
	})
	require.Equal(b.t, number(workers*increments, 8), b.value("counter"))
}

func (b *bench) increment(tx kv.Transaction) {
	value, err := tx.Get(b.key("counter")).Await()
	b.check(err)
	n := uint64(0)
	if value != nil {
		n = binary.LittleEndian.Uint64(value)
	}
	tx.Set(b.key("counter"), binary.LittleEndian.AppendUint64(nil, n+1))
}

// testTransfers: while goroutines transfer an amount between accounts, every reader sees the same total.
func (b *bench) testTransfers() {
	const accounts, workers, transfers = 5, 6, 20
	b.reset("0", "aaaaa", "1", "aaaaa", "2", "aaaaa", "3", "aaaaa", "4", "aaaaa")
	b.concurrently(workers, func(worker int) error {
		for i := range transfers {
			if worker == 0 {
				total := 0
				err := b.run(func(tx kv.Transaction) {
					total = 0
					for _, pair := range b.pairs(tx.Snapshot(), b.all(), kv.RangeOptions{}) {
						total += len(pair) - len("0=")
					}
				})
				if err != nil {
					return err
				}
				if total != accounts*5 {
					return fmt.Errorf("the total is %d", total)
				}
				continue
			}
			from, to := fmt.Sprint(worker%accounts), fmt.Sprint((worker+i+1)%accounts)
			if err := b.once(func(tx kv.Transaction) { b.transfer(tx, from, to) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) transfer(tx kv.Transaction, from, to string) {
	if has := b.get(tx, from); from != to && has != "" {
		tx.Set(b.key(from), []byte(has[1:]))
		tx.Set(b.key(to), []byte(b.get(tx, to)+"a"))
	}
}
