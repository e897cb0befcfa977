package tuple_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/tuple"
)

// malformed are bytes that encode no tuple.
var malformed = []struct {
	name    string
	encoded string
	message string // follows that of ErrMalformed
}{
	{"byte string without end", "01 61", "byte 0: string without end"},
	{"string without end", "14 02", "byte 1: string without end"},
	{"string that ends escaped", "02 61 00ff", "byte 0: string without end"},
	{"nested tuple without end", "05 14", "byte 0: nested tuple without end"},
	{"nested tuple with nothing", "05", "byte 0: nested tuple without end"},
	{"nested tuple that ends in a null", "05 00ff", "byte 0: nested tuple without end"},
	{"inner tuple closed, outer one not", "05 05 00", "byte 0: nested tuple without end"},
	{"string without end in a tuple", "05 01 00ff", "byte 1: string without end"},
	{"integer of one byte", "15", "byte 0: element cut short, type code 0x15"},
	{"integer of eight bytes", "1c 01020304050607", "byte 0: element cut short, type code 0x1c"},
	{"negative integer", "12 fe", "byte 0: element cut short, type code 0x12"},
	{"greatest integer below int64", "0c 7ffffffffffffffe", "byte 0: integer below -2^63"},
	{"least integer of eight bytes", "14 0c 0000000000000000", "byte 1: integer below -2^63"},
	{"integer of nine bytes", "1d 09 010000000000000000", "byte 0: unknown type code 0x1d"},
	{"negative integer of nine bytes", "0b f6 feffffffffffffffff", "byte 0: unknown type code 0x0b"},
	{"single", "20 80000000", "byte 0: unknown type code 0x20"},
	{"double", "21 80000000000000", "byte 0: element cut short, type code 0x21"},
	{"UUID", "30 000102030405060708090a0b0c0d0e", "byte 0: element cut short, type code 0x30"},
	{"versionstamp", "33 000102030405060708090a", "byte 0: element cut short, type code 0x33"},
	{"null of a nested tuple outside one", "00ff", "byte 1: unknown type code 0xff"},
}

func TestUnpackMalformed(t *testing.T) {
	t.Parallel()
	for _, c := range malformed {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			unpacked, err := tuple.Unpack(unhex(t, c.encoded))
			require.ErrorIs(t, err, tuple.ErrMalformed)
			require.EqualError(t, err, "tuple: malformed encoding: "+c.message)
			require.Nil(t, unpacked)
		})
	}
}

// TestUnpackCodes checks that the type codes of the package comment's table are read, and that all
// others are refused.
func TestUnpackCodes(t *testing.T) {
	t.Parallel()
	known := map[int]bool{0x00: true, 0x01: true, 0x02: true, 0x05: true}
	for code := 0x0d; code <= 0x1c; code++ {
		known[code] = true
	}
	for _, code := range []int{0x21, 0x26, 0x27, 0x30, 0x33} {
		known[code] = true
	}
	for code := range 256 {
		_, err := tuple.Unpack(append([]byte{byte(code)}, make([]byte, 512)...))
		switch {
		case code == 0x0c:
			require.ErrorContains(t, err, "integer below -2^63", "known, but not with zero bytes")
		case known[code]:
			require.NoError(t, err, "code 0x%02x", code)
		default:
			require.ErrorIs(t, err, tuple.ErrMalformed, "code 0x%02x", code)
		}
	}
}

// TestUnpackCut cuts the vectors at every byte: the rest is invalid or encodes another tuple.
func TestUnpackCut(t *testing.T) {
	t.Parallel()
	for _, v := range vectors {
		encoded := unhex(t, v.encoded)
		for size := range encoded {
			unpacked, err := tuple.Unpack(encoded[:size])
			if err != nil {
				require.ErrorIs(t, err, tuple.ErrMalformed, "%s, %d bytes", v.name, size)
				continue
			}
			require.Equal(t, encoded[:size], unpacked.Pack(), "%s, %d bytes", v.name, size)
		}
	}
}

// TestUnpackLongIntegers unpacks integers in more bytes than necessary.
func TestUnpackLongIntegers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		encoded string
		want    any
	}{
		{"15 00", int64(0)},
		{"13 ff", int64(0)},
		{"16 0001", int64(1)},
		{"1c 0000000000000001", int64(1)},
		{"0c fffffffffffffffe", int64(-1)},
	} {
		encoded := unhex(t, c.encoded)
		unpacked, err := tuple.Unpack(encoded)
		require.NoError(t, err, c.encoded)
		require.Equal(t, tuple.Tuple{c.want}, unpacked, c.encoded)
		require.Less(t, len(unpacked.Pack()), len(encoded), c.encoded)
	}
}

func TestUnpackDepth(t *testing.T) {
	t.Parallel()
	deepest := deep(tuple.MaxDepth)
	unpacked, err := tuple.Unpack(deepest.Pack())
	require.NoError(t, err)
	require.Equal(t, deepest, unpacked)

	tooDeep := append(bytes.Repeat([]byte{0x05}, tuple.MaxDepth+1), make([]byte, tuple.MaxDepth+1)...)
	_, err = tuple.Unpack(tooDeep)
	require.ErrorIs(t, err, tuple.ErrMalformed)
	require.ErrorContains(t, err, "byte 100: more than 100 levels of nesting")

	_, err = tuple.Unpack(bytes.Repeat([]byte{0x05}, 1<<20))
	require.ErrorIs(t, err, tuple.ErrMalformed)

	// Depth is nesting, not the number of tuples.
	wide := tuple.Tuple{}
	for range 2 * tuple.MaxDepth {
		wide = append(wide, tuple.Tuple{tuple.Tuple{}})
	}
	unpacked, err = tuple.Unpack(wide.Pack())
	require.NoError(t, err)
	require.Equal(t, wide, unpacked)
}

// TestUnpackLarge unpacks a megabyte of the input with the most steps per byte. If the work were
// not linear, it would not end.
func TestUnpackLarge(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	many := tuple.Tuple{}
	for range size / 4 {
		many = append(many, "\x00")
	}
	for _, large := range []tuple.Tuple{
		{make([]byte, size)},
		{string(make([]byte, size))},
		{tuple.Tuple{tuple.Tuple{make([]byte, size)}, nil}},
		make(tuple.Tuple, size),
		{make(tuple.Tuple, size)},
		{many},
	} {
		unpacked, err := tuple.Unpack(large.Pack())
		require.NoError(t, err)
		require.True(t, identical(large, unpacked))
	}
}

func TestUnpackSharesNothing(t *testing.T) {
	t.Parallel()
	want := tuple.Tuple{[]byte("bytes"), "string", []byte("\x00")}
	encoded := want.Pack()
	unpacked, err := tuple.Unpack(encoded)
	require.NoError(t, err)
	clear(encoded)
	require.Equal(t, want, unpacked)
}

func TestUnpackLeavesInputAlone(t *testing.T) {
	t.Parallel()
	encoded := tuple.Tuple{int64(-0x0102030405), []byte("\x00"), "\x00"}.Pack()
	before := bytes.Clone(encoded)
	_, err := tuple.Unpack(encoded)
	require.NoError(t, err)
	require.Equal(t, before, encoded)
}

// TestStringsAreBytes checks that strings that are not UTF-8 are preserved.
func TestStringsAreBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\xff", "\x00\xff\x00", "a\xc3", strings.Repeat("\xed\xa0\x80", 2)} {
		unpacked, err := tuple.Unpack(tuple.Tuple{text}.Pack())
		require.NoError(t, err)
		require.Equal(t, tuple.Tuple{text}, unpacked)
	}
}
