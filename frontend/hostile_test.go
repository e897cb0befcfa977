package frontend_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/costtest"
	"settee/internal/testkit"
)

// hostileBound is what a request may cost: some copies of its body and what a parsed selector takes, and the steps
// of matching a few documents. A unit is a fifteenth of those of one document.
var hostileBound = costtest.Bound{Memory: 64 << 20, MemoryPerByte: 150, Units: 100, BytesPerUnit: 8 << 10}

// hostileGenerator makes texts that are long, deep or wide, or all of these.
type hostileGenerator struct{ *rand.Rand }

func (g hostileGenerator) pick(of ...string) string { return of[g.IntN(len(of))] }

// size returns a number of any order of magnitude, at most most.
func (g hostileGenerator) size(most int) int {
	n := 1 + g.IntN(10)
	for n < most && g.IntN(8) > 0 {
		n *= 2
	}
	return min(n, most)
}

// list repeats an item, with numbers in it.
func list(n int, item string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strings.ReplaceAll(item, "#", fmt.Sprint(i)))
	}
	return b.String()
}

func nest(n int, before, within, after string) string {
	return strings.Repeat(before, n) + within + strings.Repeat(after, n)
}

func (g hostileGenerator) number() string {
	digits := strings.Repeat("7", g.size(500_000))
	return g.pick("1", "-", "") + g.pick(digits, "1e"+digits, "0."+digits, digits+"e-"+digits[:1], "1")
}

func (g hostileGenerator) expression() string {
	n := g.size(2000)
	return g.pick(
		fmt.Sprintf(".{%d}", n), fmt.Sprintf("[ab]{%d}x", n), nest(g.size(1500), "(?:", "a", "{2})"), nest(g.size(1500), "(", "a", ")*"),
		strings.Repeat("a?", n)+strings.Repeat("a", n), "^(?:"+strings.Repeat("ab|b", n)+")*x$", strings.Repeat(`\\pL`, n), strings.Repeat("(?i)[^a-z]", n),
		"^"+strings.Repeat("(?!a)", n)+"b", "^(?=["+strings.Repeat("[:", 20*n), "(?:(?:a?){100}){10}x", strings.Repeat("(", n),
	)
}

func (g hostileGenerator) value() string {
	n := g.size(20_000)
	return g.pick(g.number(), `"`+strings.Repeat(g.pick("ab", "\u200b", "한", "e\u0301\u0323", `\u00e9`), n)+`"`,
		"["+list(n, g.pick("#", `"v#"`, "[#]", `{"a":#}`))+"]", "{"+list(n, `"f#":#`)+"}", nest(min(n, 9000), "[", "", "]"), nest(min(n, 4000), `{"a":[`, "", "]}"))
}

func (g hostileGenerator) condition() string {
	switch g.IntN(8) {
	case 0, 1:
		return `"$regex":"` + g.expression() + `"`
	case 2:
		return fmt.Sprintf("%q:[%s]", g.pick("$in", "$nin", "$all"), list(g.size(20_000), g.pick("#", `"v#"`, `{"f#":#}`, "1.#e3")))
	case 3:
		return `"$mod":[` + g.number() + `,` + g.number() + `]`
	case 4:
		return `"$size":` + g.number()
	default:
		return fmt.Sprintf("%q:%s", g.pick("$lt", "$lte", "$eq", "$ne", "$gte", "$gt", "$beginsWith"), g.value())
	}
}

// selector makes a selector: one condition, many times, somewhere.
func (g hostileGenerator) selector() string {
	field := g.pick("text", "list", "object", "number", "_id", "list.4999", strings.Repeat("a.", g.size(5000))+"b", strings.Repeat("n", g.size(5000)))
	one := fmt.Sprintf(`{%q:{%s}}`, field, g.condition())
	many := func(n int) string { return `[` + list(min(n, 1+1_200_000/len(one)), one) + `]` }
	switch g.IntN(5) {
	case 0:
		return fmt.Sprintf(`{%q:%s}`, g.pick("$or", "$nor", "$and"), many(g.size(60_000)))
	case 1:
		return nest(g.size(150), `{"$not":`, one, "}")
	case 2:
		return fmt.Sprintf(`{"%s":{"$or":%s}}`, strings.Repeat("n", g.size(20_000)), many(g.size(5000)))
	case 3:
		return fmt.Sprintf(`{%q:{%q:{"$or":%s}}}`, g.pick("list", "object"), g.pick("$elemMatch", "$allMatch", "$keyMapMatch"),
			many(g.size(1000)))
	default:
		return one
	}
}

// TestHostileRequests sends what costs a server most. It is not parallel: it measures the process.
func TestHostileRequests(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	n := start(t)
	db := n.NewDatabase("db")
	webtest.Write(t, db, webtest.Doc("a", `{"text":"`+strings.Repeat("ab", 100_000)+`","list":[`+list(5000, "#")+`],"number":`+strings.Repeat("7", 100_000)+
		`,"object":{`+list(2000, `"f#":"v#"`)+`}}`))
	webtest.Write(t, db, webtest.Doc("b", `{"list":[`+list(5000, `"v#"`)+`],"text":"`+strings.Repeat("한", 20_000)+`","deep":`+nest(2000, "[", "", "]")+`}`))
	taken, refusals := 0, 0
	check := func(method, path, body string) webtest.Answer {
		var a webtest.Answer
		hostileBound.Check(t, len(body)+len(path), func() { a = n.Do(method, path, body, "Content-Type", "application/json") })
		require.Less(t, a.Status, 500, "%.200s: %.200s", body, a.Body)
		if a.Status >= 400 {
			require.NotEmpty(t, a.JSON(t)["reason"])
			refusals++
		} else {
			taken++
		}
		return a
	}
	feed := func(selector string) {
		check(http.MethodPost, "/db/_changes?filter=_selector", `{"selector":`+selector+`}`)
	}

	// The attack that was seen.
	const expression = `{"a":{"$regex":".{1000}"}}`
	for _, count := range []int{100, 20_000, 100_000} {
		feed(`{"$or":[` + list(count, expression) + `]}`)
	}
	feed(`{"$or":[` + list(8, `{"text":{"$regex":"[ab]{900}x"}}`) + `]}`)
	feed(`{"list":{"$in":[` + list(20_000, "1#.5") + `]}}`)
	document := 0
	replication := func(members string) {
		document++
		check(http.MethodPut, fmt.Sprintf("/_replicator/d%d", document), definition(members))
	}
	for _, field := range []string{`"since_seq":%s`, `"since_seq":[%s]`, `"selector":{"a":%s}`, `"query_params":{"a":%s}`, `"worker_processes":%s`} {
		for _, digits := range []int{1000, 1_000_000, 3_500_000} {
			replication(fmt.Sprintf(field, strings.Repeat("7", digits)))
		}
	}

	// Attacks like it.
	g := hostileGenerator{rand.New(rand.NewPCG(13, 14))}
	rounds := 120
	for range rounds {
		selector := g.selector()
		feed(selector)
		replication(`"selector":` + selector)
	}
	for range rounds / 6 {
		value, _ := json.Marshal(g.value())
		replication(g.pick(`"since_seq":`, `"query_params":{"a":`+g.value()+`},"mine":`, `"doc_ids":`, `"mine":`, `"user_ctx":`) + g.pick(g.value(), string(value)))
		check(http.MethodPost, "/_replicate", nest(g.size(20_000), g.pick(`{"source":`, "["), g.number(), g.pick("}", "]")))
		number := url.QueryEscape(strings.Repeat("7", g.size(10_000)))
		for _, parameter := range []string{"limit", "since", "seq_interval", "heartbeat", "timeout"} {
			check(http.MethodGet, "/db/_changes?timeout=0&"+parameter+"="+number, "")
		}
	}
	require.Greater(t, taken, rounds/2, "the generator rarely makes what is taken")
	require.Greater(t, refusals, rounds/2)
}
