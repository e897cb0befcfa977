package kvtest

import (
	"encoding/binary"
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
		tx.Atomic(kv.MutationAdd, b.key("e"), []byte{7})
	})
	require.Equal(t, none, b.value("b"))
	require.Equal(t, "\x07", b.value("e"))
}

func number(n uint64, size int) string {
	var buf [8]byte
	binary.LittleEndian.PutUint64(buf[:], n)
	return string(buf[:size])
}

func testAtomic(t *testing.T, b *bench) {
	cases := []struct {
		op                 kv.MutationType
		old, operand, want string
	}{
		{kv.MutationAdd, none, number(5, 4), number(5, 4)},
		{kv.MutationAdd, "", number(5, 4), number(5, 4)},
		{kv.MutationAdd, number(250, 2), number(10, 2), number(260, 2)},
		{kv.MutationAdd, number(250, 1), number(10, 2), number(260, 2)},
		{kv.MutationAdd, number(0x010203, 4), number(1, 1), number(0x04, 1)},
		{kv.MutationAdd, number(255, 1), number(1, 1), number(0, 1)},
		{kv.MutationAdd, number(1, 8), "\xff\xff\xff\xff\xff\xff\xff\xff", number(0, 8)},
		{kv.MutationMin, none, number(5, 2), number(5, 2)},
		{kv.MutationMin, number(300, 2), number(5, 2), number(5, 2)},
		{kv.MutationMin, number(4, 2), number(5, 2), number(4, 2)},
		{kv.MutationMin, number(4, 1), number(500, 2), number(4, 2)},
		{kv.MutationMin, number(0x0304, 2), number(5, 1), number(4, 1)},
		{kv.MutationMax, none, number(5, 2), number(5, 2)},
		{kv.MutationMax, number(300, 2), number(5, 2), number(300, 2)},
		{kv.MutationMax, number(4, 2), number(5, 2), number(5, 2)},
		{kv.MutationMax, number(9, 1), number(5, 2), number(9, 2)},
		{kv.MutationMax, number(0x0904, 2), number(5, 1), number(5, 1)},
		{kv.MutationByteMin, none, "b", "b"},
		{kv.MutationByteMin, "a", "b", "a"},
		{kv.MutationByteMin, "ab", "a", "a"},
		{kv.MutationByteMin, "", "b", ""},
		{kv.MutationByteMax, none, "", ""},
		{kv.MutationByteMax, "a", "b", "b"},
		{kv.MutationByteMax, "b", "a", "b"},
		{kv.MutationByteMax, "ab", "a", "ab"},
	}
	// However the old value came to be there, the transaction sees the result
	// before the commit, alone and in ranges, and all see it afterwards.
	for name, c := range map[string]struct {
		stored bool // the old value, before the transaction
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
		for _, op := range cases {
			b.reset("k", "something else")
			if c.stored {
				b.reset()
				if op.old != none {
					b.set("k", op.old)
				}
			}
			apply := func(tx kv.Transaction) {
				c.within(tx, op.old)
				tx.Atomic(op.op, b.key("k"), []byte(op.operand))
			}
			b.try(func(tx kv.Transaction) {
				apply(tx)
				for _, view := range []kv.ReadTransaction{tx, tx.Snapshot()} {
					require.Equal(t, op.want, b.get(view, "k"), "%s: %+v", name, op)
					require.Equal(t, []string{"k=" + op.want}, b.pairs(view, b.all(), kv.RangeOptions{}), "%s: %+v", name, op)
					require.Equal(t, []string{"k=" + op.want}, b.pairs(view, b.all(), kv.RangeOptions{Limit: 1, Reverse: true}),
						"%s: %+v", name, op)
				}
			})
			b.write(apply)
			require.Equal(t, op.want, b.value("k"), "%s: %+v", name, op)
		}
	}
	b.reset()
	b.write(func(tx kv.Transaction) { // several on one key
		tx.Atomic(kv.MutationAdd, b.key("n"), []byte(number(1, 8)))
		tx.Atomic(kv.MutationAdd, b.key("n"), []byte(number(2, 8)))
		tx.Atomic(kv.MutationMax, b.key("n"), []byte(number(2, 8)))
	})
	require.Equal(t, number(3, 8), b.value("n"))
}
