package selector_test

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/collate"
	"golang.org/x/text/language"

	"settee/internal/seeds"
	"settee/pkg/selector"
)

// TestCollation checks each pair of texts in an ordered list. The texts in a row compare as
// equal.
func TestCollation(t *testing.T) {
	rows := [][]string{
		{`null`, ` null `},
		{`false`},
		{`true`},
		{`-1e1000000000000`},
		{`-1e400`},
		{`-100000000000000000001`},
		{`-100000000000000000000`, `-1e20`},
		{`-2`, `-2.0`, `-0.2e1`},
		{`-1.5`},
		{`-1e-400`},
		{`0`, `-0`, `0.0`, `0e99`, `-0.000`},
		{`1e-1000000000000`},
		{`1e-400`},
		{`0.1`, `1e-1`, `0.10`, `100e-3`},
		{`0.1000000000000000055`},
		{`1`, `1.0`, `10e-1`, `0.01E+2`},
		{`9007199254740992`},
		{`9007199254740993`, `9007199254740993.0`, `9.007199254740993e15`},
		{`999999999999999999`},
		{`1000000000000000000`, `1e18`},
		{`1e400`, `1` + strings.Repeat("0", 400)},
		{`1e1000000000000`},
		{`""`, `"\u0000"`, `"\u200b"`},
		{`" "`},
		{`"_"`}, {`"-"`}, {`","`}, {`";"`}, {`":"`}, {`"!"`}, {`"?"`}, {`"."`}, {`"'"`}, {`"\""`}, {`"("`}, {`")"`},
		{`"["`}, {`"]"`}, {`"{"`}, {`"}"`}, {`"@"`}, {`"*"`}, {`"\/"`, `"/"`}, {`"\\"`}, {`"&"`}, {`"#"`}, {`"%"`},
		{"\"`\""}, {`"^"`}, {`"+"`}, {`"<"`}, {`"="`}, {`">"`}, {`"|"`}, {`"~"`}, {`"$"`},
		{`"0"`}, {`"1"`}, {`"10"`}, {`"9"`},
		{`"a"`, `"\u0061"`, `"a\u200d"`, `"\u200ba"`},
		{`"A"`},
		{`"á"`, `"a\u0301"`},
		{`"aa"`},
		{`"Aa"`},
		{`"aB"`},
		{`"b"`},
		{`"B"`},
		{`"ba"`},
		{`"bb"`},
		{`"straße"`},
		{`"z"`},
		{`"ω"`},
		{`"я"`},
		{`"한"`, `"\u1112\u1161\u11ab"`},
		{`"ア"`},
		{`"中"`},
		{`"\ufff0"`},
		{`"\uffff"`},
		{`[]`},
		{`[null]`},
		{`[1]`, `[ 1.0 ]`},
		{`[1,null]`},
		{`["a"]`},
		{`["b"]`},
		{`["b","c"]`},
		{`["b","c","a"]`},
		{`["b","d"]`},
		{`[[]]`},
		{`[{}]`},
		{`{}`},
		{`{"a":1}`, `{"a":2,"a":1.0}`},
		{`{"a":2}`},
		{`{"A":1}`},
		{`{"b":1}`},
		{`{"b":2}`},
		{`{"b":2,"a":1}`, `{"a":0,"b":2,"a":1}`},
		{`{"b":2,"c":2}`},
	}
	for i, row := range rows {
		for j, other := range rows {
			for _, a := range row {
				for _, b := range other {
					assert.Equal(t, sign(i-j), selector.Compare([]byte(a), []byte(b)), "%s with %s", a, b)
				}
			}
		}
	}
}

// TestCompareDeep compares values of the greatest depth of JSON texts.
func TestCompareDeep(t *testing.T) {
	nest := func(core string) []byte {
		return []byte(strings.Repeat(`[{"a":`, 4999) + core + strings.Repeat(`}]`, 4999))
	}
	assert.Equal(t, -1, selector.Compare(nest(`1`), nest(`2`)))
	assert.Equal(t, 0, selector.Compare(nest(`2`), nest(`2.0`)))
}

// TestNumbersAgreeWithRationals compares random numbers with arithmetic.
func TestNumbersAgreeWithRationals(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range seeds.Rounds(t, 50_000) {
		a, b := randomNumber(r), randomNumber(r)
		x, ok := new(big.Rat).SetString(a)
		require.True(t, ok, a)
		y, ok := new(big.Rat).SetString(b)
		require.True(t, ok, b)
		require.Equal(t, x.Cmp(y), selector.Compare([]byte(a), []byte(b)), "%s with %s", a, b)
	}
}

func randomNumber(r *rand.Rand) string {
	digits := func(most int) string {
		b := []byte{}
		for range 1 + r.IntN(most) {
			b = append(b, "0012359"[r.IntN(7)])
		}
		return string(b)
	}
	n := strings.TrimLeft(digits(22), "0")
	if n == "" {
		n = "0"
	}
	if r.IntN(3) == 0 {
		n = "-" + n
	}
	if r.IntN(3) == 0 {
		n += "." + digits(5)
	}
	if r.IntN(3) == 0 {
		n += []string{"e", "E+", "e-", "E-0"}[r.IntN(4)] + digits(1)
	}
	return n
}

// TestStringsAgreeWithCollator compares random strings, many with a common prefix, with the plain
// collator, and checks that the order is total.
func TestStringsAgreeWithCollator(t *testing.T) {
	alphabet := []rune("aAbBeElL0 \x01\x7f\u0301\u0327\u200b\u00b7-_中😀ñéก\u0e40ข\ufff0")
	r := rand.New(rand.NewPCG(3, 4))
	random := func(most int) string {
		s := make([]rune, r.IntN(most))
		for i := range s {
			s[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(s)
	}
	compare := func(a, b string) int {
		x, err := json.Marshal(a)
		require.NoError(t, err)
		y, err := json.Marshal(b)
		require.NoError(t, err)
		return selector.Compare(x, y)
	}
	c := collate.New(language.Und)
	for range seeds.Rounds(t, 20_000) {
		prefix := random(5)
		x, y, z := prefix+random(5), prefix+random(5), prefix+random(5)
		xy := compare(x, y)
		require.Equal(t, sign(c.CompareString(x, y)), xy, "%+q with %+q", x, y)
		require.Equal(t, -xy, compare(y, x), "%+q with %+q", y, x)
		if xy <= 0 && compare(y, z) <= 0 {
			require.LessOrEqual(t, compare(x, z), 0, "%+q, %+q, %+q", x, y, z)
		}
	}
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	default:
		return 0
	}
}
