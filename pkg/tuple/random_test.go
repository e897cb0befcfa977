package tuple_test

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/google/uuid"

	"settee/pkg/tuple"
)

// randomTuple returns a tuple with elements of the types that Unpack returns. Its values are
// special cases of the encoding: lengths of integers, escaped bytes, special floats. They are
// few, so that two tuples often share some.
func randomTuple(rng *rand.Rand, depth int) tuple.Tuple {
	t := make(tuple.Tuple, rng.IntN(5))
	for i := range t {
		t[i] = randomElement(rng, depth)
	}
	return t
}

func randomElement(rng *rand.Rand, depth int) any {
	kinds := 9
	if depth == 0 {
		kinds-- // no deeper nesting
	}
	switch rng.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return randomBytes(rng)
	case 2:
		return string(randomBytes(rng))
	case 3, 4:
		return randomInteger(rng)
	case 5:
		return randomFloat(rng)
	case 6:
		return rng.IntN(2) == 0
	case 7:
		if rng.IntN(2) == 0 {
			var v tuple.Versionstamp // complete, because the last of its bytes stays zero
			fill(rng, v.TransactionVersion[:9])
			v.UserVersion = uint16(rng.UintN(3))
			return v
		}
		var id uuid.UUID
		fill(rng, id[:])
		return id
	default:
		return randomTuple(rng, depth-1)
	}
}

// fill sets b to random bytes, half of which matter to escaping.
func fill(rng *rand.Rand, b []byte) {
	telling := []byte{0x00, 0x01, 'a', 0xfe, 0xff}
	for i := range b {
		b[i] = byte(rng.UintN(256))
		if rng.IntN(2) == 0 {
			b[i] = telling[rng.IntN(len(telling))]
		}
	}
}

func randomBytes(rng *rand.Rand) []byte {
	b := make([]byte, rng.IntN(5))
	fill(rng, b)
	return b
}

// randomInteger returns an integer of any length and sign, often one next to a
// power of two, as Unpack would.
func randomInteger(rng *rand.Rand) any {
	u := rng.Uint64() >> rng.IntN(64)
	if rng.IntN(2) == 0 {
		u = 1<<rng.IntN(64) + rng.Uint64N(3) - 1
	}
	switch {
	case rng.IntN(2) == 0 && u <= 1<<63:
		return int64(-u)
	case u <= math.MaxInt64:
		return int64(u)
	default:
		return u
	}
}

// randomFloat returns a float. Zeros, subnormals, infinities and NaNs of both signs are as
// frequent as other numbers.
func randomFloat(rng *rand.Rand) float64 {
	const exponentBits, mantissaBits = 11, 52
	const greatest, all = 1<<exponentBits - 1, 1<<mantissaBits - 1
	sign := rng.Uint64N(2)
	exponent := []uint64{0, greatest, rng.Uint64N(greatest)}[rng.IntN(3)]
	mantissa := []uint64{0, 1, all, rng.Uint64() & all}[rng.IntN(4)]
	return math.Float64frombits((sign<<exponentBits|exponent)<<mantissaBits | mantissa)
}

// neighbour returns a tuple that differs from t in at most one element.
func neighbour(rng *rand.Rand, t tuple.Tuple) tuple.Tuple {
	t = slices.Clone(t)
	if len(t) == 0 || rng.IntN(4) == 0 {
		return append(t, randomElement(rng, 1))
	}
	at := rng.IntN(len(t))
	switch v := t[at].(type) {
	case tuple.Tuple:
		t[at] = neighbour(rng, v)
	case string:
		t[at] = v + string(randomBytes(rng))
	case []byte:
		t[at] = slices.Concat(v, randomBytes(rng))
	case int64:
		if v < math.MaxInt64 {
			t[at] = v + 1
		}
	default:
		t[at] = randomElement(rng, 1)
	}
	return t[:len(t)-rng.IntN(2)]
}
