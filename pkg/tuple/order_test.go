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

// compareTuples orders tuples as the package promises, without a look at their
// encoding: it returns -1, 0 or +1 as a sorts before, with or after b.
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
	case float32:
		return compareFloats(single(a), single(b.(float32)))
	case float64:
		return compareFloats(double(a), double(b.(float64)))
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

// rank is the place of an element's type among the types.
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
	case float32:
		return 5
	case float64:
		return 6
	case bool:
		return 7
	case uuid.UUID:
		return 8
	case tuple.Versionstamp:
		return 9
	default:
		return 4 // integers
	}
}

// exact returns the value of an element that is an integer of any type.
func exact(element any) *big.Int {
	if i, ok := element.(*big.Int); ok {
		return i
	}
	v := reflect.ValueOf(element)
	switch {
	case v.CanInt():
		return big.NewInt(v.Int())
	case v.CanUint():
		return new(big.Int).SetUint64(v.Uint())
	default:
		panic(fmt.Sprintf("%T is no integer", element))
	}
}

// number is what the total order of IEEE 754 looks at.
type number struct {
	negative bool
	nan      bool
	value    float64 // where it is no NaN
	mantissa uint64
}

func single(f float32) number {
	u := math.Float32bits(f)
	return number{u>>31 == 1, f != f, float64(f), uint64(u & (1<<23 - 1))}
}

func double(f float64) number {
	u := math.Float64bits(f)
	return number{u>>63 == 1, f != f, f, u & (1<<52 - 1)}
}

func compareFloats(a, b number) int {
	if a.negative != b.negative {
		if a.negative {
			return -1
		}
		return +1
	}
	outward := 1 // the sign of numbers that lie further from zero
	if a.negative {
		outward = -1
	}
	switch {
	case a.nan && b.nan:
		return outward * cmp.Compare(a.mantissa, b.mantissa)
	case a.nan:
		return outward
	case b.nan:
		return -outward
	default:
		return cmp.Compare(a.value, b.value)
	}
}

// identical reports whether a and b are the same elements of the same types.
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
