package frontend_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/frontend"
	"settee/frontend/internal/webtest"
	"settee/internal/costtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
)

// fuzzed are the endpoints whose queries, headers and bodies are fuzzed. Selectors and replications are parsed, and
// fuzzed, in other packages.
var fuzzed = []struct{ method, path, contentType string }{
	{http.MethodGet, "/db/_changes", ""},
	{http.MethodPost, "/db/_changes", "application/json"},
	{http.MethodGet, "/db/_all_docs", ""},
	{http.MethodPost, "/db/_all_docs", "application/json"},
	{http.MethodPost, "/db/_all_docs/queries", "application/json"},
	{http.MethodPost, "/db/_local_docs", "application/json"},
	{http.MethodPost, "/db/_bulk_get", "application/json"},
	{http.MethodPost, "/db/_bulk_docs", "application/json"},
	{http.MethodPost, "/db/_revs_diff", "application/json"},
	{http.MethodPost, "/db/_missing_revs", "application/json"},
	{http.MethodPut, "/db/_security", "application/json"},
	{http.MethodPut, "/db/_revs_limit", "application/json"},
	{http.MethodPost, "/db", "application/json"},
	{http.MethodGet, "/db/doc", ""},
	{http.MethodPut, "/db/doc", "application/json"},
	{http.MethodPut, "/db/doc", `multipart/related; boundary="abc"`},
	{http.MethodGet, "/db/doc/a", ""},
	{http.MethodPut, "/db/doc/b", "text/plain"},
	{"COPY", "/db/doc", ""},
	{http.MethodPost, "/_dbs_info", "application/json"},
	{http.MethodGet, "/_uuids", ""},
	{http.MethodPost, "/_session", "application/json"},
	{http.MethodPost, "/_session", "application/x-www-form-urlencoded"},
	{http.MethodPost, "/db/doc", "multipart/form-data; boundary=abc"},
}

// requestBound is what answering a request may cost, including the compiled form of its selectors.
var requestBound = costtest.Bound{Memory: 4 << 20, MemoryPerByte: 4_000}

// FuzzRequest sends anything to an endpoint: its query, a header and its body. No answer has
// the status 500, each error is JSON with a reason, and the cost is in proportion to the request.
func FuzzRequest(f *testing.F) {
	for _, seed := range []struct {
		endpoint            byte
		query, header, body string
	}{
		{0, "since=now&feed=longpoll&timeout=1", "", ""},
		{0, "filter=_doc_ids&doc_ids=[\"doc\"]&style=all_docs&include_docs=true&conflicts=true&attachments=true", "", ""},
		{0, "descending=true&limit=1&seq_interval=2&since=0&att_encoding_info=true&feed=eventsource", "1-x", ""},
		{1, "filter=_doc_ids", "", `{"doc_ids":["doc","x"]}`},
		{2, "startkey=\"a\"&endkey=\"z\"&skip=1&update_seq=true&inclusive_end=false&include_docs=true", "", ""},
		{3, "", "", `{"keys":["doc","x",1],"descending":true}`},
		{4, "", "", `{"queries":[{"key":"doc"},{"limit":0},{"keys":["doc"]}]}`},
		{6, "revs=true&attachments=true", "multipart/mixed", `{"docs":[{"id":"doc","rev":"1-a","atts_since":["1-b"]},{}]}`},
		{7, "", "", `{"docs":[{"_id":"a","_attachments":{"a":{"data":"AA=="}}},{"_id":"b","_rev":"1-a"}],"new_edits":false}`},
		{8, "", "", `{"doc":["1-a","2-b"],"x":[]}`},
		{9, "", "", `{"doc":["1-a"]}`},
		{10, "", "", `{"members":{"names":["a"],"roles":[]}}`},
		{11, "", "", `1000`},
		{13, "open_revs=[\"1-a\"]&revs=true&latest=true&meta=true", "multipart/mixed", ""},
		{13, "attachments=true&atts_since=[\"1-a\"]&rev=1-a", "multipart/related", ""},
		{14, "new_edits=false", "", `{"_id":"doc","_revisions":{"start":2,"ids":["b","a"]},"x":[1,{"y":null}]}`},
		{15, "", "", "--abc\r\n\r\n{\"_attachments\":{\"f\":{\"follows\":true}}}\r\n--abc\r\n\r\nx\r\n--abc--"},
		{16, "", "bytes=0-1,3-", ""},
		{18, "", "other?rev=1-a", ""},
		{19, "", "", `{"keys":["db","x"]}`},
		{20, "count=10", "", ""},
		{21, "", "", `{"name":"a","password":"b","token":"123456"}`},
		{22, "next=/x", "", "name=a&password=b"},
	} {
		f.Add(seed.endpoint, seed.query, seed.header, []byte(seed.body))
	}
	f.Fuzz(func(t *testing.T, endpoint byte, query, header string, body []byte) {
		to := fuzzed[int(endpoint)%len(fuzzed)]
		handler := fuzzedHandler(t)
		r := httptest.NewRequest(to.method, to.path, strings.NewReader(string(body)))
		r.URL.RawQuery = query
		if to.contentType != "" {
			r.Header.Set("Content-Type", to.contentType)
		}
		for _, name := range []string{"Accept", "Range", "If-Match", "If-None-Match", "Last-Event-Id", "Destination"} {
			r.Header.Set(name, header)
		}
		r.SetBasicAuth(webtest.AdminName, webtest.AdminPassword)
		answer := httptest.NewRecorder()
		requestBound.Check(t, len(query)+len(header)+len(body), func() { handler.ServeHTTP(answer, r) })
		require.NotEqual(t, http.StatusInternalServerError, answer.Code, answer.Body)
		if answer.Code >= http.StatusBadRequest {
			var failure struct{ Error, Reason string }
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &failure), answer.Body)
			require.NotEmpty(t, failure.Error)
			require.NotEmpty(t, failure.Reason)
		}
	})
}

// fuzzedHandler returns the interface of a node that is going away, so that nothing waits, with a
// document that has an attachment.
func fuzzedHandler(t *testing.T) *frontend.Handler {
	t.Helper()
	docs, live, only := emptyStore(t)
	database, err := docs.Create(t.Context(), "db")
	require.NoError(t, err)
	upload, err := database.Upload(t.Context(), "doc", strings.NewReader("hello"), docstore.UploadOptions{})
	require.NoError(t, err)
	webtest.Write(t, database, docstore.Edit{ID: "doc", Body: docjson.Must(`{"a":1}`), Attachments: []docstore.EditAttachment{{Name: "a", Upload: upload}}})
	h := frontend.New(frontend.Options{Documents: docs, Accounts: only, Config: live, Log: zerolog.New(io.Discard)})
	h.Drain()
	return h
}

// FuzzListBounds sends any bounds to a listing, which never has rows outside of them.
func FuzzListBounds(f *testing.F) {
	f.Add(`"a"`, `"z"`, true)
	f.Add(`null`, `"_local/x"`, false)
	f.Add(`{}`, ``, false)
	f.Fuzz(func(t *testing.T, start, end string, descending bool) {
		query := url.Values{"startkey": {start}, "endkey": {end}}
		if descending {
			query.Set("descending", "true")
		}
		answer := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/db/_all_docs?"+query.Encode(), http.NoBody)
		r.SetBasicAuth(webtest.AdminName, webtest.AdminPassword)
		fuzzedHandler(t).ServeHTTP(answer, r)
		require.NotEqual(t, http.StatusInternalServerError, answer.Code, answer.Body)
		if answer.Code != http.StatusOK {
			return
		}
		var list struct{ Rows []struct{ ID string } }
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &list))
		var low, high any
		require.NoError(t, json.Unmarshal([]byte(start), &low))
		require.NoError(t, json.Unmarshal([]byte(end), &high))
		if descending {
			low, high = high, low
		}
		from, _ := low.(string)
		to, _ := high.(string)
		want := from <= "doc" && "doc" <= to
		require.Equal(t, want, len(list.Rows) == 1, "%s to %s", start, end)
	})
}
