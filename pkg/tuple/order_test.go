package tuple_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/big"
	"reflect"

	"github.com/google/uuid"

	"settee/pkg/tuple"
)

// compareTuples implements the documented order without the encoding. It returns -1, 0 or +1 as a
// sorts before b, is equal, or sorts after it.
func compareTuples(a, b tuple.Tuple) int {
	for i := range min(len(a), len(b)) {
		if c := compareElements(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func compareElements(a, b any) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch a := a.(type) {
	case nil:
		return 0
	case []byte:
		return bytes.Compare(a, b.([]byte))
	case string:
		return cmp.Compare(a, b.(string))
	case tuple.Tuple:
		return compareTuples(a, b.(tuple.Tuple))
	case float64:
		return compareFloats(a, b.(float64))
	case bool:
		switch {
		case a == b.(bool):
			return 0
		case a:
			return +1
		default:
			return -1
		}
	case uuid.UUID:
		other := b.(uuid.UUID)
		return bytes.Compare(a[:], other[:])
	case tuple.Versionstamp:
		return a.Compare(b.(tuple.Versionstamp))
	default:
		return exact(a).Cmp(exact(b))
	}
}

// rank orders the types of elements.
func rank(element any) int {
	switch element.(type) {
	case nil:
		return 0
	case []byte:
		return 1
	case string:
		return 2
	case tuple.Tuple:
		return 3
	case float64:
		return 5
	case bool:
		return 6
	case uuid.UUID:
		return 7
	case tuple.Versionstamp:
		return 8
	default:
		return 4 // integers
	}
}

// exact returns the value of an element that is an integer of any type.
func exact(element any) *big.Int {
	v := reflect.ValueOf(element)
	switch {
	case v.CanInt():
		return big.NewInt(v.Int())
	case v.CanUint():
		return new(big.Int).SetUint64(v.Uint())
	default:
		panic(fmt.Sprintf("%T is not an integer", element))
	}
}

// compareFloats compares by IEEE 754's total order.
func compareFloats(a, b float64) int {
	if math.Signbit(a) != math.Signbit(b) {
		if math.Signbit(a) {
			return -1
		}
		return +1
	}
	outward := 1 // the sign of numbers farther from zero
	if math.Signbit(a) {
		outward = -1
	}
	switch {
	case math.IsNaN(a) && math.IsNaN(b):
		return outward * cmp.Compare(mantissa(a), mantissa(b))
	case math.IsNaN(a):
		return outward
	case math.IsNaN(b):
		return -outward
	default:
		return cmp.Compare(a, b)
	}
}

func mantissa(f float64) uint64 { return math.Float64bits(f) & (1<<52 - 1) }

// identical reports whether a and b have the same elements of the same types.
func identical(a, b tuple.Tuple) bool {
	if compareTuples(a, b) != 0 || (a == nil) != (b == nil) {
		return false
	}
	for i := range a {
		if reflect.TypeOf(a[i]) != reflect.TypeOf(b[i]) {
			return false
		}
		switch x := a[i].(type) {
		case []byte:
			if (x == nil) != (b[i].([]byte) == nil) {
				return false
			}
		case tuple.Tuple:
			if !identical(x, b[i].(tuple.Tuple)) {
				return false
			}
		}
	}
	return true
}
