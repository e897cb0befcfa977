package tuple_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/tuple"
)

func TestSubspaceIsPrefix(t *testing.T) {
	t.Parallel()
	jobs := tuple.NewSubspace("jobs", 1)
	require.Equal(t, tuple.Tuple{"jobs", 1}.Pack(), jobs.Bytes())
	require.Equal(t, tuple.Tuple{"jobs", 1, "data", nil}.Pack(), jobs.Pack("data", nil))
	require.Equal(t, jobs.Pack("data", nil), jobs.Sub("data").Pack(nil))
	require.Equal(t, jobs.Pack("data", "b"), jobs.Append(nil, "data", "b"))
	require.Equal(t, append([]byte{7}, jobs.Pack("data")...), jobs.Append([]byte{7}, "data"))
	require.Equal(t, jobs.Bytes(), jobs.Pack())

	raw := tuple.SubspaceFromBytes([]byte{0xfe, 0xff})
	require.Equal(t, []byte{0xfe, 0xff}, raw.Bytes())
	require.Equal(t, []byte{0xfe, 0xff, 0x14}, raw.Pack(0))

	var all tuple.Subspace
	require.Empty(t, all.Bytes())
	require.Empty(t, tuple.NewSubspace().Bytes())
	require.Equal(t, tuple.Tuple{"a"}.Pack(), all.Pack("a"))
	require.Equal(t, jobs.Bytes(), all.Sub("jobs", 1).Bytes())
}

// TestSubspaceDoesNotChange modifies the bytes that a subspace was made from, and slices that it
// returned.
func TestSubspaceDoesNotChange(t *testing.T) {
	t.Parallel()
	prefix := []byte("prefix")
	s := tuple.SubspaceFromBytes(prefix)
	clear(prefix)
	require.Equal(t, "prefix", string(s.Bytes()))

	// Several appends to one prefix must not share memory after it.
	s = s.Sub(1, 2, 3)
	first := append(s.Bytes(), 'a')
	second := append(s.Bytes(), 'b')
	below, beside := s.Sub("a"), s.Sub("b")
	require.Equal(t, "prefix\x15\x01\x15\x02\x15\x03a", string(first))
	require.Equal(t, "prefix\x15\x01\x15\x02\x15\x03b", string(second))
	require.Equal(t, "prefix\x15\x01\x15\x02\x15\x03\x02a\x00", string(below.Bytes()))
	require.Equal(t, "prefix\x15\x01\x15\x02\x15\x03\x02b\x00", string(beside.Bytes()))
}

func TestSubspaceUnpack(t *testing.T) {
	t.Parallel()
	s := tuple.NewSubspace("jobs")
	unpacked, err := s.Unpack(s.Pack("data", int64(5)))
	require.NoError(t, err)
	require.Equal(t, tuple.Tuple{"data", int64(5)}, unpacked)

	unpacked, err = s.Unpack(s.Bytes())
	require.NoError(t, err)
	require.Equal(t, tuple.Tuple{}, unpacked)

	for _, outside := range [][]byte{nil, s.Bytes()[:3], tuple.Tuple{"jobz", "data"}.Pack()} {
		require.False(t, s.Contains(outside))
		_, err = s.Unpack(outside)
		require.ErrorIs(t, err, tuple.ErrNotInSubspace)
	}

	// The error counts from the start of the key.
	_, err = s.Unpack(append(s.Bytes(), 0x15))
	require.ErrorIs(t, err, tuple.ErrMalformed)
	require.ErrorContains(t, err, "byte 6: element cut short")
}

func TestSubspacePackWithVersionstamp(t *testing.T) {
	t.Parallel()
	s := tuple.SubspaceFromBytes([]byte{0xaa, 0xbb})
	for _, v := range stampVectors {
		key, err := s.PackWithVersionstamp(v.tuple...)
		require.NoError(t, err, v.name)
		require.Equal(t, unhex(t, v.encoded), key, v.name)
	}
	_, err := s.PackWithVersionstamp("a")
	require.ErrorIs(t, err, tuple.ErrNoVersionstamp)
	_, err = s.PackWithVersionstamp(tuple.IncompleteVersionstamp(1), tuple.IncompleteVersionstamp(2))
	require.ErrorIs(t, err, tuple.ErrManyVersionstamps)
	require.Panics(t, func() { s.Sub(tuple.IncompleteVersionstamp(1)) })
}

func within(key, begin, end []byte) bool {
	return bytes.Compare(begin, key) <= 0 && bytes.Compare(key, end) < 0
}

func TestSubspaceRange(t *testing.T) {
	t.Parallel()
	s := tuple.NewSubspace("a")
	begin, end := s.Range()
	require.Equal(t, []byte{0x02, 'a', 0x00, 0x00}, begin)
	require.Equal(t, []byte{0x02, 'a', 0x00, 0xff}, end)
	require.False(t, within(s.Bytes(), begin, end), "the prefix itself")
	require.True(t, within(s.Pack(nil), begin, end))
	require.True(t, within(s.Pack(tuple.Versionstamp{UserVersion: 1}, "b"), begin, end))
	require.False(t, within(tuple.NewSubspace("a\x00").Pack(nil), begin, end))
	require.False(t, within(tuple.NewSubspace("a\xff").Pack(nil), begin, end))

	begin, end = tuple.Subspace{}.Range()
	require.Equal(t, []byte{0x00}, begin)
	require.Equal(t, []byte{0xff}, end)
}

// TestSubspaceRangeHoldsItsTuples checks that the range of a tuple holds exactly the longer
// tuples that begin with it.
func TestSubspaceRangeHoldsItsTuples(t *testing.T) {
	t.Parallel()
	inside := 0
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		key := randomTuple(rng, 2)
		prefix := randomTuple(rng, 2)
		if rng.IntN(2) == 0 {
			prefix = neighbour(rng, key[:rng.IntN(len(key)+1)])
		}
		begin, end := tuple.NewSubspace(prefix...).Range()
		want := len(key) > len(prefix) && compareTuples(key[:len(prefix)], prefix) == 0
		require.Equal(t, want, within(key.Pack(), begin, end), "seed %d: %#v in %#v", seed, key, prefix)
		if want {
			inside++
		}
	}
	require.Greater(t, inside, 1000, "the seeds must draw both cases")
}
