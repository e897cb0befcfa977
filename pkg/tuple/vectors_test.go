package tuple_test

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"settee/pkg/tuple"
)

// vectors are tuples and their encodings. Every binding packs them alike, and every element has
// the type that Unpack returns.
//
// Those with source "example" are printed in design/tuple.md of FoundationDB 7.3. For the others,
// source is the rule in that document from which the bytes were worked out by hand.
var vectors = []struct {
	name    string
	source  string
	tuple   tuple.Tuple
	encoded string // hexadecimal, spaces are ignored
}{
	{
		"byte string", "example", tuple.Tuple{[]byte("foo\x00bar")},
		"01 666f6f 00ff 626172 00",
	},
	{
		"unicode string", "example", tuple.Tuple{"F\u00d4O\x00bar"},
		"02 46 c394 4f 00ff 626172 00",
	},
	{
		"nested tuple", "example", tuple.Tuple{tuple.Tuple{[]byte("foo\x00bar"), nil, tuple.Tuple{}}},
		"05 01666f6f00ff62617200 00ff 0500 00",
	},
	{
		"nested empty tuple", "example", tuple.Tuple{tuple.Tuple{}},
		"05 00",
	},
	{
		"nested null", "example", tuple.Tuple{tuple.Tuple{nil}},
		"05 00ff 00",
	},
	{
		"minus one", "example", tuple.Tuple{int64(-1)},
		"13 fe",
	},
	{
		"negative integer", "example", tuple.Tuple{int64(-5551212)},
		"11 ab4b93",
	},

	{"empty tuple", "the elements, one after another", tuple.Tuple{}, ""},
	{"null", "typecode 0x00, 0 bytes", tuple.Tuple{nil}, "00"},
	{"nulls", "typecode 0x00, 0 bytes", tuple.Tuple{nil, nil}, "00 00"},
	{"empty byte string", "0x01, value, 0x00", tuple.Tuple{[]byte{}}, "01 00"},
	{"empty string", "0x02, value, 0x00", tuple.Tuple{""}, "02 00"},
	{"zero bytes", "0x00 becomes 0x00 0xff", tuple.Tuple{"\x00\x00"}, "02 00ff 00ff 00"},
	{
		"0xff behind a zero byte", "0x00 becomes 0x00 0xff",
		tuple.Tuple{[]byte{0x00, 0xff}}, "01 00ff ff 00",
	},
	{
		"zero bytes in a nested string", "0x00 bytes within the nested types can be left as-is",
		tuple.Tuple{tuple.Tuple{"\x00", ""}, ""}, "05 0200ff00 0200 00 0200",
	},
	{
		"deeper nulls", "nulls within the tuple are encoded as 0x00 0xff",
		tuple.Tuple{nil, tuple.Tuple{nil, tuple.Tuple{nil}}, nil}, "00 05 00ff 05 00ff 00 00 00",
	},

	{"zero", "0x14 is a zero", tuple.Tuple{int64(0)}, "14"},
	{"one", "0x15 is a 1 byte positive number", tuple.Tuple{int64(1)}, "15 01"},
	{"greatest of one byte", "positive numbers are big endian", tuple.Tuple{int64(0xff)}, "15 ff"},
	{"least of two bytes", "positive numbers are big endian", tuple.Tuple{int64(0x100)}, "16 0100"},
	{"three bytes", "positive numbers are big endian", tuple.Tuple{int64(0x54b46c)}, "17 54b46c"},
	{"four bytes", "positive numbers are big endian", tuple.Tuple{int64(0x01020304)}, "18 01020304"},
	{"five bytes", "positive numbers are big endian", tuple.Tuple{int64(0x0102030405)}, "19 0102030405"},
	{"six bytes", "positive numbers are big endian", tuple.Tuple{int64(0x010203040506)}, "1a 010203040506"},
	{"seven bytes", "positive numbers are big endian", tuple.Tuple{int64(0x01020304050607)}, "1b 01020304050607"},
	{
		"greatest int64", "0x1c is an 8 byte positive number",
		tuple.Tuple{int64(math.MaxInt64)}, "1c 7fffffffffffffff",
	},
	{
		"greatest int64 and one", "0x1c is an 8 byte positive number",
		tuple.Tuple{uint64(1 << 63)}, "1c 8000000000000000",
	},
	{
		"greatest uint64", "0x1c is an 8 byte positive number",
		tuple.Tuple{uint64(math.MaxUint64)}, "1c ffffffffffffffff",
	},
	{
		"minus greatest of one byte", "negative numbers are big endian one's complement",
		tuple.Tuple{int64(-0xff)}, "13 00",
	},
	{
		"minus least of two bytes", "negative numbers are big endian one's complement",
		tuple.Tuple{int64(-0x100)}, "12 feff",
	},
	{
		"minus seven bytes", "negative numbers are big endian one's complement",
		tuple.Tuple{int64(-0x01020304050607)}, "0d fefdfcfbfaf9f8",
	},
	{
		"least int64", "0x0c is an 8 byte negative number",
		tuple.Tuple{int64(math.MinInt64)}, "0c 7fffffffffffffff",
	},

	{"double zero", "flip just the sign bit", tuple.Tuple{float64(0)}, "21 8000000000000000"},
	{"double minus zero", "flip all bits", tuple.Tuple{math.Copysign(0, -1)}, "21 7fffffffffffffff"},
	{"double", "flip just the sign bit", tuple.Tuple{float64(42)}, "21 c045000000000000"},
	{"double, negative", "flip all bits", tuple.Tuple{float64(-42)}, "21 3fbaffffffffffff"},
	{"double +Inf", "flip just the sign bit", tuple.Tuple{math.Inf(1)}, "21 fff0000000000000"},
	{"double -Inf", "flip all bits", tuple.Tuple{math.Inf(-1)}, "21 000fffffffffffff"},
	{
		"double NaN, negative", "not canonicalized",
		tuple.Tuple{math.Float64frombits(0xfff8000000000001)}, "21 0007fffffffffffe",
	},

	{"false", "typecode 0x26, 0 bytes", tuple.Tuple{false}, "26"},
	{"true", "typecode 0x27, 0 bytes", tuple.Tuple{true}, "27"},
	{
		"UUID", "network byte order", // the DNS name space of RFC 4122, appendix C
		tuple.Tuple{uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8")},
		"30 6ba7b8109dad11d180b400c04fd430c8",
	},
	{
		"versionstamp", "8 bytes of version, 2 of batch, 2 within the transaction",
		tuple.Tuple{tuple.Versionstamp{
			TransactionVersion: [10]byte{0, 1, 2, 3, 4, 5, 6, 7, 0, 9},
			UserVersion:        0x0102,
		}},
		"33 0001020304050607 0009 0102",
	},
	{
		"a job's key", "the elements, one after another",
		tuple.Tuple{"ready", "replication", "a/_replicator", int64(1_700_000_000), []byte{0x00, 0x01}},
		"02 7265616479 00  02 7265706c69636174696f6e 00  02 612f5f7265706c696361746f72 00" +
			"18 6553f100  01 00ff 01 00",
	},
}

// stampVectors are tuples with one incomplete versionstamp, packed after the prefix 0xaa 0xbb.
// FoundationDB's API reference documents the offset with SET_VERSIONSTAMPED_KEY: the last four
// bytes, little-endian.
var stampVectors = []struct {
	name    string
	tuple   tuple.Tuple
	encoded string
}{
	{
		"alone", tuple.Tuple{tuple.IncompleteVersionstamp(0)},
		"aabb 33 ffffffffffffffffffff 0000  03000000",
	},
	{
		"between others", tuple.Tuple{"active", tuple.IncompleteVersionstamp(0x0102), "id"},
		"aabb 0261637469766500 33 ffffffffffffffffffff 0102 02696400  0b000000",
	},
	{
		"nested", tuple.Tuple{tuple.Tuple{nil, tuple.IncompleteVersionstamp(7)}, int64(1)},
		"aabb 05 00ff 33 ffffffffffffffffffff 0007 00 1501  06000000",
	},
	{
		"beside a complete one",
		tuple.Tuple{tuple.Versionstamp{UserVersion: 0xffff}, tuple.IncompleteVersionstamp(0xffff)},
		"aabb 33 00000000000000000000 ffff 33 ffffffffffffffffffff ffff  10000000",
	},
	{
		"at an offset of two bytes", tuple.Tuple{strings.Repeat("x", 0x0200), tuple.IncompleteVersionstamp(0)},
		"aabb 02" + strings.Repeat("78", 0x0200) + "00 33 ffffffffffffffffffff 0000  05020000",
	},
}

// unhex returns the bytes of hexadecimal digits, spaces ignored.
func unhex(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	require.NoError(t, err)
	return b
}
