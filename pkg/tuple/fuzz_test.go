package tuple_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/costtest"
	"settee/pkg/tuple"
)

// completed returns t with complete versionstamps in place of incomplete ones, which Pack
// refuses, and reports whether there were any.
func completed(t tuple.Tuple) (tuple.Tuple, bool) {
	found := false
	result := make(tuple.Tuple, len(t))
	for i, element := range t {
		switch v := element.(type) {
		case tuple.Versionstamp:
			if !v.IsComplete() {
				element, found = tuple.Versionstamp{UserVersion: v.UserVersion}, true
			}
		case tuple.Tuple:
			inner, within := completed(v)
			element, found = inner, found || within
		}
		result[i] = element
	}
	return result, found
}

// unpackBudget is the most bytes that may be allocated for each byte: a null takes an element of
// 16 bytes in a growing slice, and two bytes may be a tuple with a slice of its own.
const unpackBudget = 128

// FuzzUnpack checks that any bytes give an error or a tuple that packs and unpacks to itself, at
// a cost proportional to their number. The packed key differs from the bytes only if an integer
// in them is too long, and is shorter then.
func FuzzUnpack(f *testing.F) {
	for _, v := range vectors {
		f.Add(unhex(f, v.encoded))
	}
	for _, v := range stampVectors {
		f.Add(unhex(f, v.encoded)[2:]) // without the prefix
	}
	for _, c := range malformed {
		f.Add(unhex(f, c.encoded))
	}
	f.Add(bytes.Repeat([]byte{0x05}, 2*tuple.MaxDepth))
	f.Add(unhex(f, "1cffffffffffffffff 13ff 160001"))

	f.Add(bytes.Repeat([]byte{0x00}, 1000))
	f.Add(bytes.Repeat([]byte{0x1c, 0xff}, 500))
	f.Add(append(bytes.Repeat([]byte{0x02, 0x00}, 500), 0x02))
	f.Add(bytes.Repeat([]byte{0x05, 0x00}, 500))
	f.Add(append([]byte{0x01}, bytes.Repeat([]byte{0x00, 0xff}, 500)...))
	f.Add(bytes.Repeat([]byte{0x33}, 1300))

	f.Fuzz(func(t *testing.T, b []byte) {
		var unpacked tuple.Tuple
		var err error
		costtest.Memory(unpackBudget).Check(t, len(b), func() { unpacked, err = tuple.Unpack(b) })
		if err != nil {
			require.ErrorIs(t, err, tuple.ErrMalformed)
			require.Nil(t, unpacked)
			return
		}
		whole, changed := completed(unpacked)
		key := whole.Pack()
		again, err := tuple.Unpack(key)
		require.NoError(t, err)
		require.True(t, identical(whole, again), "packed %#v, unpacked %#v", whole, again)
		require.LessOrEqual(t, len(key), len(b))
		if len(key) == len(b) && !changed {
			require.Equal(t, b, key)
		}
	})
}
