package tuple_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/tuple"
)

// malformed are bytes that encode no tuple.
var malformed = []struct {
	name    string
	encoded string
	message string // behind that of ErrMalformed
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
	{"large integer without length", "1d", "byte 0: element cut short, type code 0x1d"},
	{"large integer", "1d 09 0102030405060708", "byte 0: element cut short, type code 0x1d"},
	{"large negative integer", "0b f6 0102030405060708", "byte 0: element cut short, type code 0x0b"},
	{"large negative integer without length", "00 0b", "byte 1: element cut short, type code 0x0b"},
	{"single", "20 800000", "byte 0: element cut short, type code 0x20"},
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

// TestUnpackCodes goes through all type codes: whatever the specification does
// not call standard is refused, however many bytes follow.
func TestUnpackCodes(t *testing.T) {
	t.Parallel()
	standard := map[int]bool{0x00: true, 0x01: true, 0x02: true, 0x05: true}
	for code := 0x0b; code <= 0x1d; code++ {
		standard[code] = true
	}
	for _, code := range []int{0x20, 0x21, 0x26, 0x27, 0x30, 0x33} {
		standard[code] = true
	}
	for code := range 256 {
		_, err := tuple.Unpack(append([]byte{byte(code)}, make([]byte, 512)...))
		if standard[code] {
			require.NoError(t, err, "code 0x%02x", code)
		} else {
			require.ErrorIs(t, err, tuple.ErrMalformed, "code 0x%02x", code)
		}
	}
}

// TestUnpackCut cuts the vectors short at every byte: what is left is either no
// tuple at all or the encoding of another one.
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

// TestUnpackLongIntegers: integers in more bytes than they need.
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
		{"1d 00", int64(0)},
		{"0b ff", int64(0)},
		{"1d 01 05", int64(5)},
		{"0b fe fa", int64(-5)},
		{"1d 08 ffffffffffffffff", uint64(math.MaxUint64)}, // as the Python binding packs it
		{"0b f7 0000000000000000", integer("-ffffffffffffffff")},
		{"0b f7 7fffffffffffffff", int64(math.MinInt64)},
		{"1d 09 000000000000000001", int64(1)},
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

// TestUnpackLarge: a megabyte of what takes the most steps per byte. Were the
// work to grow faster than the input, this would not end.
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
	want := tuple.Tuple{[]byte("bytes"), "string", []byte("\x00"), integer("0102030405060708090a")}
	encoded := want.Pack()
	unpacked, err := tuple.Unpack(encoded)
	require.NoError(t, err)
	clear(encoded)
	require.Equal(t, want, unpacked)
}

func TestUnpackLeavesInputAlone(t *testing.T) {
	t.Parallel()
	encoded := tuple.Tuple{integer("-0102030405060708090a"), "\x00"}.Pack()
	before := bytes.Clone(encoded)
	_, err := tuple.Unpack(encoded)
	require.NoError(t, err)
	require.Equal(t, before, encoded)
}

// TestStringsAreBytes: text that is not UTF-8 comes back as it went in.
func TestStringsAreBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\xff", "\x00\xff\x00", "a\xc3", strings.Repeat("\xed\xa0\x80", 2)} {
		unpacked, err := tuple.Unpack(tuple.Tuple{text}.Pack())
		require.NoError(t, err)
		require.Equal(t, tuple.Tuple{text}, unpacked)
	}
}
