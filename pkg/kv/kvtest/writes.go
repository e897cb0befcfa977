package kvtest

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

func testWrites(t *testing.T, b *bench) {
	b.set("a", "1", "b", "2", "c", "3", "d", "4", "e", "5")
	b.write(func(tx kv.Transaction) {
		tx.Clear(b.key("a"))
		tx.Clear(b.key("never"))
		tx.ClearRange(b.between("c", "e"))
		tx.Set(b.key("d"), []byte("again"))
		tx.ClearRange(b.between("b", "b"))
		tx.Set(b.key("empty"), nil)
		tx.Set(b.key("bytes\x00\xff\x00"), []byte{0, 255, 0})
	})
	b.read(func(tx kv.Transaction) {
		require.Equal(t, []string{"b=2", "bytes\x00\xff\x00=\x00\xff\x00", "d=again", "e=5", "empty="},
			b.pairs(tx, b.all(), kv.RangeOptions{}))
	})
	// The order of the writes counts.
	b.write(func(tx kv.Transaction) {
		tx.Set(b.key("b"), []byte("set, then cleared"))
		tx.Clear(b.key("b"))
		tx.Set(b.key("e"), []byte("set, then added to"))
		tx.ClearRange(b.between("e", "f"))
		tx.Add(b.key("e"), 7)
	})
	require.Equal(t, none, b.value("b"))
	require.Equal(t, number(7, 8), b.value("e"))
}

func number(n uint64, size int) string {
	var buf [8]byte
	binary.LittleEndian.PutUint64(buf[:], n)
	return string(buf[:size])
}

func testAdd(t *testing.T, b *bench) {
	cases := []struct {
		old  string
		n    int64
		want uint64
	}{
		{none, 5, 5},
		{"", 5, 5},
		{number(250, 8), 10, 260},
		{number(250, 1), 10, 260},
		{number(0x010203, 4), 1, 0x010204},
		{number(7, 8), -7, 0},
		{number(1, 8), -2, 1<<64 - 1},
		{number(1<<64-1, 8), 1, 0},
		{number(1, 8) + "cut off", 1, 2},
	}
	// Whatever the source of the old value, the transaction sees the result before the commit, by key and in ranges,
	// and others see it afterwards.
	for name, way := range map[string]struct {
		stored bool // the old value was there before the transaction
		within func(tx kv.Transaction, old string)
	}{
		"stored": {true, func(kv.Transaction, string) {}},
		"set by the transaction": {false, func(tx kv.Transaction, old string) {
			tx.Clear(b.key("k"))
			if old != none {
				tx.Set(b.key("k"), []byte(old))
			}
		}},
		"set in a cleared range": {false, func(tx kv.Transaction, old string) {
			tx.ClearRange(b.all())
			if old != none {
				tx.Set(b.key("k"), []byte(old))
			}
		}},
	} {
		for i, c := range slices.Concat(cases, cases) {
			b.reset("k", "something else")
			if way.stored {
				b.reset()
				if c.old != none {
					b.set("k", c.old)
				}
			}
			apply := func(tx kv.Transaction) {
				way.within(tx, c.old)
				if i < len(cases) {
					tx.Add(b.key("k"), c.n)
				} else {
					tx.AddOrClear(b.key("k"), c.n)
				}
			}
			want, pairs := number(c.want, 8), []string{}
			if i >= len(cases) && c.want == 0 {
				want = none
			} else {
				pairs = append(pairs, "k="+want)
			}
			b.try(func(tx kv.Transaction) {
				apply(tx)
				for _, view := range []kv.ReadTransaction{tx, tx.Snapshot()} {
					require.Equal(t, want, b.get(view, "k"), "%s: %+v", name, c)
					require.Equal(t, pairs, b.pairs(view, b.all(), kv.RangeOptions{}), "%s: %+v", name, c)
					require.Equal(t, pairs, b.pairs(view, b.all(), kv.RangeOptions{Limit: 1, Reverse: true}), "%s: %+v", name, c)
				}
			})
			b.write(apply)
			require.Equal(t, want, b.value("k"), "%s: %+v", name, c)
		}
	}
	b.reset()
	b.write(func(tx kv.Transaction) { // several on one key
		tx.Add(b.key("n"), 1)
		tx.Add(b.key("n"), 2)
	})
	require.Equal(t, number(3, 8), b.value("n"))
	for _, c := range []struct {
		and  func(tx kv.Transaction)
		want string
	}{
		{func(tx kv.Transaction) { tx.AddOrClear(b.key("n"), 0) }, number(3, 8)},
		{func(tx kv.Transaction) { tx.AddOrClear(b.key("n"), -3); tx.Add(b.key("n"), 0) }, number(0, 8)},
		{func(tx kv.Transaction) { tx.Add(b.key("n"), -3); tx.AddOrClear(b.key("n"), 0) }, none},
		{func(tx kv.Transaction) { tx.AddOrClear(b.key("n"), -3); tx.AddOrClear(b.key("n"), 2) }, number(2, 8)},
		{func(tx kv.Transaction) { tx.AddOrClear(b.key("n"), -2); tx.AddOrClear(b.key("n"), -1) }, none},
	} {
		b.set("n", number(3, 8))
		b.write(c.and)
		require.Equal(t, c.want, b.value("n"))
	}
}
