package frontend_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

var recordAnswers = flag.Bool("answers.record", false, "write the answers of a CouchDB to testdata/answers.json")

var answersFile = filepath.Join("testdata", "answers.json")

// asked is a request to a database, which the target calls /db. HOST in a header is the server's host and port.
type asked struct {
	method, target, body string
	headers              []string // pairs
}

// said is CouchDB's answer.
type said struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
}

// sessions are requests of which each goes on with what those before it left.
func sessions() map[string][]asked {
	return map[string][]asked{"revisions": askRevisions()}
}

func askPut(target, body string, headers ...string) asked {
	return asked{http.MethodPut, target, body, withType(headers)}
}

func askPost(target, body string, headers ...string) asked {
	return asked{http.MethodPost, target, body, withType(headers)}
}

func askGet(target string) asked {
	return asked{http.MethodGet, target, "", []string{"Accept", "application/json"}}
}

func withType(headers []string) []string {
	if slices.Contains(headers, "Content-Type") {
		return headers
	}
	return append(headers, "Content-Type", "application/json")
}

func TestAnswersOfCouchDB(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(answersFile)
	require.NoError(t, err)
	var recorded map[string][]said
	require.NoError(t, json.Unmarshal(text, &recorded))
	for name, requests := range sessions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t)
			n.newDatabase("db")
			require.Len(t, recorded[name], len(requests))
			for i, r := range requests {
				got := n.do(r.method, r.target, r.body, r.headersFor(n.address)...)
				requireSaid(t, r, recorded[name][i], said{got.status, strings.TrimSpace(got.body)})
			}
		})
	}
}

// TestRecordedAnswers compares the recorded answers with those of a CouchDB.
func TestRecordedAnswers(t *testing.T) {
	t.Parallel()
	server := couchtest.SharedCouchDB(t)
	answers := map[string][]said{}
	for name, requests := range sessions() {
		at, err := url.Parse(server.DB(t, "answers"))
		require.NoError(t, err)
		for _, r := range requests {
			request, err := http.NewRequestWithContext(t.Context(), r.method, server.URL+strings.Replace(r.target, "/db", at.Path, 1), strings.NewReader(r.body))
			require.NoError(t, err)
			for pair := range slices.Chunk(r.headersFor(at.Host), 2) {
				request.Header.Set(pair[0], pair[1])
			}
			request.SetBasicAuth(server.Username, server.Password)
			answer, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			answers[name] = append(answers[name], said{answer.StatusCode, strings.TrimSpace(string(body))})
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if *recordAnswers {
		text, err := json.MarshalIndent(answers, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(answersFile, append(text, '\n'), 0o644))
		return
	}
	text, err := os.ReadFile(answersFile)
	require.NoError(t, err)
	var recorded map[string][]said
	require.NoError(t, json.Unmarshal(text, &recorded))
	require.Equal(t, recorded, answers)
}

func (r asked) headersFor(host string) []string {
	headers := slices.Clone(r.headers)
	for i := range headers {
		headers[i] = strings.ReplaceAll(headers[i], "HOST", host)
	}
	return headers
}

// requireSaid requires the answer that CouchDB gives. The reasons of refusals may be other ones, except for those that
// clients read.
func requireSaid(t *testing.T, r asked, want, got said) {
	t.Helper()
	what := fmt.Sprintf("%s %.200s %.300s: CouchDB answers %d %s", r.method, r.target, r.body, want.Status, want.Body)
	require.Equal(t, want.Status, got.Status, "%s, settee %s", what, got.Body)
	var expected, actual struct{ Error, Reason string }
	if want.Status < http.StatusBadRequest {
		require.Equal(t, want.Body, got.Body, what)
		return
	}
	require.NoError(t, json.Unmarshal([]byte(want.Body), &expected), what)
	require.NoError(t, json.Unmarshal([]byte(got.Body), &actual), what)
	if expected.Error == "bad_request" {
		expected.Reason, actual.Reason = "", ""
	}
	require.Equal(t, expected, actual, what)
}

// askRevisions asks with revisions of all forms.
func askRevisions() (all []asked) {
	for i, rev := range []string{
		"1-", "1-a", "+1-a", "01-a", "1-A", "1-a-b", "1- ", "1-é", "1", "-", "", "-1-a", "x-a", "9007199254740993-a",
		"1-" + strings.Repeat("A", 32), "1-" + strings.Repeat("a", 31) + "g", "1-abcdefghijklmnop", "1-" + strings.Repeat("x", 33),
		"1-" + strings.Repeat("x", 200), "1-+" + strings.Repeat("0", 31), "1--" + strings.Repeat("0", 30) + "1",
		"1-éééééééé", "1-" + strings.Repeat("é", 16),
	} {
		_, id, _ := strings.Cut(rev, "-")
		doc, quoted, inQuery := fmt.Sprint("d", i), fmt.Sprintf("%q", rev), url.QueryEscape(rev)
		all = append(all,
			askPost("/db/_revs_diff", `{"`+doc+`":[`+quoted+`]}`),
			askPost("/db/_missing_revs", `{"`+doc+`":[`+quoted+`]}`),
			askPost("/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"`+doc+`","_rev":`+quoted+`,"v":1}]}`),
			askGet("/db/"+doc),
			askGet("/db/"+doc+"?revs=true&rev="+inQuery),
			askGet("/db/"+doc+"?revs=true&open_revs="+url.QueryEscape("["+quoted+"]")),
			askPost("/db/_bulk_get", `{"docs":[{"id":"`+doc+`","rev":`+quoted+`}]}`),
			askPost("/db/_revs_diff", `{"`+doc+`":["5-x",`+quoted+`]}`),
			askPut("/db/"+doc+"?rev="+inQuery, `{"v":2}`),
			askPut("/db/"+doc+"?new_edits=false", `{"_revisions":{"start":9,"ids":["",`+fmt.Sprintf("%q", id)+`]},"v":2}`),
			askGet("/db/"+doc+"?revs=true&conflicts=true"),
		)
	}
	// Positions that no document has here can be asked about.
	return append(all,
		askPost("/db/_revs_diff", `{"none":["0-a","1-`+strings.Repeat("x", 5000)+`"]}`),
		askGet("/db/none?rev=0-a"),
		askGet("/db/d1?rev=0-a"),
		askGet("/db/d1?rev=1-"+strings.Repeat("x", 5000)),
		askPut("/db/d1?rev=0-a", `{}`),
		askPost("/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"r","_revisions":{"start":2,"ids":["a","`+strings.Repeat("g", 32)+`"]}}]}`),
		askPost("/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"r","_revisions":{"start":2,"ids":["a",7]}}]}`),
	)
}
