package kvtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

func testReads(t *testing.T, b *bench) {
	b.set("a", "1", "b", "", "c", "3", "d", "4")
	b.read(func(tx kv.Transaction) {
		for _, view := range []kv.ReadTransaction{tx, tx.Snapshot()} {
			require.Equal(t, "1", b.get(view, "a"))
			require.Equal(t, "", b.get(view, "b"))
			require.Equal(t, none, b.get(view, "bb"))
			require.Equal(t, []string{"a=1", "b=", "c=3", "d=4"}, b.pairs(view, b.all(), kv.RangeOptions{}))
			require.Equal(t, []string{"b=", "c=3"}, b.pairs(view, b.between("b", "d"), kv.RangeOptions{}))
			require.Equal(t, []string{"a", "b"}, b.keys(view, "", "z", kv.RangeOptions{Limit: 2}))
			require.Equal(t, []string{"d", "c", "b", "a"}, b.keys(view, "", "z", kv.RangeOptions{Reverse: true}))
			require.Equal(t, []string{"d", "c"}, b.keys(view, "", "z", kv.RangeOptions{Limit: 2, Reverse: true}))
			require.Equal(t, []string{"c", "d"}, b.keys(view, "bb", "z", kv.RangeOptions{Mode: kv.StreamWantAll}))
			require.Empty(t, b.keys(view, "x", "y", kv.RangeOptions{}))
			require.Empty(t, b.keys(view, "b", "b", kv.RangeOptions{}))
			require.Empty(t, b.keys(view, "c", "a", kv.RangeOptions{}), "an inverted range has no keys")
		}
	})
	b.read(func(tx kv.Transaction) {
		// Futures may be awaited in any order, and more than once.
		first, second := tx.Get(b.key("a")), tx.Get(b.key("c"))
		for range 2 {
			value, err := second.Await()
			b.check(err)
			require.Equal(t, "3", string(value))
			value, err = first.Await()
			b.check(err)
			require.Equal(t, "1", string(value))
		}
		before, err := tx.ReadVersion().Await()
		b.check(err)
		after, err := tx.Snapshot().ReadVersion().Await()
		b.check(err)
		require.Equal(t, before, after)
	})
	b.testOwnership()
	b.testLongRange()
}

// testOwnership: slices passed in and handed out belong to the caller.
func (b *bench) testOwnership() {
	b.set("mine", "before")
	b.read(func(tx kv.Transaction) {
		value, err := tx.Get(b.key("mine")).Await()
		b.check(err)
		copy(value, "xxxxxx")
		require.Equal(b.t, "before", b.get(tx, "mine"))
	})
	b.try(func(tx kv.Transaction) {
		key, value := b.key("mine"), []byte("after!")
		tx.Set(key, value)
		copy(key, "?")
		copy(value, "??????")
		require.Equal(b.t, "after!", b.get(tx, "mine"))
		got, err := tx.Get(b.key("mine")).Await()
		b.check(err)
		copy(got, "xxxxxx")
		require.Equal(b.t, "after!", b.get(tx, "mine"))
	})
}

// testLongRange: a range of more than one batch, whole and left early.
func (b *bench) testLongRange() {
	const size = 3000
	b.reset()
	b.write(func(tx kv.Transaction) {
		for i := range size {
			tx.Set(b.key(fmt.Sprintf("%04d", i)), fmt.Append(nil, i))
		}
	})
	for _, opts := range []kv.RangeOptions{
		{}, {Reverse: true}, {Mode: kv.StreamWantAll}, {Mode: kv.StreamWantAll, Reverse: true},
		{Limit: 1500}, {Limit: 1500, Reverse: true}, {Limit: size}, {Limit: size + 1},
	} {
		want := size
		if opts.Limit > 0 {
			want = min(want, opts.Limit)
		}
		for _, stop := range []int{1, 33, 1025, want} {
			b.read(func(tx kv.Transaction) {
				n := 0
				for pair, err := range tx.GetRange(b.all(), opts).All() {
					b.check(err)
					at := n
					if opts.Reverse {
						at = size - 1 - n
					}
					require.Equal(b.t, fmt.Sprintf("%04d", at), b.own(pair.Key))
					require.Equal(b.t, fmt.Sprint(at), string(pair.Value))
					if n++; n == stop {
						break
					}
				}
				require.Equal(b.t, stop, n)
			})
		}
		b.read(func(tx kv.Transaction) { require.Len(b.t, b.pairs(tx, b.all(), opts), want) })
	}
}

func testSelectors(t *testing.T, b *bench) {
	key := func(k string) []byte { return []byte(k) }
	b.set("b", "", "d", "", "f", "")
	check := func(tx kv.Transaction) {
		for _, c := range []struct {
			sel  kv.KeySelector
			want string
		}{
			{kv.FirstGreaterOrEqual(key("b")), "b"},
			{kv.FirstGreaterOrEqual(key("c")), "d"},
			{kv.FirstGreaterThan(key("b")), "d"},
			{kv.LastLessOrEqual(key("d")), "d"},
			{kv.LastLessOrEqual(key("e")), "d"},
			{kv.LastLessThan(key("d")), "b"},
			{kv.LastLessThan(key("b")), "<"},
			{kv.FirstGreaterThan(key("f")), ">"},
			{kv.FirstGreaterOrEqual(key("g")), ">"},
			{kv.KeySelector{Key: key("b"), Offset: 2}, "d"},
			{kv.KeySelector{Key: key("b"), Offset: 3}, "f"},
			{kv.KeySelector{Key: key("b"), OrEqual: true, Offset: 2}, "f"},
			{kv.KeySelector{Key: key("b"), OrEqual: true, Offset: 3}, ">"},
			{kv.KeySelector{Key: key("f"), Offset: -1}, "b"},
			{kv.KeySelector{Key: key("f"), OrEqual: true, Offset: -1}, "d"},
			{kv.KeySelector{Key: key("f"), Offset: -2}, "<"},
		} {
			require.Equal(t, c.want, b.selected(tx, c.sel), "%+v", c.sel)
			require.Equal(t, c.want, b.selected(tx.Snapshot(), c.sel), "%+v", c.sel)
		}
	}
	b.read(check)
	b.read(func(tx kv.Transaction) {
		// The ends of all keys.
		first, err := tx.GetKey(kv.LastLessThan(nil)).Await()
		b.check(err)
		require.Equal(t, "", string(first))
		last, err := tx.GetKey(kv.FirstGreaterOrEqual([]byte("\xff"))).Await()
		b.check(err)
		require.Equal(t, "\xff", string(last))
	})
	b.read(func(tx kv.Transaction) {
		between := func(begin, end kv.KeySelector) kv.SelectorRange {
			begin.Key, end.Key = b.key(string(begin.Key)), b.key(string(end.Key))
			return kv.SelectorRange{Begin: begin, End: end}
		}
		for _, c := range []struct {
			r    kv.SelectorRange
			want []string
		}{
			{between(kv.FirstGreaterThan(key("b")), kv.KeySelector{Key: key("d"), OrEqual: true, Offset: 1}), []string{"d="}},
			{between(kv.FirstGreaterThan(key("b")), kv.FirstGreaterThan(key("f"))), []string{"d=", "f="}},
			{between(kv.KeySelector{Key: key("f"), Offset: -1}, kv.LastLessOrEqual(key("f"))), []string{"b=", "d="}},
			{between(kv.KeySelector{Key: key("b"), Offset: 2}, kv.KeySelector{Key: key("b"), Offset: 3}), []string{"d="}},
			{between(kv.LastLessOrEqual(key("f")), kv.FirstGreaterOrEqual(key("b"))), []string{}},
		} {
			require.Equal(t, c.want, b.pairs(tx, c.r, kv.RangeOptions{}), "%+v", c.r)
			require.Equal(t, c.want, b.pairs(tx.Snapshot(), c.r, kv.RangeOptions{}), "%+v", c.r)
		}
	})
	// The same keys, but some of them written by the transaction itself.
	b.reset("a", "", "b", "", "e", "")
	b.try(func(tx kv.Transaction) {
		tx.Clear(b.key("a"))
		tx.ClearRange(b.between("e", "g"))
		tx.Set(b.key("d"), nil)
		tx.Atomic(kv.MutationMax, b.key("f"), []byte{1})
		check(tx)
	})
}

func testReadYourWrites(t *testing.T, b *bench) {
	b.set("a", "1", "c", "3", "e", "5", "g", "7")
	b.try(func(tx kv.Transaction) {
		tx.Set(b.key("b"), []byte("2"))
		tx.ClearRange(b.between("c", "f"))
		tx.Set(b.key("d"), []byte("4"))
		tx.Clear(b.key("g"))
		tx.Atomic(kv.MutationByteMax, b.key("a"), []byte("9"))
		tx.Atomic(kv.MutationAdd, b.key("e"), []byte("x"))
		for _, view := range []kv.ReadTransaction{tx, tx.Snapshot()} {
			require.Equal(t, "9", b.get(view, "a"))
			require.Equal(t, none, b.get(view, "c"))
			require.Equal(t, none, b.get(view, "g"))
			require.Equal(t, "x", b.get(view, "e"), "an addition to a cleared key")
			for _, c := range []struct {
				begin, end string
				opts       kv.RangeOptions
				want       []string
			}{
				{"", "z", kv.RangeOptions{}, []string{"a=9", "b=2", "d=4", "e=x"}},
				{"", "z", kv.RangeOptions{Reverse: true}, []string{"e=x", "d=4", "b=2", "a=9"}},
				{"", "z", kv.RangeOptions{Limit: 3, Reverse: true}, []string{"e=x", "d=4", "b=2"}},
				{"aa", "z", kv.RangeOptions{Limit: 2}, []string{"b=2", "d=4"}},
				{"c", "d", kv.RangeOptions{}, []string{}},
				{"c", "d\x00", kv.RangeOptions{Limit: 1, Reverse: true}, []string{"d=4"}},
				{"e", "z", kv.RangeOptions{Limit: 1, Reverse: true}, []string{"e=x"}},
				{"f", "z", kv.RangeOptions{Limit: 1}, []string{}},
			} {
				require.Equal(t, c.want, b.pairs(view, b.between(c.begin, c.end), c.opts), "%+v", c)
			}
		}
		// What was written is written again, cleared, and set once more.
		tx.Set(b.key("b"), []byte("two"))
		tx.ClearRange(b.between("d", "e"))
		require.Equal(t, []string{"a=9", "b=two", "e=x"}, b.pairs(tx, b.all(), kv.RangeOptions{}))
		tx.ClearRange(b.all())
		require.Empty(t, b.pairs(tx, b.all(), kv.RangeOptions{}))
		tx.Set(b.key("c"), nil)
		require.Equal(t, []string{"c="}, b.pairs(tx, b.all(), kv.RangeOptions{Reverse: true}))
	})
	b.read(func(tx kv.Transaction) {
		require.Equal(t, []string{"a=1", "c=3", "e=5", "g=7"}, b.pairs(tx, b.all(), kv.RangeOptions{}))
	})
}
