package erlterm_test

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/erlterm"
	"settee/pkg/jsontext"
)

// The bytes come from Erlang/OTP 25's term_to_binary(Term, [{minor_version, 1}]).
func TestTerms(t *testing.T) {
	t.Parallel()
	power := func(n uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), n) }
	for _, test := range []struct {
		got  []byte
		want string
	}{
		{erlterm.AppendInteger(nil, 0), "6100"},
		{erlterm.AppendInteger(nil, 255), "61ff"},
		{erlterm.AppendInteger(nil, 256), "6200000100"},
		{erlterm.AppendInteger(nil, -1), "62ffffffff"},
		{erlterm.AppendInteger(nil, math.MaxInt32), "627fffffff"},
		{erlterm.AppendInteger(nil, math.MaxInt32+1), "6e040000000080"},
		{erlterm.AppendInteger(nil, math.MinInt32), "6280000000"},
		{erlterm.AppendInteger(nil, math.MinInt32-1), "6e040101000080"},
		{erlterm.AppendBig(nil, big.NewInt(5)), "6105"},
		{erlterm.AppendBig(nil, power(64)), "6e0900000000000000000001"},
		{erlterm.AppendBig(nil, new(big.Int).Neg(power(64))), "6e0901000000000000000001"},
		{erlterm.AppendBig(nil, power(2048)), "6f0000010100" + strings.Repeat("00", 256) + "01"},
		{erlterm.AppendFloat(nil, math.Copysign(0, -1)), "468000000000000000"},
		{erlterm.AppendFloat(nil, 1000), "46408f400000000000"},
		{erlterm.AppendAtom(nil, "null"), "6400046e756c6c"},
		{erlterm.AppendBool(nil, true), "64000474727565"},
		{erlterm.AppendBool(nil, false), "64000566616c7365"},
		{erlterm.AppendBinary(nil, "ü"), "6d00000002c3bc"},
		{erlterm.AppendBinary(nil, []byte{}), "6d00000000"},
		{erlterm.AppendChars(nil, ""), "6a"},
		{erlterm.AppendChars(nil, "abc"), "6b0003616263"},
		{erlterm.AppendTuple(nil, 2), "6802"},
		{erlterm.AppendList(nil, 3), "6c00000003"},
		{erlterm.AppendNil(nil), "6a"},
	} {
		require.Equal(t, test.want, hex.EncodeToString(test.got))
	}
	long := erlterm.AppendChars(nil, strings.Repeat("x", math.MaxUint16+1))
	require.Equal(t, "6c00010000"+strings.Repeat("6178", math.MaxUint16+1)+"6a", hex.EncodeToString(long))
}

func TestAppendJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: "68016a", `{"a":{}}`: "68016c0000000168026d000000016168016a6a",
		`[]`: "6a", `[[]]`: "6c000000016a6a", `[1,2,255]`: "6b00030102ff", `[1,256]`: "6c000000026101620000" + "01006a",
		`["a" , null , true ,false ]`: "6c000000046d00000001616400046e756c6c640004747275656400056" + "6616c73656a",
		`"\u00fc\n\/\ud83d\ude00"`:    "6d00000008c3bc0a2ff09f9880", `""`: "6d00000000",
		`-0`: "6100", `-0.0`: "468000000000000000", `1e3`: "46408f400000000000",
		`1e400`: "467ff0000000000000", `-1.5e999`: "46fff0000000000000", `1e99999999999999999999`: "467ff0000000000000",
		`0e` + strings.Repeat("9", 40): "460000000000000000", strings.Repeat("9", 2000) + "e-1990": "464202a05f20000000",
		"-" + strings.Repeat("9", 2000) + ".5E-1990": "46c202a05f20000000", strings.Repeat("9", 2000) + "e-" + strings.Repeat("9", 40): "460000000000000000",
		strings.Repeat("9", 1001): "6d000003e9" + strings.Repeat("39", 1001),
		// The last member of each name counts, in its place.
		`{"a":1,"b":2,"a":3}`:                  "68016c0000000268026d0000000162610268026d000000016161036a",
		`{"b":{"a":1,"\u0061":2},"b":{"x":0}}`: "68016c0000000168026d000000016268016c0000000168026d000000017861006a6a",
	} {
		require.NoError(t, jsontext.Check([]byte(text), jsontext.PairedSurrogates), text)
		require.Equal(t, want, hex.EncodeToString(erlterm.AppendJSON(nil, []byte(text))), "%.100s", text)
		require.Equal(t, "ff"+want, hex.EncodeToString(erlterm.AppendJSON([]byte{0xff}, []byte(text))), "%.100s", text)
	}
	numbers := "[" + strings.Repeat("7,", math.MaxUint16)
	require.Equal(t, "6bffff0707", hex.EncodeToString(erlterm.AppendJSON(nil, []byte(numbers[:len(numbers)-1]+"]")))[:10])
	require.Equal(t, "6c0001000061076107", hex.EncodeToString(erlterm.AppendJSON(nil, []byte(numbers+"7]")))[:18])
}

// Members that are replaced at each level must not be moved once for each level.
func TestAppendJSONRepeatedNames(t *testing.T) {
	t.Parallel()
	const levels = 4000
	inner := strings.Repeat("x", 1<<20)
	var text strings.Builder
	want := []byte{}
	for range levels {
		text.WriteString(`{"a":1,"a":`)
		want = erlterm.AppendBinary(erlterm.AppendTuple(erlterm.AppendList(erlterm.AppendTuple(want, 1), 1), 2), "a")
	}
	text.WriteString(`"` + inner + `"` + strings.Repeat("}", levels))
	want = erlterm.AppendBinary(want, inner)
	for range levels {
		want = erlterm.AppendNil(want)
	}
	require.Equal(t, want, erlterm.AppendJSON(nil, []byte(text.String())))
}

func FuzzAppendJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, `[1,2,3]`, `{"a":[1,{"b":"\u00e9\n"}],"a":null}`, `[-0,1e5,1.25,123456789012345678901234567890,5e-324,1e-400]`,
		`{"a":{"x":1,"x":{"y":1,"y":2}},"b":2,"a":{"x":3,"x":4}}`, `{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"1":10,"5":11}`,
		`["\ud83d\ude00",[[]],[{}],true,false]`, `1e00000000000000000000000000000000000023`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !jsontext.Valid([]byte(text)) {
			return
		}
		got := erlterm.AppendJSON(nil, []byte(text))
		require.Equal(t, plainly(nil, []byte(strings.Trim(text, " \t\r\n"))), got)
		require.LessOrEqual(t, len(got), 4*len(text)+20)
	})
}

// plainly is AppendJSON in a plain way: it reads what is deep many times.
func plainly(b, text []byte) []byte {
	switch text[0] {
	case '{':
		last, names := map[string][]byte{}, []string{}
		for m := range jsontext.Members(text) {
			name := string(m.Key)
			if last[name] != nil {
				for i := range names {
					if names[i] == name {
						names = append(names[:i], names[i+1:]...)
						break
					}
				}
			}
			names, last[name] = append(names, name), text[m.Value:m.End]
		}
		if b = erlterm.AppendTuple(b, 1); len(names) > 0 {
			b = erlterm.AppendList(b, len(names))
		}
		for _, name := range names {
			b = plainly(erlterm.AppendBinary(erlterm.AppendTuple(b, 2), name), last[name])
		}
		return erlterm.AppendNil(b)
	case '[':
		var elements, chars []byte
		count := 0
		for _, element := range jsontext.Elements(text) {
			term := plainly(nil, element)
			if count++; len(term) == 2 && term[0] == 97 {
				chars = append(chars, term[1])
			}
			elements = append(elements, term...)
		}
		if len(chars) == count {
			return erlterm.AppendChars(b, chars)
		}
		return erlterm.AppendNil(append(erlterm.AppendList(b, count), elements...))
	case '"':
		s, _ := jsontext.String(text)
		return erlterm.AppendBinary(b, s)
	}
	return erlterm.AppendJSON(b, text)
}

// BenchmarkAppendJSON compares it with the check of a text.
func BenchmarkAppendJSON(b *testing.B) {
	for _, members := range []int{8, 50, 1000, 100_000} {
		var object strings.Builder
		for i := range members {
			fmt.Fprintf(&object, `%c"member %d":%s`, "{,"[min(i, 1)], i, []string{`"some text of it"`, "12345", "1.25", `[1,2,3]`}[i%4])
		}
		text := []byte(object.String() + "}")
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var term []byte
			var appending, checking time.Duration
			for b.Loop() {
				begun := time.Now()
				term = erlterm.AppendJSON(term[:0], text)
				appended := time.Now()
				require.NoError(b, jsontext.Check(text, jsontext.PairedSurrogates))
				appending, checking = appending+appended.Sub(begun), checking+time.Since(appended)
			}
			b.ReportMetric(float64(appending)/float64(checking), "checks")
		})
	}
}
