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
			require.Equal(t, []string{"c", "d"}, b.keys(view, "bb", "z", kv.RangeOptions{}))
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

// testOwnership: slices passed in and returned belong to the caller.
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

// testLongRange reads a range of more than one batch, completely and partly.
func (b *bench) testLongRange() {
	const size = 3000
	b.reset()
	b.write(func(tx kv.Transaction) {
		for i := range size {
			tx.Set(b.key(fmt.Sprintf("%04d", i)), fmt.Append(nil, i))
		}
	})
	for _, opts := range []kv.RangeOptions{
		{}, {Reverse: true},
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

func testReadYourWrites(t *testing.T, b *bench) {
	b.set("a", "1", "c", "3", "e", "5", "g", "7")
	five := number(5, 8)
	b.try(func(tx kv.Transaction) {
		tx.Set(b.key("b"), []byte("2"))
		tx.ClearRange(b.between("c", "f"))
		tx.Set(b.key("d"), []byte("4"))
		tx.Clear(b.key("g"))
		tx.Set(b.key("a"), []byte("9"))
		tx.Add(b.key("e"), 5)
		for _, view := range []kv.ReadTransaction{tx, tx.Snapshot()} {
			require.Equal(t, "9", b.get(view, "a"))
			require.Equal(t, none, b.get(view, "c"))
			require.Equal(t, none, b.get(view, "g"))
			require.Equal(t, five, b.get(view, "e"), "an addition to a cleared key")
			for _, c := range []struct {
				begin, end string
				opts       kv.RangeOptions
				want       []string
			}{
				{"", "z", kv.RangeOptions{}, []string{"a=9", "b=2", "d=4", "e=" + five}},
				{"", "z", kv.RangeOptions{Reverse: true}, []string{"e=" + five, "d=4", "b=2", "a=9"}},
				{"", "z", kv.RangeOptions{Limit: 3, Reverse: true}, []string{"e=" + five, "d=4", "b=2"}},
				{"aa", "z", kv.RangeOptions{Limit: 2}, []string{"b=2", "d=4"}},
				{"c", "d", kv.RangeOptions{}, []string{}},
				{"c", "d\x00", kv.RangeOptions{Limit: 1, Reverse: true}, []string{"d=4"}},
				{"e", "z", kv.RangeOptions{Limit: 1, Reverse: true}, []string{"e=" + five}},
				{"f", "z", kv.RangeOptions{Limit: 1}, []string{}},
			} {
				require.Equal(t, c.want, b.pairs(view, b.between(c.begin, c.end), c.opts), "%+v", c)
			}
		}
		// What was written is written again, cleared, and set once more.
		tx.Set(b.key("b"), []byte("two"))
		tx.ClearRange(b.between("d", "e"))
		require.Equal(t, []string{"a=9", "b=two", "e=" + five}, b.pairs(tx, b.all(), kv.RangeOptions{}))
		tx.ClearRange(b.all())
		require.Empty(t, b.pairs(tx, b.all(), kv.RangeOptions{}))
		tx.Set(b.key("c"), nil)
		require.Equal(t, []string{"c="}, b.pairs(tx, b.all(), kv.RangeOptions{Reverse: true}))
	})
	b.read(func(tx kv.Transaction) {
		require.Equal(t, []string{"a=1", "c=3", "e=5", "g=7"}, b.pairs(tx, b.all(), kv.RangeOptions{}))
	})
}
