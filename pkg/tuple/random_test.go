package tuple_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"

	"github.com/google/uuid"

	"settee/pkg/tuple"
)

// randomTuple returns a tuple of elements of the types that Unpack returns. Its
// values are drawn from where encodings change: lengths of integers, escaped
// bytes, special floats; and few enough to meet again in another tuple.
func randomTuple(rng *rand.Rand, depth int) tuple.Tuple {
	t := make(tuple.Tuple, rng.IntN(5))
	for i := range t {
		t[i] = randomElement(rng, depth)
	}
	return t
}

func randomElement(rng *rand.Rand, depth int) any {
	kinds := 10
	if depth == 0 {
		kinds-- // no more nesting
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
		return math.Float32frombits(uint32(randomFloatBits(rng, 8, 23)))
	case 6:
		return math.Float64frombits(randomFloatBits(rng, 11, 52))
	case 7:
		return rng.IntN(2) == 0
	case 8:
		if rng.IntN(2) == 0 {
			var v tuple.Versionstamp // complete, as the last of its bytes stays zero
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

// fill sets b to random bytes, half of them the ones that matter to escaping.
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
	length := rng.IntN(10)
	if rng.IntN(8) == 0 {
		length = rng.IntN(256)
	}
	i := new(big.Int)
	if rng.IntN(2) == 0 {
		b := make([]byte, length)
		fill(rng, b)
		i.SetBytes(b)
	} else {
		i.SetBit(i, rng.IntN(8*length+1), 1)
		i.Add(i, big.NewInt(rng.Int64N(3)-1))
	}
	if i.BitLen() > 8*255 {
		i.Rsh(i, 8)
	}
	if rng.IntN(2) == 0 {
		i.Neg(i)
	}
	switch {
	case i.IsInt64():
		return i.Int64()
	case i.IsUint64():
		return i.Uint64()
	default:
		return i
	}
}

// randomFloatBits returns the bits of a float with fields of the given widths:
// zeros, subnormals, infinities and NaNs as often as plain numbers, both signs.
func randomFloatBits(rng *rand.Rand, exponentBits, mantissaBits int) uint64 {
	sign := rng.Uint64N(2)
	greatest := uint64(1)<<exponentBits - 1
	exponent := []uint64{0, greatest, rng.Uint64N(greatest)}[rng.IntN(3)]
	all := uint64(1)<<mantissaBits - 1
	mantissa := []uint64{0, 1, all, rng.Uint64() & all}[rng.IntN(4)]
	return (sign<<exponentBits|exponent)<<mantissaBits | mantissa
}

// neighbour returns a tuple that differs from t in one place, or in none: what
// two random tuples would seldom be.
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
