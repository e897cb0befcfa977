package tuple_test

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"settee/pkg/tuple"
)

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			encoded := unhex(t, v.encoded)
			require.Equal(t, encoded, v.tuple.Pack())
			require.Equal(t, encoded, tuple.Append([]byte{}, v.tuple...))

			unpacked, err := tuple.Unpack(encoded)
			require.NoError(t, err)
			require.True(t, identical(v.tuple, unpacked), "unpacked %#v", unpacked)
		})
	}
}

// TestVectorsSorted checks the vectors and the tests' own comparison against each other, before
// other tests rely on them.
func TestVectorsSorted(t *testing.T) {
	t.Parallel()
	for _, a := range vectors {
		for _, b := range vectors {
			require.Equal(t,
				bytes.Compare(unhex(t, a.encoded), unhex(t, b.encoded)), compareTuples(a.tuple, b.tuple),
				"%s and %s", a.name, b.name)
		}
	}
}

func TestPackGoIntegers(t *testing.T) {
	t.Parallel()
	minusTwo, two := tuple.Tuple{int64(-2)}.Pack(), tuple.Tuple{int64(2)}.Pack()
	require.Equal(t, minusTwo, tuple.Tuple{-2}.Pack())
	for _, element := range []any{2, uint(2), uint64(2)} {
		require.Equal(t, two, tuple.Tuple{element}.Pack(), "%T", element)
	}
	require.Equal(t, []byte{0x14}, tuple.Tuple{uint64(0)}.Pack())
}

func TestPackNilSlices(t *testing.T) {
	t.Parallel()
	require.Equal(t, []byte{0x01, 0x00}, tuple.Tuple{[]byte(nil)}.Pack())
	require.Equal(t, []byte{0x05, 0x00}, tuple.Tuple{tuple.Tuple(nil)}.Pack())
	require.Empty(t, tuple.Tuple(nil).Pack())
}

func TestAppend(t *testing.T) {
	t.Parallel()
	buf := make([]byte, 1, 64)
	buf[0] = 0xaa
	key := tuple.Append(buf, "a", nil)
	require.Equal(t, []byte{0xaa, 0x02, 'a', 0x00, 0x00}, key)
	require.Same(t, &buf[0], &key[0], "there was room")
	require.Equal(t, []byte{0xaa}, tuple.Append(buf))
}

// deep returns a tuple with that many levels of nesting in it.
func deep(levels int) tuple.Tuple {
	t := tuple.Tuple{}
	for range levels {
		t = tuple.Tuple{t}
	}
	return t
}

func TestPackPanics(t *testing.T) {
	t.Parallel()
	type name string
	itself := tuple.Tuple{nil}
	itself[0] = itself
	for _, c := range []struct {
		name    string
		tuple   tuple.Tuple
		message string
	}{
		{"type of another package", tuple.Tuple{time.Second}, "tuple: cannot pack an element of type time.Duration"},
		{"defined type", tuple.Tuple{name("a")}, "tuple: cannot pack an element of type tuple_test.name"},
		{"slice", tuple.Tuple{"a", []any{"b"}}, "tuple: cannot pack an element of type []interface {}"},
		{"nested", tuple.Tuple{tuple.Tuple{struct{}{}}}, "tuple: cannot pack an element of type struct {}"},
		{"integer of another type", tuple.Tuple{uint16(1)}, "tuple: cannot pack an element of type uint16"},
		{"single", tuple.Tuple{float32(1)}, "tuple: cannot pack an element of type float32"},
		{
			"incomplete versionstamp", tuple.Tuple{tuple.Tuple{tuple.IncompleteVersionstamp(0)}},
			"tuple: incomplete versionstamp outside PackWithVersionstamp",
		},
		{"too deep", deep(tuple.MaxDepth + 1), "tuple: cannot pack more than 100 levels of nesting"},
		{"a tuple in itself", itself, "tuple: cannot pack more than 100 levels of nesting"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.PanicsWithValue(t, c.message, func() { c.tuple.Pack() })
			require.PanicsWithValue(t, c.message, func() { tuple.Append(nil, c.tuple...) })
		})
	}
}

// TestOrder checks that the bytes of two tuples compare as the tuples do.
func TestOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		a := randomTuple(rng, 3)
		b := randomTuple(rng, 3)
		if rng.IntN(2) == 0 {
			b = neighbour(rng, a)
		}
		require.Equal(t, compareTuples(a, b), bytes.Compare(a.Pack(), b.Pack()), "seed %d: %#v and %#v", seed, a, b)
	}
}

// TestOrderOfMany sorts one set of tuples by value and by key. Unlike pairs, a set also shows an
// order that is not transitive.
func TestOrderOfMany(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 0))
	tuples := make([]tuple.Tuple, 5_000)
	for i := range tuples {
		tuples[i] = randomTuple(rng, 2)
	}
	slices.SortFunc(tuples, compareTuples)
	require.True(t, slices.IsSortedFunc(tuples, func(a, b tuple.Tuple) int {
		return bytes.Compare(a.Pack(), b.Pack())
	}))
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		packed := randomTuple(rng, 3)
		key := packed.Pack()
		unpacked, err := tuple.Unpack(key)
		require.NoError(t, err, "seed %d", seed)
		require.True(t, identical(packed, unpacked), "seed %d: packed %#v, unpacked %#v", seed, packed, unpacked)
		require.Equal(t, key, unpacked.Pack(), "seed %d", seed)
	}
}

func TestVersionstamp(t *testing.T) {
	t.Parallel()
	v := tuple.Versionstamp{TransactionVersion: [10]byte{0: 1, 9: 2}, UserVersion: 0x0304}
	require.True(t, v.IsComplete())
	require.False(t, tuple.IncompleteVersionstamp(3).IsComplete())
	require.Equal(t, []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 4}, v.Bytes())
	require.Equal(t, "010000000000000000020304", v.String())

	parsed, err := tuple.ParseVersionstamp(v.Bytes())
	require.NoError(t, err)
	require.Equal(t, v, parsed)
	for _, size := range []int{0, 10, 11, 13} {
		_, err := tuple.ParseVersionstamp(make([]byte, size))
		require.ErrorIs(t, err, tuple.ErrMalformed, "%d bytes", size)
	}
}

func TestVersionstampOrder(t *testing.T) {
	t.Parallel()
	ascending := []tuple.Versionstamp{
		{},
		{UserVersion: 1},
		{UserVersion: 0x0100},
		{TransactionVersion: [10]byte{9: 1}},
		{TransactionVersion: [10]byte{7: 1}, UserVersion: 2},
		{TransactionVersion: [10]byte{0: 1}},
		tuple.IncompleteVersionstamp(0),
		tuple.IncompleteVersionstamp(0xffff),
	}
	for i, v := range ascending {
		for j, w := range ascending {
			require.Equal(t, cmp.Compare(i, j), v.Compare(w), "%s and %s", v, w)
			require.Equal(t, cmp.Compare(i, j), bytes.Compare(v.Bytes(), w.Bytes()), "%s and %s", v, w)
		}
	}
}

func TestPackWithVersionstamp(t *testing.T) {
	t.Parallel()
	prefix := []byte{0xaa, 0xbb}
	for _, v := range stampVectors {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			key, err := v.tuple.PackWithVersionstamp(prefix)
			require.NoError(t, err)
			require.Equal(t, unhex(t, v.encoded), key)

			unprefixed, err := v.tuple.PackWithVersionstamp(nil)
			require.NoError(t, err)
			require.Equal(t, key[len(prefix):len(key)-4], unprefixed[:len(unprefixed)-4])
			require.Equal(t, int(key[len(key)-4])-len(prefix), int(unprefixed[len(unprefixed)-4]))
		})
	}
}

func TestPackWithVersionstampCounts(t *testing.T) {
	t.Parallel()
	incomplete := tuple.IncompleteVersionstamp
	for _, c := range []struct {
		name  string
		tuple tuple.Tuple
		want  error
	}{
		{"empty", tuple.Tuple{}, tuple.ErrNoVersionstamp},
		{"none", tuple.Tuple{"a", nil}, tuple.ErrNoVersionstamp},
		{"complete", tuple.Tuple{tuple.Versionstamp{}}, tuple.ErrNoVersionstamp},
		{"two", tuple.Tuple{incomplete(1), incomplete(2)}, tuple.ErrManyVersionstamps},
		{"one nested", tuple.Tuple{incomplete(1), tuple.Tuple{incomplete(2)}}, tuple.ErrManyVersionstamps},
		{"three", tuple.Tuple{incomplete(0), incomplete(0), incomplete(0)}, tuple.ErrManyVersionstamps},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			key, err := c.tuple.PackWithVersionstamp([]byte("prefix"))
			require.ErrorIs(t, err, c.want)
			require.Nil(t, key)
		})
	}
	require.Panics(t, func() { _, _ = tuple.Tuple{incomplete(0), uuid.NullUUID{}}.PackWithVersionstamp(nil) })
}

// TestStampedKeyUnpacks completes a versionstamped key as a store does, and reads the
// versionstamp back.
func TestStampedKeyUnpacks(t *testing.T) {
	t.Parallel()
	committed := [10]byte{0, 0, 0, 0, 0, 1, 2, 3, 0, 4}
	key, err := tuple.Tuple{"active", tuple.IncompleteVersionstamp(5), "id"}.PackWithVersionstamp(nil)
	require.NoError(t, err)
	key, offset := key[:len(key)-4], key[len(key)-4]
	copy(key[offset:], committed[:])

	unpacked, err := tuple.Unpack(key)
	require.NoError(t, err)
	require.Equal(t, tuple.Tuple{
		"active", tuple.Versionstamp{TransactionVersion: committed, UserVersion: 5}, "id",
	}, unpacked)
}
