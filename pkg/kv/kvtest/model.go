package kvtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// testModel compares every read of random transactions with a sorted map.
func testModel(t *testing.T, b *bench) {
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("the seed was %d", seed)
		}
	}()
	random := rand.New(rand.NewPCG(seed, 0))
	contents := model{}
	for range 100 {
		// The reads are in a transaction that is not committed: a committed one may run twice, and would see its own
		// writes.
		of := random.Uint64()
		var after model
		b.try(func(tx kv.Transaction) { after = b.randomSteps(tx, of, contents, true) })
		b.write(func(tx kv.Transaction) { b.randomSteps(tx, of, contents, false) })
		contents = after
		b.read(func(tx kv.Transaction) { b.compareRange(tx, contents, b.all(), kv.RangeOptions{}) })
	}
}

// model is the content of the test's part of a store.
type model map[string]string

func (m model) keys() []string { return slices.Sorted(maps.Keys(m)) }

// randomSteps runs the transaction of a seed on the store, with or without its reads, and returns the resulting model.
func (b *bench) randomSteps(tx kv.Transaction, seed uint64, before model, reads bool) model {
	r := rand.New(rand.NewPCG(seed, 1))
	contents := maps.Clone(before)
	key := func() string { return fmt.Sprintf("%02d", r.IntN(40)) }
	for range 1 + r.IntN(20) {
		begin, end := key(), key()
		if begin > end {
			begin, end = end, begin
		}
		value := fmt.Sprint(r.IntN(1000))
		opts := kv.RangeOptions{Limit: r.IntN(6), Reverse: r.IntN(2) == 0}
		n := r.IntN(1000) - 500
		switch r.IntN(9) {
		case 0, 1:
			tx.Set(b.key(begin), []byte(value))
			contents[begin] = value
		case 2:
			tx.Clear(b.key(begin))
			delete(contents, begin)
		case 3:
			tx.ClearRange(b.between(begin, end))
			maps.DeleteFunc(contents, func(k, _ string) bool { return k >= begin && k < end })
		case 4:
			tx.Add(b.key(begin), int64(n))
			contents[begin] = added(contents[begin], n)
		case 5:
			tx.AddOrClear(b.key(begin), int64(n%3))
			if contents[begin] = added(contents[begin], n%3); contents[begin] == number(0, 8) {
				delete(contents, begin)
			}
		default:
			if reads {
				b.compareRange(tx, contents, b.between(begin, end), opts)
				b.compareRange(tx.Snapshot(), contents, b.between(begin, end), opts)
			}
		}
	}
	return contents
}

// added adds n to a number of 8 bytes.
func added(old string, n int) string {
	sum := binary.LittleEndian.Uint64(append([]byte(old), make([]byte, 8)...)) + uint64(n)
	return number(sum, 8)
}

func (b *bench) compareRange(tx kv.ReadTransaction, contents model, r kv.KeyRange, opts kv.RangeOptions) {
	b.t.Helper()
	want := []string{}
	for _, k := range contents.keys() {
		if key := b.key(k); bytes.Compare(key, r.Begin) >= 0 && bytes.Compare(key, r.End) < 0 {
			want = append(want, k+"="+contents[k])
		}
	}
	if opts.Reverse {
		slices.Reverse(want)
	}
	if opts.Limit > 0 && len(want) > opts.Limit {
		want = want[:opts.Limit]
	}
	require.Equal(b.t, want, b.pairs(tx, r, opts), "[%s, %s) %+v", r.Begin, r.End, opts)
}
