package replicator

import (
	"encoding/hex"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bytes are those of Erlang/OTP 25's term_to_binary(Term, [{minor_version, 1}]).
func TestEncodeTerm(t *testing.T) {
	t.Parallel()
	power := func(n uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), n) }
	tests := []struct {
		term any
		want string
	}{
		{int64(0), "836100"},
		{int64(255), "8361ff"},
		{int64(256), "836200000100"},
		{int64(-1), "8362ffffffff"},
		{int64(math.MaxInt32), "83627fffffff"},
		{int64(math.MaxInt32 + 1), "836e040000000080"},
		{int64(math.MinInt32), "836280000000"},
		{int64(math.MinInt32 - 1), "836e040101000080"},
		{big.NewInt(5), "836105"},
		{power(64), "836e0900000000000000000001"},
		{new(big.Int).Neg(power(64)), "836e0901000000000000000001"},
		{power(2048), "836f0000010100" + strings.Repeat("00", 256) + "01"},
		{1.0, "83463ff0000000000000"},
		{math.Copysign(0, -1), "83468000000000000000"},
		{1000.0, "8346408f400000000000"},
		{nil, "836400046e756c6c"},
		{true, "8364000474727565"},
		{false, "8364000566616c7365"},
		{"", "836d00000000"},
		{"ü", "836d00000002c3bc"},
		{[]any{}, "836a"},
		{chars(""), "836a"},
		{chars("abc"), "836b0003616263"},
		{[]any{int64(1), int64(2), int64(255)}, "836b00030102ff"},
		{[]any{int64(1), int64(2), int64(256)}, "836c000000036101610262000001006a"},
		{[]any{1.0, int64(2)}, "836c00000002463ff000000000000061026a"},
		{object{}, "8368016a"},
		{object{{name: "a", value: []any{int64(1)}}}, "8368016c0000000168026d00000001616b0001016a"},
		{tuple{atom("remote"), atom("undefined"), chars("h"), int64(5984)}, "83680464000672656d6f7465640009756e646566696e65646b0001686200001760"},
		{[]any{"x"}, "836c000000016d00000001786a"},
	}
	for _, test := range tests {
		require.Equal(t, test.want, hex.EncodeToString(encodeTerm(test.term)), "%v", test.term)
	}
}

func TestEncodeTermOfLongText(t *testing.T) {
	t.Parallel()
	// A list of up to 65535 bytes has a form of its own.
	short := encodeTerm(chars(strings.Repeat("x", math.MaxUint16)))
	require.Equal(t, []byte{131, 107, 0xff, 0xff, 'x'}, short[:5])
	require.Len(t, short, 4+math.MaxUint16)

	long := encodeTerm(chars(strings.Repeat("x", math.MaxUint16+1)))
	require.Equal(t, []byte{131, 108, 0, 1, 0, 0, 97, 'x', 97, 'x'}, long[:10])
	require.Equal(t, byte(106), long[len(long)-1])
	require.Len(t, long, 6+2*(math.MaxUint16+1)+1)

	list := make([]any, math.MaxUint16+1)
	for i := range list {
		list[i] = int64('x')
	}
	require.Equal(t, long, encodeTerm(list))
}

func TestEncodeTermRefusesOtherTypes(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "replicator: no Erlang term for int", func() { encodeTerm(5) })
}
