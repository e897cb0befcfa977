//go:build fdb

package tuple_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	fdbtuple "github.com/apple/foundationdb/bindings/go/src/fdb/tuple"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"settee/pkg/tuple"
)

// theirs returns t with the types of FoundationDB's binding.
func theirs(t tuple.Tuple) fdbtuple.Tuple {
	converted := make(fdbtuple.Tuple, len(t))
	for i, element := range t {
		switch e := element.(type) {
		case tuple.Tuple:
			converted[i] = theirs(e)
		case uuid.UUID:
			converted[i] = fdbtuple.UUID(e)
		case tuple.Versionstamp:
			converted[i] = fdbtuple.Versionstamp(e)
		default:
			converted[i] = e
		}
	}
	return converted
}

// equalEncodings checks that both packages encode t to the same bytes, and decode these to equal
// tuples.
func equalEncodings(t *testing.T, value tuple.Tuple) {
	t.Helper()
	want := theirs(value).Pack()
	require.Equal(t, want, value.Pack(), "%v", value)
	back, err := tuple.Unpack(want)
	require.NoError(t, err, "%v", value)
	require.Equal(t, want, theirs(back).Pack(), "%v", value)
	read, err := fdbtuple.Unpack(value.Pack())
	require.NoError(t, err, "%v", value)
	require.Equal(t, want, read.Pack(), "%v", value)
}

func TestFoundationDBBinding(t *testing.T) {
	t.Parallel()
	for _, element := range []any{
		nil, []byte(nil), []byte("a\x00\xffb"), "", "žluť\x00", tuple.Tuple{}, tuple.Tuple{nil, tuple.Tuple{nil, ""}, []byte{0}},
		math.MinInt, int64(math.MinInt64), int64(math.MaxInt64), uint(math.MaxUint), uint64(math.MaxUint64), 0, -1,
		-0.5, math.Inf(1), math.Copysign(0, -1), math.NaN(), math.SmallestNonzeroFloat64, true, false,
		uuid.UUID{0, 0xff, 1}, tuple.Versionstamp{UserVersion: math.MaxUint16},
	} {
		equalEncodings(t, tuple.Tuple{element})
		equalEncodings(t, tuple.Tuple{"before", tuple.Tuple{element, element}, element})
	}
	const seed = 13
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 20_000 {
		equalEncodings(t, randomTuple(rng, 3))
	}
}

func TestFoundationDBBindingVersionstamp(t *testing.T) {
	t.Parallel()
	require.NoError(t, fdb.APIVersion(730)) // which says how an offset is written
	const seed = 17
	rng := rand.New(rand.NewPCG(seed, seed))
	for i := range 20_000 {
		var stamped any = tuple.IncompleteVersionstamp(uint16(rng.Uint32()))
		for range rng.IntN(3) {
			stamped = append(append(randomTuple(rng, 1), stamped), randomTuple(rng, 1)...)
		}
		value := append(append(randomTuple(rng, 2), stamped), randomTuple(rng, 2)...)
		prefix := randomBytes(rng)
		want, err := theirs(value).PackWithVersionstamp(prefix)
		require.NoError(t, err)
		got, err := value.PackWithVersionstamp(prefix)
		require.NoError(t, err)
		require.Equal(t, want, got, "tuple %d: %v", i, value)
	}
	for _, value := range []tuple.Tuple{
		{"none"},
		{tuple.IncompleteVersionstamp(0), tuple.Tuple{tuple.IncompleteVersionstamp(1)}},
	} {
		_, err := theirs(value).PackWithVersionstamp(nil)
		require.Error(t, err)
		_, err = value.PackWithVersionstamp(nil)
		require.Error(t, err, fmt.Sprint(value))
	}
}
