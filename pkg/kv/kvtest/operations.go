package kvtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

func testReads(t *testing.T, b *bench) {
	b.set("a", "1", "b", "", "c", "3", "d", "4")
	b.do(func(tx kv.Transaction) {
		require.Equal(t, "1", b.get(tx, "a"))
		require.Equal(t, "", b.get(tx, "b"))
		require.Equal(t, "<none>", b.get(tx, "bb"))
		require.Equal(t, []string{"a", "b", "c", "d"}, b.keys(tx, "", "\xff", kv.RangeOptions{}))
		require.Equal(t, []string{"b", "c"}, b.keys(tx, "b", "d", kv.RangeOptions{}))
		require.Equal(t, []string{"a", "b"}, b.keys(tx, "", "\xff", kv.RangeOptions{Limit: 2}))
		require.Equal(t, []string{"d", "c"}, b.keys(tx, "", "\xff", kv.RangeOptions{Limit: 2, Reverse: true}))
		require.Equal(t, []string{}, b.keys(tx, "x", "y", kv.RangeOptions{}))
		require.Equal(t, []string{}, b.keys(tx, "b", "b", kv.RangeOptions{}))
		require.Equal(t, []string{"c", "d"}, b.keys(tx.Snapshot(), "bb", "\xff", kv.RangeOptions{Mode: kv.StreamWantAll}))
	})
	b.do(func(tx kv.Transaction) {
		// A reader that stops early gets no more, and the iterator ends well.
		for pair, err := range tx.GetRange(between("", "\xff"), kv.RangeOptions{}).All() {
			require.NoError(t, err)
			require.Equal(t, "a", string(pair.Key))
			break
		}
	})
}

func testWrites(t *testing.T, b *bench) {
	b.set("a", "1", "b", "2", "c", "3", "d", "4", "e", "5")
	b.do(func(tx kv.Transaction) {
		tx.Clear([]byte("a"))
		tx.ClearRange(between("c", "e"))
		tx.Set([]byte("d"), []byte("again"))
		tx.ClearRange(between("x", "x"))
	})
	b.do(func(tx kv.Transaction) {
		require.Equal(t, []string{"b", "d", "e"}, b.keys(tx, "", "\xff", kv.RangeOptions{}))
		require.Equal(t, "again", b.get(tx, "d"))
	})
	// The slices that were passed in are the caller's again.
	key, value := []byte("mine"), []byte("before")
	b.do(func(tx kv.Transaction) {
		tx.Set(key, value)
		copy(value, "after!")
	})
	require.Equal(t, "before", b.value("mine"))
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
		{kv.MutationAdd, "<none>", number(5, 4), number(5, 4)},
		{kv.MutationAdd, "", number(5, 4), number(5, 4)},
		{kv.MutationAdd, number(250, 2), number(10, 2), number(260, 2)},
		{kv.MutationAdd, number(250, 1), number(10, 2), number(260, 2)},
		{kv.MutationAdd, number(0x010203, 4), number(1, 1), number(0x04, 1)},
		{kv.MutationAdd, number(3, 8), strings.Repeat("\xff", 8), number(2, 8)}, // minus one
		{kv.MutationMin, "<none>", number(7, 2), number(7, 2)},
		{kv.MutationMin, number(300, 2), number(7, 2), number(7, 2)},
		{kv.MutationMin, number(6, 2), number(300, 2), number(6, 2)},
		{kv.MutationMin, number(6, 1), number(300, 2), number(6, 2)},
		{kv.MutationMax, "<none>", number(7, 2), number(7, 2)},
		{kv.MutationMax, number(300, 2), number(7, 2), number(300, 2)},
		{kv.MutationMax, number(6, 1), number(300, 2), number(300, 2)},
		{kv.MutationMax, number(300, 2), number(7, 1), number(300, 1)},
		{kv.MutationByteMin, "<none>", "b", "b"},
		{kv.MutationByteMin, "abc", "b", "abc"},
		{kv.MutationByteMin, "c", "bcd", "bcd"},
		{kv.MutationByteMin, "", "b", ""},
		{kv.MutationByteMax, "<none>", "b", "b"},
		{kv.MutationByteMax, "abc", "b", "b"},
		{kv.MutationByteMax, "c", "bcd", "c"},
	}
	for i, c := range cases {
		key := fmt.Sprintf("case %d", i)
		start := func(tx kv.Transaction) {
			if c.old == "<none>" {
				tx.Clear([]byte(key))
			} else {
				tx.Set([]byte(key), []byte(c.old))
			}
		}
		apply := func(tx kv.Transaction) { tx.Atomic(c.op, []byte(key), []byte(c.operand)) }
		b.do(start)
		b.do(func(tx kv.Transaction) {
			apply(tx)
			require.Equal(t, c.want, b.get(tx, key), "%s: over a stored value", key)
		})
		require.Equal(t, c.want, b.value(key), "%s: committed", key)
		b.do(func(tx kv.Transaction) {
			start(tx)
			apply(tx)
			require.Equal(t, c.want, b.get(tx, key), "%s: over an own write", key)
		})
		require.Equal(t, c.want, b.value(key), "%s: committed with the write", key)
	}
	// Two of them in one transaction, and none of them conflicts with another.
	b.do(func(tx kv.Transaction) {
		tx.Atomic(kv.MutationAdd, []byte("n"), []byte(number(1, 8)))
		tx.Atomic(kv.MutationAdd, []byte("n"), []byte(number(2, 8)))
	})
	require.NoError(t, b.committedBeside(
		func(tx kv.Transaction) { tx.Atomic(kv.MutationAdd, []byte("n"), []byte(number(4, 8))) },
		func(tx kv.Transaction) { tx.Atomic(kv.MutationAdd, []byte("n"), []byte(number(8, 8))) }))
	require.Equal(t, number(15, 8), b.value("n"))
}

func testReadYourWrites(t *testing.T, b *bench) {
	b.set("a", "1", "c", "3", "e", "5", "g", "7")
	b.do(func(tx kv.Transaction) {
		tx.Set([]byte("b"), []byte("2"))
		tx.ClearRange(between("c", "f"))
		tx.Set([]byte("d"), []byte("4"))
		tx.Clear([]byte("g"))
		tx.Atomic(kv.MutationByteMax, []byte("a"), []byte("9"))
		tx.Atomic(kv.MutationAdd, []byte("e"), []byte("x"))
		require.Equal(t, "9", b.get(tx, "a"))
		require.Equal(t, "<none>", b.get(tx, "c"))
		require.Equal(t, "x", b.get(tx, "e"), "an addition to a cleared key")
		for _, view := range []kv.ReadTransaction{tx, tx.Snapshot()} {
			require.Equal(t, []string{"a", "b", "d", "e"}, b.keys(view, "", "\xff", kv.RangeOptions{}))
			require.Equal(t, []string{"e", "d", "b"}, b.keys(view, "", "\xff", kv.RangeOptions{Limit: 3, Reverse: true}))
			require.Equal(t, []string{"b", "d"}, b.keys(view, "aa", "\xff", kv.RangeOptions{Limit: 2}))
		}
	})
	b.do(func(tx kv.Transaction) {
		require.Equal(t, []string{"a", "b", "d", "e"}, b.keys(tx, "", "\xff", kv.RangeOptions{}))
	})
}

// testModel runs random transactions and compares every read with a sorted map.
func testModel(t *testing.T, b *bench) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	model := map[string]string{}
	key := func() string { return fmt.Sprintf("%02d", random.IntN(40)) }
	for range 150 {
		// The function may run twice: it works on a copy, from a seed of its own.
		seed := random.Uint64()
		var after map[string]string
		b.do(func(tx kv.Transaction) {
			after = map[string]string{}
			for k, v := range model {
				after[k] = v
			}
			r := rand.New(rand.NewPCG(seed, seed))
			key = func() string { return fmt.Sprintf("%02d", r.IntN(40)) }
			for range 1 + r.IntN(20) {
				b.randomStep(tx, r, key, after)
			}
		})
		model = after
		b.do(func(tx kv.Transaction) { b.compare(tx, model, "", "\xff", kv.RangeOptions{}) })
	}
}

// randomStep does one random thing to the transaction and to the model.
func (b *bench) randomStep(tx kv.Transaction, r *rand.Rand, key func() string, model map[string]string) {
	begin, end := key(), key()
	if begin > end {
		begin, end = end, begin
	}
	switch r.IntN(8) {
	case 0, 1:
		value := fmt.Sprint(r.IntN(1000))
		tx.Set([]byte(begin), []byte(value))
		model[begin] = value
	case 2:
		tx.Clear([]byte(begin))
		delete(model, begin)
	case 3:
		tx.ClearRange(between(begin, end))
		for k := range model {
			if k >= begin && k < end {
				delete(model, k)
			}
		}
	case 4:
		value := fmt.Sprint(r.IntN(1000))
		tx.Atomic(kv.MutationByteMax, []byte(begin), []byte(value))
		model[begin] = max(model[begin], value)
	default:
		b.compare(tx, model, begin, end, kv.RangeOptions{Limit: r.IntN(6), Reverse: r.IntN(2) == 0})
		b.compareSelector(tx, model, kv.KeySelector{Key: []byte(begin), OrEqual: r.IntN(2) == 0, Offset: r.IntN(9) - 4})
	}
}

func sortedKeys(model map[string]string) []string {
	keys := []string{}
	for k := range model {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (b *bench) compare(tx kv.ReadTransaction, model map[string]string, begin, end string, opts kv.RangeOptions) {
	b.t.Helper()
	want := []string{}
	for _, k := range sortedKeys(model) {
		if k >= begin && k < end {
			want = append(want, k+"="+model[k])
		}
	}
	if opts.Reverse {
		slices.Reverse(want)
	}
	if opts.Limit > 0 && len(want) > opts.Limit {
		want = want[:opts.Limit]
	}
	pairs, err := tx.GetRange(between(begin, end), opts).Slice()
	require.NoError(b.t, err)
	got := []string{}
	for _, pair := range pairs {
		got = append(got, string(pair.Key)+"="+string(pair.Value))
	}
	require.Equal(b.t, want, got, "[%s, %s) %+v", begin, end, opts)
}

func (b *bench) compareSelector(tx kv.ReadTransaction, model map[string]string, sel kv.KeySelector) {
	b.t.Helper()
	keys := sortedKeys(model)
	at, found := slices.BinarySearch(keys, string(sel.Key))
	if found && sel.OrEqual {
		at++
	}
	want := ""
	switch at += sel.Offset - 1; {
	case at >= len(keys):
		want = "\xff"
	case at >= 0:
		want = keys[at]
	}
	got, err := tx.GetKey(sel).Await()
	require.NoError(b.t, err)
	require.Equal(b.t, want, string(got), "%+v of %v", sel, keys)
}

func testSelectors(t *testing.T, b *bench) {
	b.set("b", "", "d", "", "f", "")
	b.do(func(tx kv.Transaction) {
		for _, c := range []struct {
			sel  kv.KeySelector
			want string
		}{
			{kv.FirstGreaterOrEqual([]byte("b")), "b"},
			{kv.FirstGreaterThan([]byte("b")), "d"},
			{kv.LastLessOrEqual([]byte("d")), "d"},
			{kv.LastLessThan([]byte("d")), "b"},
			{kv.LastLessThan([]byte("b")), ""},
			{kv.FirstGreaterThan([]byte("f")), "\xff"},
			{kv.KeySelector{Key: []byte("b"), Offset: 3}, "f"},
			{kv.KeySelector{Key: []byte("f"), Offset: -1}, "b"},
		} {
			got, err := tx.GetKey(c.sel).Await()
			require.NoError(t, err)
			require.Equal(t, c.want, string(got), "%+v", c.sel)
		}
		pairs, err := tx.GetRange(kv.SelectorRange{
			Begin: kv.FirstGreaterThan([]byte("b")),
			End:   kv.KeySelector{Key: []byte("d"), OrEqual: true, Offset: 2},
		}, kv.RangeOptions{}).Slice()
		require.NoError(t, err)
		require.Len(t, pairs, 2)
	})
}

func testLimits(t *testing.T, b *bench) {
	long := bytes.Repeat([]byte("k"), kv.MaxKeySize)
	b.do(func(tx kv.Transaction) {
		tx.Set(long, make([]byte, kv.MaxValueSize))
		got, err := tx.Get(long).Await()
		require.NoError(t, err)
		require.Len(t, got, kv.MaxValueSize)
	})
	for name, c := range map[string]struct {
		want  error
		write func(tx kv.Transaction)
	}{
		"key":        {kv.ErrKeyTooLarge, func(tx kv.Transaction) { tx.Set(append(long, 'k'), nil) }},
		"value":      {kv.ErrValueTooLarge, func(tx kv.Transaction) { tx.Set(long, make([]byte, kv.MaxValueSize+1)) }},
		"system key": {kv.ErrKeyOutsideLegalRange, func(tx kv.Transaction) { tx.Set([]byte("\xff/x"), nil) }},
		"inverted":   {kv.ErrInvertedRange, func(tx kv.Transaction) { tx.ClearRange(between("b", "a")) }},
		"transaction": {kv.ErrTransactionTooLarge, func(tx kv.Transaction) {
			for i := range 110 {
				tx.Set(fmt.Appendf(nil, "big %d", i), make([]byte, kv.MaxValueSize))
			}
		}},
		"stamp without room": {kv.ErrInvalidOperation, func(tx kv.Transaction) {
			tx.SetVersionstampedKey([]byte("short\x00\x00\x00\x00"), nil)
		}},
	} {
		err := b.fails(func(tx kv.Transaction) error {
			tx.Set([]byte("beside"), []byte(name))
			c.write(tx)
			return nil
		})
		require.ErrorIs(t, err, c.want, name)
		require.Equal(t, "<none>", b.value("beside"), "%s: nothing of it is stored", name)
	}
	err := b.fails(func(tx kv.Transaction) error {
		_, err := tx.GetRange(between("a", "\xff\xff"), kv.RangeOptions{}).Slice()
		return err
	})
	require.ErrorIs(t, err, kv.ErrKeyOutsideLegalRange)
	// Nine tenths of the largest transaction fit.
	b.do(func(tx kv.Transaction) {
		for i := range 89 {
			tx.Set(fmt.Appendf(nil, "big %d", i), make([]byte, kv.MaxValueSize))
		}
	})
}

func testTransact(t *testing.T, b *bench) {
	failure := errors.New("no")
	err := b.db.Transact(b.ctx(), func(tx kv.Transaction) error {
		tx.Set([]byte("x"), []byte("1"))
		return failure
	})
	require.ErrorIs(t, err, failure)
	require.Equal(t, "<none>", b.value("x"), "a function that fails commits nothing")

	runs := 0
	require.NoError(t, b.db.Transact(b.ctx(), func(tx kv.Transaction) error {
		runs++
		tx.Set(fmt.Appendf(nil, "run %d", runs), nil)
		if runs < 3 {
			return fmt.Errorf("wrapped: %w", kv.ErrNotCommitted)
		}
		return nil
	}))
	require.Equal(t, 3, runs)
	require.Equal(t, "<none>", b.value("run 2"), "an attempt that failed leaves nothing")

	ctx, cancel := context.WithCancel(context.Background())
	err = b.db.Transact(ctx, func(kv.Transaction) error {
		cancel()
		return kv.ErrNotCommitted
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, kv.ErrCommitUnknown)

	got, err := kv.TransactValue(b.ctx(), b.db, func(tx kv.Transaction) (string, error) {
		return b.get(tx, "run 3"), nil
	})
	require.NoError(t, err)
	require.Equal(t, "", got)
}
