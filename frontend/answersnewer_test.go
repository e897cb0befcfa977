package frontend_test

import (
	"net/http"
	"strings"
)

// newerSessions are requests that CouchDBs after 3.5.3 answer otherwise than earlier ones.
func newerSessions() map[string][]asked {
	return map[string][]asked{
		"limits of feeds": askFeedLimits(), "feeds since times": askTimes(), "times of changes": askTimeSeq(),
		"no lists of revisions": askNoRevisions(), "below lists of databases": askBelowLists(), "credentials": askCredentials(),
		"revisions with signs": askEach("1-+"+strings.Repeat("0", 31), "1--"+strings.Repeat("0", 30)+"1"),
	}
}

func askFeedLimits() (all []asked) {
	all = append(all, askPut("/db/d", `{}`))
	for _, query := range []string{
		"limit=abc", "limit=", "limit=1.5", "limit=-1", "limit=%205", "limit=%2B1", "limit=99999999999999999999999999", "feed=continuous&limit=-1",
		"timeout=abc", "timeout=", "timeout=1.5", "timeout=-1", "timeout=0", "feed=longpoll&timeout=abc&since=now", "feed=continuous&timeout=-5",
		"feed=eventsource&limit=x", "limit=x&timeout=x", "since=bad&limit=x", "limit=-1&descending=true", "limit=0",
	} {
		all = append(all, askGet("/db/_changes?"+query))
	}
	return append(all, askPost("/db/_changes?filter=_doc_ids&limit=-1", `{"doc_ids":["d"]}`), askPost("/db/_changes?timeout=x", `{}`))
}

func askTimes() (all []asked) {
	all = append(all, askPut("/db/d", `{}`))
	for _, since := range []string{
		"2000-01-01T00:00:00Z", "1969-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "2099-01-01T00:00:00Z",
		"2000-01-01T00:00:00Z&feed=continuous&timeout=10", "2099-01-01T00:00:00Z&feed=continuous&timeout=10", "2000-01-01T00:00:00Z&feed=longpoll",
		"2026-13-45T99:99:99Z", "2026-02-29T00:00:00Z", "2026-02-29T00:00:00Z&feed=continuous", "abcd-ef-ghTij:kl:mnZ", "-001-01-01T00:00:00Z",
		"2026-11-28", "2026-11-28T00:00:00.000Z", "2026-11-28T00:00:00%2B00:00", "2026-11-28t00:00:00Z", "2026-11-28T00:00:00z",
		"2026-11-28%2000:00:00Z", "%222026-11-28T00:00:00Z%22", "2000-1-01T00:00:00Z",
		"2026-13-45T99:99:99Z&descending=true", "garbage&descending=true", "0&last-event-id=2099-01-01T00:00:00Z",
	} {
		all = append(all, askGet("/db/_changes?since="+since))
	}
	return append(all,
		askPost("/db/_changes?filter=_doc_ids&since=2000-01-01T00:00:00Z", `{"doc_ids":["d"]}`),
		askPost("/db/_changes?since=2026-02-30T00:00:00Z", `{}`),
	)
}

func askTimeSeq() []asked {
	ask := func(method string) asked { return asked{method, "/db/_time_seq", "", nil} }
	return []asked{
		ask(http.MethodDelete), {http.MethodDelete, "/db", "", nil}, ask(http.MethodGet), ask(http.MethodDelete), askPut("/db?q=1", ""),
		ask(http.MethodGet), askPut("/db/a", `{}`), askPut("/db/b", `{}`), ask(http.MethodGet),
		askPut("/db/a", `{"_rev":"1-967a00dff5e02add41819138abb3284d"}`), ask(http.MethodGet), askGet("/db/_time_seq/x"),
	}
}

func askNoRevisions() (all []asked) {
	for _, body := range []string{
		`{"d":"x"}`, `{"d":5}`, `{"d":null}`, `{"d":{}}`, `{"d":[],"_deleted":true}`, `{"d":[5]}`, `{"d":[null]}`, `{"d":["x"]}`, `{"d":["0-a"]}`,
		`{"d":["1-a",7]}`, `{"d":["1-"]}`, `{"d":["1-a"],"e":5}`, `{"d":[["1-a"]]}`, `{"d":[{}]}`, `[1]`, `"x"`, `{"d":[]}`, `{}`,
	} {
		all = append(all, askPost("/db/_revs_diff", body), askPost("/db/_missing_revs", body))
	}
	return all
}

// askBelowLists leaves out what CouchDB answers with 500.
func askBelowLists() []asked {
	return []asked{
		askGet("/_all_dbs/x"), askGet("/_all_dbs/x/y"), askGet("/_dbs_info/x"), askGet("/_dbs_info/x/y"),
		askPost("/_dbs_info/x", `{"keys":[]}`), askPut("/_dbs_info/x", ""), askPut("/_dbs_info", ""),
	}
}

func askCredentials() []asked {
	ask := func(header string) asked { return asked{http.MethodGet, "/db", "", []string{"Authorization", header}} }
	return []asked{ask("Basic !!!!"), ask("Basic "), ask("Basic YQ=="), ask("Basic a:b")}
}
