package selector_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"settee/internal/costtest"
	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/selector"
)

// The reference decides on decoded values, in one recursion with the path and whether it is
// inside a negation. Objects keep the order of their keys.
type (
	object []pair
	pair   struct {
		key   string
		value any
	}
)

func parseReference(t require.TestingT, text string) any {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var read func() any
	token := func() json.Token {
		tok, err := d.Token()
		require.NoError(t, err, text)
		return tok
	}
	read = func() any {
		switch tok := token(); tok {
		case json.Delim('['):
			list := []any{}
			for d.More() {
				list = append(list, read())
			}
			token()
			return list
		case json.Delim('{'):
			o := object{}
			for d.More() {
				key := token().(string)
				o = slices.DeleteFunc(o, func(p pair) bool { return p.key == key })
				o = append(o, pair{key, read()})
			}
			token()
			return o
		default:
			return tok
		}
	}
	return read()
}

// reference evaluates a selector on one value.
type reference struct {
	root     any
	pushDown bool // negations move down to the conditions, except inside elements
}

func (r reference) eval(sel any, path []string, negated bool) bool {
	o, ok := sel.(object)
	if !ok || len(o) == 0 {
		return r.condition("$eq", sel, path, negated)
	}
	if len(o) > 1 {
		var subs []any
		for _, p := range o {
			subs = append(subs, object{p})
		}
		return r.combine("$and", subs, path, negated)
	}
	op, arg := o[0].key, o[0].value
	switch {
	case !strings.HasPrefix(op, "$"):
		return r.eval(arg, slices.Concat(path, strings.Split(op, ".")), negated)
	case op == "$not" && r.pushDown:
		return r.eval(arg, path, !negated)
	case op == "$not":
		return !r.eval(arg, path, false)
	case op == "$and" || op == "$or" || op == "$nor":
		return r.combine(op, arg.([]any), path, negated)
	default:
		return r.condition(op, arg, path, negated)
	}
}

func (r reference) combine(op string, subs []any, path []string, negated bool) bool {
	if len(subs) == 0 {
		return true
	}
	if op == "$nor" && !r.pushDown {
		return !r.combine("$or", subs, path, false)
	}
	each := negated != (op == "$nor")
	all := (op == "$and") != negated
	if op == "$nor" {
		all = !negated
	}
	for _, sub := range subs {
		if r.eval(sub, path, each) != all {
			return !all
		}
	}
	return all
}

func (r reference) condition(op string, arg any, path []string, negated bool) bool {
	v := r.root
	for _, name := range path {
		switch parent := v.(type) {
		case object:
			i := slices.IndexFunc(parent, func(p pair) bool { return p.key == name })
			if i < 0 {
				return op == "$exists" && arg.(bool) == negated
			}
			v = parent[i].value
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(parent) {
				return false
			}
			v = parent[i]
		default:
			return false
		}
	}
	return test(op, v, arg) != negated
}

func test(op string, v, arg any) bool {
	below := func(v any) bool { return reference{root: v}.eval(arg, nil, false) }
	list, isList := v.([]any)
	switch op {
	case "$lt":
		return compareReference(v, arg) < 0
	case "$lte":
		return compareReference(v, arg) <= 0
	case "$eq":
		return compareReference(v, arg) == 0
	case "$ne":
		return compareReference(v, arg) != 0
	case "$gte":
		return compareReference(v, arg) >= 0
	case "$gt":
		return compareReference(v, arg) > 0
	case "$exists":
		return arg.(bool)
	case "$type":
		return arg == []string{"null", "boolean", "boolean", "number", "string", "array", "object"}[rank(v)]
	case "$in", "$nin":
		if !isList {
			list = []any{v}
		}
		return (op == "$in") == slices.ContainsFunc(list, func(e any) bool {
			return slices.ContainsFunc(arg.([]any), func(a any) bool { return compareReference(e, a) == 0 })
		})
	case "$size":
		return isList && arg == json.Number(strconv.Itoa(len(list)))
	case "$mod":
		n, isNumber := v.(json.Number)
		i, ok := new(big.Int).SetString(string(n), 10)
		divisor, _ := new(big.Int).SetString(arg.([]any)[0].(json.Number).String(), 10)
		return isNumber && ok && i.Rem(i, divisor).String() == arg.([]any)[1].(json.Number).String()
	case "$regex":
		s, isString := v.(string)
		return isString && regexp.MustCompile(arg.(string)).MatchString(s)
	case "$beginsWith":
		s, isString := v.(string)
		return isString && strings.HasPrefix(s, arg.(string))
	case "$elemMatch":
		return isList && slices.ContainsFunc(list, below)
	case "$allMatch":
		return len(list) > 0 && !slices.ContainsFunc(list, func(e any) bool { return !below(e) })
	case "$keyMapMatch":
		o, _ := v.(object)
		return slices.ContainsFunc(o, func(p pair) bool { return below(p.key) })
	}
	panic(op)
}

func rank(v any) int {
	switch v := v.(type) {
	case nil:
		return 0
	case bool:
		if v {
			return 2
		}
		return 1
	case json.Number:
		return 3
	case string:
		return 4
	case []any:
		return 5
	default:
		return 6
	}
}

// compareReference compares values. Strings must be lower-case letters.
func compareReference(a, b any) int {
	if rank(a) != rank(b) {
		return rank(a) - rank(b)
	}
	switch a := a.(type) {
	case json.Number:
		x, _ := new(big.Rat).SetString(string(a))
		y, _ := new(big.Rat).SetString(string(b.(json.Number)))
		return x.Cmp(y)
	case string:
		return strings.Compare(a, b.(string))
	case []any:
		return slices.CompareFunc(a, b.([]any), compareReference)
	case object:
		return slices.CompareFunc(a, b.(object), func(p, q pair) int {
			if c := strings.Compare(p.key, q.key); c != 0 {
				return c
			}
			return compareReference(p.value, q.value)
		})
	default:
		return 0
	}
}

// generator makes documents and selectors that match often, from few names and values.
type generator struct{ *rand.Rand }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) name() string { return g.pick("a", "b", "c") }

func (g generator) list(most int, item func() string) string {
	var items []string
	for range g.IntN(most + 1) {
		items = append(items, item())
	}
	return strings.Join(items, ",")
}

func (g generator) value(depth int) string {
	switch n := g.IntN(10); {
	case n < 2 && depth > 0:
		return "[" + g.list(3, func() string { return g.value(depth - 1) }) + "]"
	case n < 5 && depth > 0:
		return g.object(depth - 1)
	default:
		return g.pick("null", "true", "false", "0", "1", "1.0", "2", "-3", "1e0", `"a"`, `"ab"`, `"b"`, `""`, "[]", "{}")
	}
}

func (g generator) object(depth int) string {
	return "{" + g.list(3, func() string { return fmt.Sprintf("%q:%s", g.name(), g.value(depth)) }) + "}"
}

// selector makes the value of a field, which is an object if it must be.
func (g generator) selector(depth int, mustBeObject bool) string {
	if depth == 0 {
		if !mustBeObject && g.IntN(3) == 0 {
			return g.value(1)
		}
		return "{" + g.condition() + "}"
	}
	sub := func() string { return g.selector(depth-1, false) }
	subObject := func() string { return g.selector(depth-1, true) }
	var members []string
	for range 1 + g.IntN(2) {
		switch g.IntN(9) {
		case 0, 1:
			members = append(members, fmt.Sprintf("%q:[%s]", g.pick("$and", "$or", "$nor"), g.list(3, sub)))
		case 2:
			members = append(members, `"$not":`+subObject())
		case 3:
			members = append(members, fmt.Sprintf("%q:%s", g.pick("$elemMatch", "$allMatch", "$keyMapMatch"), subObject()))
		case 4:
			members = append(members, g.condition())
		default:
			field := g.pick(g.name(), g.name()+"."+g.name(), g.name()+"."+g.pick("0", "1", "5"))
			members = append(members, fmt.Sprintf("%q:%s", field, sub()))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (g generator) condition() string {
	value := func() string { return g.value(1) }
	switch g.IntN(9) {
	case 0:
		return `"$exists":` + g.pick("true", "false")
	case 1:
		return fmt.Sprintf(`"$type":%q`, g.pick("null", "boolean", "number", "string", "array", "object"))
	case 2, 3:
		return fmt.Sprintf("%q:[%s]", g.pick("$in", "$nin"), g.list(3, value))
	case 4:
		return `"$size":` + g.pick("0", "1", "2")
	case 5:
		return `"$mod":[2,` + g.pick("0", "1", "-1") + `]`
	case 6:
		return fmt.Sprintf("%q:%q", g.pick("$regex", "$beginsWith"), g.pick("", "a", "b"))
	default:
		return fmt.Sprintf("%q:%s", g.pick("$lt", "$lte", "$eq", "$ne", "$gte", "$gt"), value())
	}
}

// TestMatchAgreesWithReference also checks the laws of negation for any two selectors.
func TestMatchAgreesWithReference(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(5, 6))}
	matched := 0
	rounds := seeds.Rounds(t, 3000)
	for range rounds {
		// The second condition keeps Parse from refusing a selector without a field.
		p := fmt.Sprintf(`{"$and":[%s,{"a":{"$exists":true}}]}`, g.selector(3, true))
		q := fmt.Sprintf(`{"$or":[%s,{"b":1}]}`, g.selector(3, true))
		doc := g.object(3)
		root := reference{root: parseReference(t, doc), pushDown: true}

		P, Q := match(t, p, doc), match(t, q, doc)
		require.Equal(t, root.eval(parseReference(t, p), nil, false), P, "%s of %s", p, doc)
		require.Equal(t, root.eval(parseReference(t, q), nil, false), Q, "%s of %s", q, doc)
		if P {
			matched++
		}

		with := func(format string) bool {
			return match(t, strings.NewReplacer("P", p, "Q", q).Replace(format), doc)
		}
		const msg = "P = %s, Q = %s of %s"
		require.Equal(t, P && Q, with(`{"$and":[P,Q]}`), msg, p, q, doc)
		require.Equal(t, P || Q, with(`{"$or":[P,Q]}`), msg, p, q, doc)
		require.Equal(t, P, with(`{"$not":{"$not":P}}`), msg, p, q, doc)
		require.Equal(t, P, with(`{"$not":{"$nor":[P]}}`), msg, p, q, doc)
		require.Equal(t, with(`{"$not":P}`), with(`{"$nor":[P]}`), msg, p, q, doc)
		require.Equal(t, with(`{"$nor":[P,Q]}`), with(`{"$and":[{"$not":P},{"$not":Q}]}`), msg, p, q, doc)
		require.Equal(t, with(`{"$not":{"$or":[P,Q]}}`), with(`{"$nor":[P,Q]}`), msg, p, q, doc)
		require.Equal(t, with(`{"$not":{"$and":[P,Q]}}`), with(`{"$or":[{"$not":P},{"$not":Q}]}`), msg, p, q, doc)
	}
	if rounds >= 500 { // of fewer rounds it says little
		require.Greater(t, matched, rounds/20, "the generator rarely makes a match")
		require.Less(t, matched, rounds*19/20, "the generator rarely makes a mismatch")
	}
}

// parseBound and matchBound limit the memory of Parse and Match: the limits of the package, and
// some bytes for each byte of the selector and the document.
var (
	parseBound = costtest.Bound{Memory: 32 << 20, MemoryPerByte: 400, Units: 20, BytesPerUnit: 4 << 10}
	matchBound = costtest.Bound{Memory: 32 << 20, MemoryPerByte: 400, Units: 100, BytesPerUnit: 4 << 10}
)

// FuzzParse checks that nothing panics or costs too much, that a refused selector has an error
// with a name, and that a value equals itself.
func FuzzParse(f *testing.F) {
	testkit.SkipRace(f)
	for _, seed := range [][2]string{
		{`{"a.b": {"$gt": 1, "$regex": "^(?!x[)])y$"}}`, `{"a": {"b": "y\n"}}`},
		{`{"a": {"$elemMatch": {"$nor": [{"b": 1}, {"$mod": [7, 3]}]}}}`, `{"a": [{"b": 1.0e1}, 10]}`},
		{`{"$not": {"_id": {"$in": ["\ud83d\ude00", null, {}]}}}`, `{"_id": "\u0000", "a": {"a": 1, "a": 2}}`},
		{`{"a\\.b": {"$all": [[1]], "$size": 1, "$type": "array"}}`, `{"a.b": [1.0]}`},
		{`{"a": {"$keyMapMatch": {"$beginsWith": "e"}}}`, `{"a": {"e\u0301": 1}}`},
		{`{"$or": [{"a": {"$regex": "[ab]{900}x"}}, {"a": {"$regex": "(?:(?:a?){100}){10}x"}}]}`, `{"a": "` + strings.Repeat("ab", 5000) + `"}`},
		{`{"a": {"$regex": "^(?=\\pL)[[:alpha:]]\\b(?i)k+?$"}}`, `{"a": "\u212a\n"}`},
		{`{"a": {"$in": [1.0, "a\u200b", [null], {"b": -0}]}, "_id": {"$nin": ["a", 1e400]}}`, `{"a": ["a"], "_id": "a\u200b"}`},
		{`{"a": {"$mod": [` + strings.Repeat("7", 1000) + `, -1]}}`, `{"a": -` + strings.Repeat("7", 2000) + `}`},
		{strings.Repeat(`{"$not":`, 99) + `{"a":1}` + strings.Repeat("}", 99), `{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`},
		{`{"a": {"$lt": "` + strings.Repeat("e\u0301\u0323", 500) + `"}}`, `{"a": "` + strings.Repeat("e\u0323\u0301", 500) + `"}`},
		{`{}`, "{\"\": \"\xef\"}"},
		{`{"` + strings.Repeat("a.", 400) + `b": {"$or": [` + repeat(100, same(`{"c": 1}`)) + `]}}`, `{"a": {"a": 1}}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, sel, doc []byte) {
		if len(sel)+len(doc) > 50_000 {
			return // long texts are slow and find nothing new
		}
		var s *selector.Selector
		var err error
		parseBound.Check(t, len(sel), func() { s, err = selector.Parse(sel) })
		if err != nil {
			var e *selector.Error
			require.ErrorAs(t, err, &e)
			require.NotEmpty(t, e.Name)
			return
		}
		var first bool
		matchBound.Check(t, len(doc), func() { first, err = s.Match(t.Context(), doc) })
		if err != nil {
			require.False(t, first)
			return
		}
		again, err := s.Match(t.Context(), doc)
		require.NoError(t, err)
		require.Equal(t, first, again)

		require.Zero(t, selector.Compare(doc, doc))
		require.Equal(t, -selector.Compare(doc, sel), selector.Compare(sel, doc))
		equal := []byte(fmt.Sprintf(`{"a": {"$eq": %s}}`, doc)) // two levels deeper, maybe too deep
		if json.Valid(equal) && utf8.Valid(equal) && bytes.HasPrefix(bytes.TrimSpace(doc), []byte("{")) {
			same, err := selector.Parse(equal)
			require.NoError(t, err)
			whole := []byte(fmt.Sprintf(`{"a": %s}`, doc))
			ok, err := same.Match(t.Context(), whole)
			if errors.Is(err, selector.ErrTooMuchWork) {
				return
			}
			require.NoError(t, err)
			require.True(t, ok)
		}
	})
}
