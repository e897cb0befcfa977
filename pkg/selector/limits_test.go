package selector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/costtest"
	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/selector"
)

func repeat(n int, item func(i int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return strings.Join(items, ",")
}

func same(s string) func(int) string { return func(int) string { return s } }

// TestLimits checks that a limit can be reached and not exceeded.
func TestLimits(t *testing.T) {
	padded := func(size int) string {
		const frame = `{"a":""}`
		return `{"a":"` + strings.Repeat("x", size-len(frame)) + `"}`
	}
	or := func(n int) string { return `{"$or":[` + repeat(n, same(`1`)) + `]}` }
	fields := func(n int) string {
		return "{" + repeat(n, func(i int) string { return fmt.Sprintf(`"f%d":1`, i) }) + "}"
	}
	nested := func(below int) string {
		return `{"` + strings.Repeat("n", 1000) + `":{"$or":[` + repeat(below, same(`{"a":1}`)) + `]}}`
	}
	// .{n} counts as 2n + 1 instructions, and its program as 2 more.
	repeats := func(n, last int) string {
		return `{"$and":[` + repeat(n, same(`{"a":{"$regex":".{1000}"}}`)) + fmt.Sprintf(`,{"a":{"$regex":".{%d}"}}]}`, last)
	}
	long := func(n int) string { return `{"a":{"$regex":"` + strings.Repeat("x", n) + `"}}` }
	digits := func(n int) string { return strings.Repeat("9", n) }

	for what, test := range map[string]struct{ taken, refused, reason string }{
		"bytes":        {padded(selector.MaxBytes), padded(selector.MaxBytes + 1), "Selector has more than 1048576 bytes."},
		"elements":     {or(selector.MaxNodes - 1), or(selector.MaxNodes), "Selector has more than 50000 fields and operators."},
		"fields":       {fields(selector.MaxNodes), fields(selector.MaxNodes + 1), "Selector has more than 50000 fields and operators."},
		"names":        {nested(1000), nested(1100), "The field names of the selector have more than 1048576 bytes, each with those above it."},
		"instructions": {repeats(24, 900), repeats(24, 1000), "The $regex expressions of the selector have more than 50000 instructions together."},
		"expressions":  {long(selector.MaxInstructions - 2), long(selector.MaxInstructions + 1), "The $regex expressions of the selector have more than 50000 bytes together."},
		"classes": {`{"a":{"$regex":"` + strings.Repeat(`\\pL`, 49) + `"}}`, `{"a":{"$regex":"` + strings.Repeat(`\\pL`, 50) + `"}}`,
			"The $regex expressions of the selector have more than 50000 bytes together."},
		"lookahead": {`{"a":{"$regex":"^(?!x{1000})x{1000}"}}`, `{"$and":[` + repeat(13, same(`{"a":{"$regex":"^(?!x{1000})x{1000}"}}`)) + `]}`,
			"The $regex expressions of the selector have more than 50000 instructions together."},
		"digits": {`{"a":{"$mod":[-` + digits(1000) + `,1]}}`, `{"a":{"$mod":[1,` + digits(1001) + `]}}`,
			"Bad argument for operator $mod: [1," + digits(197) + "... (an integer of more than 1000 digits)"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := selector.Parse([]byte(test.taken))
			require.NoError(t, err)
			_, err = selector.Parse([]byte(test.refused))
			var e *selector.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, test.reason, e.Reason)
		})
	}
}

// TestHostileExpressions checks that a selector with too many instructions is refused before it
// is compiled, which would take a gigabyte.
func TestHostileExpressions(t *testing.T) {
	for _, expr := range []string{".{1000}", "(?:a{30}){30}", "(?:x?){1000}", "(?:(?:ab){31}){31}", "(?i)(?:straße){1000}"} {
		text := []byte(`{"$or":[` + repeat(10_000, same(`{"a":{"$regex":"`+expr+`"}}`)) + `]}`)
		costtest.Memory(60).Check(t, len(text), func() {
			_, err := selector.Parse(text)
			require.ErrorContains(t, err, "instructions together", expr)
		})
	}
}

// randomExpression nests repetitions.
func randomExpression(r *rand.Rand, depth int) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	if depth == 0 {
		return pick("a", "b", ".", "[ab]", "[^a]", `\w`, `\b`, "^", "$", "", "é", "(?i)k", `\s`, "ab", "[[:alpha:]]")
	}
	below := func() string { return randomExpression(r, depth-1) }
	switch r.IntN(7) {
	case 0:
		return below() + below()
	case 1:
		return "(?:" + below() + "|" + below() + "|" + below() + ")"
	case 2:
		return "(" + below() + ")" + pick("*", "+", "?", "*?", "+?", "??")
	case 3:
		return fmt.Sprintf("(?:%s){%d}", below(), r.IntN(12))
	case 4:
		return fmt.Sprintf("(?:%s){%d,}", below(), r.IntN(6))
	case 5:
		least := r.IntN(6)
		return fmt.Sprintf("(%s){%d,%d}", below(), least, least+r.IntN(6))
	default:
		return "^(?!" + below() + ")" + below()
	}
}

// TestInstructionsAreCounted compares the count of expressions with their programs.
func TestInstructionsAreCounted(t *testing.T) {
	testkit.SkipRace(t)
	r := rand.New(rand.NewPCG(7, 8))
	counted, compiled, tested := 0, 0, 0
	for range 20_000 {
		expr := randomExpression(r, r.IntN(5))
		c, program, err := selector.Instructions(expr)
		if err != nil {
			continue // lookahead within
		}
		require.GreaterOrEqual(t, c, program, expr)
		tested, counted, compiled = tested+1, counted+c, compiled+program
	}
	require.Greater(t, tested, 10_000)
	require.Less(t, counted, 2*compiled, "the count is far too high")
}

// TestLongValues compares matching byte by byte with package regexp.
func TestLongValues(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	matched, tested := 0, 0
	rounds := seeds.Rounds(t, 600)
	for range rounds {
		expr := randomExpression(r, 3)
		plain, err := regexp.Compile(expr)
		if err != nil || strings.Contains(expr, "$") || strings.Contains(expr, "é") || strings.Contains(expr, "k") {
			continue // as package regexp understands them
		}
		value := strings.Repeat("ab c\n", r.IntN(10_000)) + randomWord(r)
		s, err := selector.Parse([]byte(fmt.Sprintf(`{"a":{"$regex":%s}}`, quoted(t, expr))))
		require.NoError(t, err)
		got, err := s.Match(t.Context(), []byte(`{"a":`+quoted(t, value)+`}`))
		if errors.Is(err, selector.ErrTooMuchWork) {
			continue
		}
		require.NoError(t, err)
		tested++
		require.Equal(t, plain.MatchString(value), got, "%q", expr)
		if got {
			matched++
		}
	}
	if rounds >= 100 { // of fewer rounds it says little
		require.Greater(t, tested, rounds/4)
		require.Greater(t, matched, tested/20)
		require.Less(t, matched, tested*19/20)
	}

	long := strings.Repeat("é", 50_000)
	require.True(t, match(t, `{"a":{"$regex":"^[^x]{0,900}"}}`, `{"a":"`+long+`"}`))
	require.True(t, match(t, `{"a":{"$regex":"\u00e9{0,3}z$"}}`, `{"a":"`+long+`z\n"}`))
	require.False(t, match(t, `{"a":{"$regex":"\u00e9{0,3}z$"}}`, `{"a":"`+long+`z\nz\nx"}`))
}

func randomWord(r *rand.Rand) string {
	return [...]string{"", "a", "bb", "aaa", "\n", " a"}[r.IntN(6)]
}

func quoted(t *testing.T, s string) string {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	return string(text)
}

// hostile returns a document and a selector that takes at least n steps on it, for each kind of
// work.
func hostile(n int) map[string][2]string {
	text := strings.Repeat("ab", n/2)
	root := 1
	for root*root < n {
		root++
	}
	numbers := repeat(root, func(i int) string { return fmt.Sprint(i) })
	words := repeat(root, func(i int) string { return fmt.Sprintf(`"w%d"`, i) })
	return map[string][2]string{
		"expressions": {`{"a":"` + strings.Repeat("ab", root) + `"}`, fmt.Sprintf(`{"a":{"$regex":"[ab]{%d}x"}}`, min(root, 900))},
		"text":        {`{"a":"` + text + `"}`, `{"a":{"$regex":"[ab]{900}x"}}`},
		"fields":      {"{" + repeat(root, func(i int) string { return fmt.Sprintf(`"f%d":1`, i) }) + "}", `{"$or":[` + repeat(root, same(`{"x":1}`)) + `]}`},
		"elements":    {`{"a":[` + numbers + `]}`, `{"a":{"$elemMatch":{"$or":[` + repeat(root, same(`{"$eq":-1}`)) + `]}}}`},
		"positions":   {`{"a":[` + numbers + `]}`, `{"$or":[` + repeat(root, func(int) string { return fmt.Sprintf(`{"a.%d":-1}`, root-1) }) + `]}`},
		"$all":        {`{"a":[` + numbers + `]}`, `{"a":{"$all":[` + numbers + `]}}`},
		"strings":     {`{"a":[` + words + `]}`, `{"a":{"$elemMatch":{"$or":[` + repeat(root, same(`{"$eq":"v"}`)) + `]}}}`},
		"objects": {`{"a":{` + repeat(root, func(i int) string { return fmt.Sprintf(`"f%d":1`, i) }) + `}}`,
			`{"$or":[` + repeat(root, same(`{"a":{"$gt":{"f0":1,"f1":2}}}`)) + `]}`},
		"remainders": {`{"a":1` + strings.Repeat("0", n) + `}`, `{"a":{"$mod":[3,2]}}`},
	}
}

// TestWorkIsCounted checks each kind of work: a match with much of it ends with an error, one
// with little does not.
func TestWorkIsCounted(t *testing.T) {
	testkit.SkipRace(t)
	for what, little := range hostile(10_000) {
		s, err := selector.Parse([]byte(little[1]))
		require.NoError(t, err, what)
		_, err = s.Match(t.Context(), []byte(little[0]))
		require.NoError(t, err, what)
		steps, err := s.Steps([]byte(little[0]))
		require.NoError(t, err, what)
		assert.Greater(t, steps, int64(1000), what)
	}
	for what, much := range hostile(200_000) {
		s, err := selector.Parse([]byte(much[1]))
		require.NoError(t, err, what)
		matched, err := s.MatchWithin(t.Context(), 50_000, []byte(much[0]))
		require.ErrorIs(t, err, selector.ErrTooMuchWork, what)
		require.False(t, matched, what)
		require.ErrorContains(t, err, "the selector takes more than 25000000 steps", what)
	}
}

// TestConditionsShareTheBudget checks that all conditions of a selector share the steps.
func TestConditionsShareTheBudget(t *testing.T) {
	testkit.SkipRace(t)
	doc := []byte(`{"a":"` + strings.Repeat("ab", 10_000) + `"}`)
	parse := func(n int) *selector.Selector {
		s, err := selector.Parse([]byte(`{"$or":[` + repeat(n, same(`{"a":{"$regex":"[ab]{400}x"}}`)) + `]}`))
		require.NoError(t, err)
		return s
	}
	_, err := parse(1).Match(t.Context(), doc)
	require.NoError(t, err)
	_, err = parse(20).Match(t.Context(), doc)
	require.ErrorIs(t, err, selector.ErrTooMuchWork)
}

// TestExpressionsThatEndEarly checks that an expression spends only what it reads.
func TestExpressionsThatEndEarly(t *testing.T) {
	long := strings.Repeat("x", 1_000_000)
	assert.False(t, match(t, `{"a":{"$regex":"^a.{900}b"}}`, `{"a":"`+long+`"}`))
	assert.True(t, match(t, `{"a":{"$regex":"x{900}"}}`, `{"a":"`+long+`"}`))
}

// endsLater is a context that ends after it has been checked some times.
type endsLater struct {
	context.Context
	looks *int
}

func (c endsLater) Err() error {
	if *c.looks--; *c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestMatchEndsWithItsContext checks that a match ends soon after its context, also in the middle
// of an expression.
func TestMatchEndsWithItsContext(t *testing.T) {
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("the client is gone: %w", context.Canceled))
	for what, test := range hostile(1_500_000) {
		if what == "remainders" {
			continue // takes far fewer steps
		}
		s, err := selector.Parse([]byte(test[1]))
		require.NoError(t, err, what)
		_, err = s.Match(gone, []byte(test[0]))
		require.ErrorContains(t, err, "the client is gone", what)

		looks := 3
		_, err = s.Match(endsLater{t.Context(), &looks}, []byte(test[0]))
		require.ErrorIs(t, err, context.Canceled, what)
		require.Equal(t, -1, looks, "%s: it went on", what)
	}
}

// nastyValue makes values that often compare as equal without being identical.
func nastyValue(r *rand.Rand, depth int) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	list := func(item func() string) string { return repeat(r.IntN(3), func(int) string { return item() }) }
	word := func() string {
		var b strings.Builder
		for range r.IntN(4) {
			b.WriteString(pick("a", "A", "e\u0301", "é", "\u200b", `\u0000`, "\u0301", "\u0323", "한", "\u1112\u1161\u11ab", "ß", "ss", "æ",
				"\u0e40\u0e01", "\u0fb2\u0f71", "\u0f80", "l", "·", "\u2126", "Ω", "ﬁ", "fi", "\u034f", "\uffff", "😀", " ", "-"))
		}
		return `"` + b.String() + `"`
	}
	switch n := r.IntN(10); {
	case n < 2 && depth > 0:
		return "[" + list(func() string { return nastyValue(r, depth-1) }) + "]"
	case n < 4 && depth > 0:
		return "{" + list(func() string { return word() + ":" + nastyValue(r, depth-1) }) + "}"
	case n < 6:
		return pick("1", "1.0", "10e-1", "0", "-0", "0.0e5", "-1", "1e400", "1e401", "10e400", "1e9999999999999999999", "9007199254740993", "9007199254740992")
	case n < 7:
		return pick("null", "true", "false", "[]", "{}")
	default:
		return word()
	}
}

// TestMembershipAgreesWithComparison compares $in with the $or of $eq.
func TestMembershipAgreesWithComparison(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	found := 0
	rounds := seeds.Rounds(t, 20_000)
	for range rounds {
		v := nastyValue(r, 2)
		args := make([]string, r.IntN(6))
		equals := []string{`{"$elemMatch":{"x":1}}`} // an empty $or would match
		for i := range args {
			args[i] = nastyValue(r, 2)
			if !strings.HasPrefix(v, "[") {
				equals = append(equals, `{"$eq":`+args[i]+`}`)
			} else {
				equals = append(equals, `{"$elemMatch":{"$eq":`+args[i]+`}}`)
			}
		}
		for _, name := range []string{"a", "_id"} {
			doc := fmt.Sprintf(`{%q:%s}`, name, v)
			in := match(t, fmt.Sprintf(`{%q:{"$in":[%s]}}`, name, strings.Join(args, ",")), doc)
			require.Equal(t, match(t, fmt.Sprintf(`{%q:{"$or":[%s]}}`, name, strings.Join(equals, ",")), doc), in, "%s in %s", v, args)
			require.Equal(t, !in, match(t, fmt.Sprintf(`{%q:{"$nin":[%s]}}`, name, strings.Join(args, ",")), doc), "%s in %s", v, args)
			if in {
				found++
			}
		}
	}
	require.Greater(t, found, rounds/20)
}

// TestLongLists checks that the cost of $in does not grow with the product of two lists. For
// 20,000 and 5,000 values that would be a hundred million.
func TestLongLists(t *testing.T) {
	testkit.SkipRace(t)
	for _, item := range []string{"%d", `"v%d"`, "[%d]", `{"a":%d}`, "1e%d"} {
		list := func(n, from int) string {
			return repeat(n, func(i int) string { return fmt.Sprintf(item, i+from) })
		}
		for _, name := range []string{"a", "_id"} {
			s, err := selector.Parse([]byte(fmt.Sprintf(`{%q:{"$in":[%s]}}`, name, list(20_000, 0))))
			require.NoError(t, err)
			doc := []byte(fmt.Sprintf(`{%q:[%s]}`, name, list(5000, 20_000)))
			matched, err := s.Match(t.Context(), doc)
			require.NoError(t, err, item)
			require.False(t, matched, item)
			steps, err := s.Steps(doc)
			require.NoError(t, err)
			require.Less(t, steps, int64(5000*50), item)
			require.True(t, match(t, fmt.Sprintf(`{%q:{"$in":[%s]}}`, name, list(20_000, 0)), fmt.Sprintf(`{%q:[%s]}`, name, list(3, 19_999))))
		}
	}
}
