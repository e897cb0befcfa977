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
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
)

var recordAnswers = flag.Bool("answers.record", false, "write the answers of a CouchDB to the files in testdata that they are compared with")

// recording is sessions, and what CouchDBs answered to them.
type recording struct {
	file     string
	sessions map[string][]asked
	reasons  bool // the reasons of settee begin as those of CouchDB
}

var older = recording{filepath.Join("testdata", "answers.json"), sessions(), false}

// newer is what CouchDBs after 3.5.3 answer, and others do not.
var newer = recording{filepath.Join("testdata", "answers_newer.json"), newerSessions(), true}

func (r recording) read(t *testing.T) (answers map[string][]said) {
	t.Helper()
	text, err := os.ReadFile(r.file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &answers))
	return answers
}

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
	return map[string][]asked{
		"revisions": askRevisions(), "attachments": askAttachments(), "stubs": askStubs(), "bulk stubs": askBulkStubs(),
		"related": askRelated(), "forms": askForms(), "paths": askPaths(), "methods": askMethods(), "batches": askBatches(),
		"lists": askLists(), "local docs": askLocalDocs(), "limit of revisions": askRevsLimit(),
		"nodes": askNodes(), "configuration": askConfiguration(),
	}
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
	for _, of := range []recording{older, newer} {
		recorded := of.read(t)
		for name, requests := range of.sessions {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := start(t)
				for _, database := range []string{"db", "_users", "_replicator"} {
					n.NewDatabase(database)
				}
				require.Len(t, recorded[name], len(requests))
				for i, r := range requests {
					got := n.Do(r.method, r.target, r.body, r.headersFor(n.Address)...)
					requireSaid(t, r, recorded[name][i], saidBy(got.Status, got.Body), of.reasons)
				}
			})
		}
	}
}

// saidBy returns an answer without what differs from server to server, and from day to day.
func saidBy(status int, body string) said {
	body = webtest.AnySequence(strings.TrimSpace(body))
	body = regexp.MustCompile(`\["\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",`).ReplaceAllString(body, `["TIME",`)
	return said{status, regexp.MustCompile(`"(nonode@nohost|node1\.example)":\[`).ReplaceAllString(body, `"NODE":[`)}
}

// TestRecordedAnswers compares the recorded answers with those of a CouchDB.
func TestRecordedAnswers(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	server := couchtest.SharedCouchDB(t)
	for _, of := range []recording{older, newer} {
		if of.reasons && server.Release(t).Before36 {
			continue
		}
		answers := of.ask(t, server)
		if !*recordAnswers {
			require.Equal(t, of.read(t), answers)
			continue
		}
		text, err := json.MarshalIndent(answers, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(of.file, append(text, '\n'), 0o644))
	}
}

// ask returns the answers of a CouchDB.
func (r recording) ask(t *testing.T, server *couchtest.CouchDB) map[string][]said {
	t.Helper()
	answers := map[string][]said{}
	for name, requests := range r.sessions {
		at, err := url.Parse(server.DB(t, "answers"))
		require.NoError(t, err)
		for _, request := range requests {
			sent, err := http.NewRequestWithContext(t.Context(), request.method, server.URL+strings.Replace(request.target, "/db", at.Path, 1), strings.NewReader(request.body))
			require.NoError(t, err)
			for pair := range slices.Chunk(request.headersFor(at.Host), 2) {
				sent.Header.Set(pair[0], pair[1])
			}
			if sent.Header.Get("Authorization") == "" {
				sent.SetBasicAuth(server.Username, server.Password)
			}
			answer, err := http.DefaultClient.Do(sent)
			require.NoError(t, err)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			answers[name] = append(answers[name], saidBy(answer.StatusCode, string(body)))
		}
	}
	http.DefaultClient.CloseIdleConnections()
	return answers
}

func (r asked) headersFor(host string) []string {
	headers := slices.Clone(r.headers)
	for i := range headers {
		headers[i] = strings.ReplaceAll(headers[i], "HOST", host)
	}
	return headers
}

// requireSaid requires the answer that CouchDB gives. The reasons of refusals may be other ones, except for those that
// clients read. If reasons is true, they begin as CouchDB's.
func requireSaid(t *testing.T, r asked, want, got said, reasons bool) {
	t.Helper()
	what := fmt.Sprintf("%s %.200s %.300s: CouchDB answers %d %s", r.method, r.target, r.body, want.Status, want.Body)
	require.Equal(t, want.Status, got.Status, "%s, settee %s", what, got.Body)
	var expected, actual struct{ Error, Reason string }
	if want.Status < http.StatusBadRequest || strings.HasPrefix(want.Body, "[") {
		require.Equal(t, want.Body, got.Body, what)
		return
	}
	require.NoError(t, json.Unmarshal([]byte(want.Body), &expected), what)
	require.NoError(t, json.Unmarshal([]byte(got.Body), &actual), what)
	if expected.Error == "bad_request" {
		require.True(t, !reasons || strings.HasPrefix(actual.Reason, expected.Reason), "%s, settee %s", what, got.Body)
		expected.Reason, actual.Reason = "", ""
	}
	require.Equal(t, expected, actual, what)
}

// askRevisions asks with revisions of all forms.
func askRevisions() []asked {
	all := askEach(
		"1-", "1-a", "+1-a", "01-a", "1-A", "1-a-b", "1- ", "1-é", "1", "-", "", "-1-a", "x-a", "9007199254740993-a",
		"1-"+strings.Repeat("A", 32), "1-"+strings.Repeat("a", 31)+"g", "1-abcdefghijklmnop", "1-"+strings.Repeat("x", 33),
		"1-"+strings.Repeat("x", 200), "1-éééééééé", "1-"+strings.Repeat("é", 16),
	)
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

// askEach makes the same requests with each of several revisions.
func askEach(revs ...string) (all []asked) {
	for i, rev := range revs {
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
	return all
}

// Types that CouchDB compresses would have other digests there.
const someBytes = "application/octet-stream"

// The revisions are known because they are CouchDB's.
func askAttachments() []asked {
	return []asked{
		askPut("/db/o", `{"_attachments":{"z":{"data":"eg=="},"a":{"data":"YQ=="}}}`), askGet("/db/o"),
		askPut("/db/o?new_edits=false", `{"_rev":"4-x","_attachments":{"z":{"data":"eg==","revpos":4},"a":{"data":"YQ==","revpos":4}}}`), askGet("/db/o"),
		askPut("/db/o/m?rev=4-x", "mm", "Content-Type", someBytes), askGet("/db/o"),
		askPut("/db/p?new_edits=false", `{"_rev":"4-x","v":1,"_attachments":{"z":{"data":"eg==","revpos":4},"a":{"data":"YQ==","revpos":4}}}`),
		askPut("/db/p/a?rev=4-x", "aa", "Content-Type", "image/png"), askGet("/db/p"), askGet("/db/p?attachments=true"),
		askPut("/db/q?new_edits=false", `{"_rev":"4-x","_attachments":{"z":{"data":"eg==","revpos":4},"a":{"data":"YQ==","revpos":4},"m":{"data":"eg==","revpos":4}}}`),
		{http.MethodDelete, "/db/q/a?rev=4-x", "", nil}, askGet("/db/q"),
		askPut("/db/r?new_edits=false", `{"_rev":"4-x","_attachments":{"z":{"data":"eg==","revpos":4},"a":{"data":"YQ==","revpos":4}}}`),
		askPut("/db/r", `{"_rev":"4-x","_attachments":{"m":{"data":"eg=="},"a":{"stub":true},"b":{"data":""},"z":{"stub":true}}}`), askGet("/db/r"),
		askPut("/db/twice", `{"_attachments":{"a":{"data":"eg=="},"b":{"data":"eg=="},"a":{"data":"YQ=="}}}`), askGet("/db/twice"),
		{"COPY", "/db/r", "", []string{"Destination", "s"}},
		askPut("/db/zipped/z?x", "not gzip", "Content-Type", "text/plain", "Content-Encoding", "gzip"), askGet("/db/zipped"),
		askPut("/db/new/n", "n", "Content-Type", someBytes), askGet("/db/new"), askPut("/db/new/n", "n"),
	}
}

// askStubs asks for edits of a revision 4-x with the attachments z of the position 4 and a of 2.
func askStubs() (all []asked) {
	for i, stub := range []string{
		`{"z":{"stub":true,"revpos":4}}`, `{"z":{"stub":true}}`, `{"z":{"stub":true,"revpos":4},"a":{"stub":true,"revpos":2}}`,
		`{"a":{"stub":true,"revpos":2},"z":{"stub":true,"revpos":4}}`,
		`{"z":{"stub":true,"revpos":3}}`, `{"z":{"stub":true,"revpos":5}}`, `{"a":{"stub":true,"revpos":4}}`, `{"none":{"stub":true}}`,
		`{"z":{"stub":true,"digest":"md5-+63p42o/NtPWdsG4CEUd1w=="}}`, `{"z":{"stub":true,"content_type":"x/y","length":1}}`,
		`{"z":{"stub":true,"revpos":4,"digest":"md5-+63p42o/NtPWdsG4CEUd1w=="},"none":{"stub":true,"digest":"md5-+63p42o/NtPWdsG4CEUd1w=="}}`,
		`{"z":{"stub":false}}`, `{"z":{"stub":true,"revpos":0}}`,
	} {
		doc := fmt.Sprint("/db/d", i)
		all = append(all,
			askPut(doc+"?new_edits=false", `{"_rev":"4-x","_attachments":{"z":{"data":"eg==","revpos":4},"a":{"data":"YQ==","revpos":2}}}`),
			askPut(doc, `{"_rev":"4-x","_attachments":`+stub+`}`), askGet(doc),
			askPut(doc, `{"_rev":"1-stale","_attachments":`+stub+`}`),
			askPut(doc+"new", `{"_attachments":`+stub+`}`),
			askPut(doc+"r?new_edits=false", `{"_rev":"4-x","_attachments":{"z":{"data":"eg==","revpos":4},"a":{"data":"YQ==","revpos":2}}}`),
			askPut(doc+"r?new_edits=false", `{"_revisions":{"start":6,"ids":["z","y","x"]},"_attachments":`+stub+`}`), askGet(doc+"r"),
			askPut(doc+"new?new_edits=false", `{"_rev":"4-x","_attachments":`+stub+`}`),
		)
	}
	return all
}

// askBulkStubs asks for one document, or for documents of which another one is refused: whether CouchDB writes the others
// of a request with a missing stub depends on the shards.
func askBulkStubs() []asked {
	return []asked{
		askPut("/db/o?new_edits=false", `{"_rev":"4-x","_attachments":{"z":{"data":"eg==","revpos":4}}}`),
		askPost("/db/_bulk_docs", `{"docs":[{"_id":"new","_attachments":{"z":{"stub":true}}}]}`),
		askPost("/db/_bulk_docs", `{"docs":[{"_id":"o","_rev":"4-x","_attachments":{"none":{"stub":true}}}]}`),
		askPost("/db/_bulk_docs", `{"docs":[{"_id":"o","_rev":"4-x","_attachments":{"z":{"stub":true,"revpos":9}}}]}`),
		askPost("/db/_bulk_docs", `{"docs":[{"_id":"a"},{"_id":"o","_rev":"3-x","_attachments":{"none":{"stub":true}}},{"_id":"b"}]}`),
		askPost("/db/_bulk_docs", `{"docs":[{"_id":"o","_attachments":{"none":{"stub":true}}}]}`),
		askPost("/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"new","_rev":"1-a","_attachments":{"z":{"stub":true,"digest":"md5-AA=="}}}]}`),
		askPost("/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"o","_rev":"9-a","_attachments":{"none":{"stub":true}}}]}`),
		askPost("/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"o","_revisions":{"start":5,"ids":["a","x"]},"_attachments":{"z":{"stub":true,"revpos":9}}}]}`),
		askPost("/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"o","_revisions":{"start":5,"ids":["a","x"]},"_attachments":{"z":{"stub":true,"revpos":4}}}]}`),
		askGet("/db/o"),
		askPost("/db/_bulk_docs", `{"docs":[{"_id":"o","_rev":"5-a","v":1,"_attachments":{"y":{"data":"eg=="},"z":{"stub":true,"revpos":4}}}]}`),
		askGet("/db/o"),
	}
}

const relatedDoc = `{"_attachments":{"z":{"follows":true,"length":2},"a":{"follows":true,"length":3}}}`

func askRelated() (all []asked) {
	body := "--XX\r\nContent-Type: application/json\r\n\r\n" + relatedDoc + "\r\n--XX\r\n\r\nzz\r\n--XX\r\n\r\naaa\r\n--XX"
	for i, text := range []string{
		body + "--", body + "--\r\n", body + "--epilogue", body + "--epilogue\r\nof lines\r\n", body + "-- \r\n", body + "--\r\nepilogue",
		body + "----XX--", "preamble\r\n" + body + "--epilogue",
	} {
		doc := fmt.Sprint("/db/d", i)
		all = append(all, askPut(doc, text, "Content-Type", "multipart/related; boundary=XX"), askGet(doc+"?attachments=true"))
	}
	return all
}

// form is a form of fields, which are name, file name or -, content type or -, content.
func form(fields ...string) string {
	var text strings.Builder
	for field := range slices.Chunk(fields, 4) {
		fmt.Fprintf(&text, "--XX\r\nContent-Disposition: form-data; name=%q", field[0])
		if field[1] != "-" {
			text.WriteString(`; filename="` + field[1] + `"`)
		}
		if field[2] != "-" {
			text.WriteString("\r\nContent-Type: " + field[2])
		}
		text.WriteString("\r\n\r\n" + field[3] + "\r\n")
	}
	return text.String() + "--XX--\r\n"
}

func askForms() []asked {
	ask := func(target, body string) asked {
		return askPost(target, body, "Content-Type", "multipart/form-data; boundary=XX", "Referer", "http://HOST/page?x")
	}
	rev := []string{"_rev", "-", "-", "4-x"}
	z, m := []string{"_attachments", "z", someBytes, "zz"}, []string{"_attachments", "m", "image/png; x=y", "mm"}
	with := func(fields ...[]string) string { return form(slices.Concat(fields...)...) }
	doc := func(text string) []string { return []string{"_doc", "-", "-", text} }
	old := `{"_rev":"4-x","v":1,"_attachments":{"z":{"data":"eg==","revpos":4},"a":{"data":"YQ==","revpos":4}}}`
	return []asked{
		ask("/db/a", with(doc(`{"v":1}`), z, m)), askGet("/db/a"),
		ask("/db/b", with(z, doc(`{"v":1,"_id":"other","_attachments":{"i":{"data":"eg=="},"z":{"data":"YQ=="}}}`), m)), askGet("/db/b"),
		askPut("/db/c?new_edits=false", old), ask("/db/c", with(rev, m, z)), askGet("/db/c?attachments=true"),
		askPut("/db/d?new_edits=false", old), ask("/db/d", with(m, rev)), askGet("/db/d"),
		askPut("/db/e?new_edits=false", old), ask("/db/e", with(rev)), askGet("/db/e"),
		askPut("/db/f?new_edits=false", old), ask("/db/f", with(doc(`{"_rev":"4-x","_attachments":{"a":{"stub":true}}}`), m)), askGet("/db/f"),
		askPut("/db/g?new_edits=false", old), ask("/db/g?rev=4-x", with(doc(`{"_deleted":true}`))), askGet("/db/g"),
		ask("/db/g", with(doc(`{"v":2}`))), askGet("/db/g"),
		ask("/db/h", with(doc(`{}`), doc(`{"v":1}`), []string{"other", "-", "-", "x"}, []string{"other", "o", someBytes, "x"})), askGet("/db/h"),
		ask("/db/i", with(doc(`{}`), []string{"_attachments", "-", "-", "no file"})), askGet("/db/i"),
		ask("/db/j", with(doc(`{}`), []string{"_attachments", "dé/ü.bin", someBytes, "x"}, []string{"_attachments", "empty", someBytes, ""})), askGet("/db/j"),
		ask("/db/_design/k", with(doc(`{"v":1}`), z)), askGet("/db/_design/k"),
		ask("/db/_local/l", with(doc(`{"v":1}`))), askGet("/db/_local/l"),
		// refused
		ask("/db/x", with(doc(`{"v":`))), ask("/db/x", with(doc(`[]`))), ask("/db/x", with(doc(`{"_x":1}`))), ask("/db/x", with(doc(`{"_rev":"1-x"}`))),
		ask("/db/c", with(doc(`{"_rev":"4-x"}`))), ask("/db/c", with(doc(`{}`), z)), ask("/db/c", with([]string{"_rev", "-", "-", "x"}, z)),
		ask("/db/x", with(doc(`{"_attachments":{"a":{"stub":true}}}`), z)),
		ask("/db/x", with(doc(`{}`), []string{"_attachments", "_z", someBytes, "x"})), ask("/db/x", with(doc(`{}`), z, z)),
		askPost("/db/x", with(doc(`{}`)), "Content-Type", "multipart/form-data; boundary=XX"),
		askPost("/db/x", with(doc(`{}`)), "Content-Type", "multipart/form-data; boundary=XX", "Referer", "http://other.example/"),
		askPost("/db/x", "{}", "Referer", "http://HOST/"), askPost("/db/x", "{}"), askGet("/db/x"),
	}
}
