package databases_test

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
)

func digest(text string) string {
	sum := md5.Sum([]byte(text))
	return "md5-" + base64.StdEncoding.EncodeToString(sum[:])
}

// conflicted makes a database with a document doc that has the leaves 3-c (the winner),
// 2-b and, deleted, 2-a.
func (n *node) conflicted() *docstore.Database {
	n.Helper()
	db := n.NewDatabase("db")
	n.replicated(db, "doc", `{"v":"b"}`, false, []string{"b", "r"})
	n.replicated(db, "doc", `{"v":"a"}`, true, []string{"a", "r"})
	n.replicated(db, "doc", "{\r\n  \"v\": \"c\",\n  \"w\": \"\\n\"\n}", false, []string{"c", "x", "r"})
	return db
}

func TestGetDocument(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.conflicted()
	const winner = `{"_id":"doc","_rev":"3-c","v":"c","w":"\n"`
	for query, want := range map[string]string{
		"":                        `}`,
		"?unknown=%22":            `}`,
		"?revs=true":              `,"_revisions":{"start":3,"ids":["c","x","r"]}}`,
		"?revs=false":             `}`,
		"?revs=True":              `,"_revisions":{"start":3,"ids":["c","x","r"]}}`,
		"?conflicts=true":         `,"_conflicts":["2-b"]}`,
		"?deleted_conflicts=true": `,"_deleted_conflicts":["2-a"]}`,
		"?revs_info=true": `,"_revs_info":[{"rev":"3-c","status":"available"},{"rev":"2-x","status":"missing"},
			{"rev":"1-r","status":"missing"}]}`,
		"?meta=true": `,"_revs_info":[{"rev":"3-c","status":"available"},{"rev":"2-x","status":"missing"},
			{"rev":"1-r","status":"missing"}],"_conflicts":["2-b"],"_deleted_conflicts":["2-a"]}`,
		"?rev=3-c":                              `}`,
		"?rev=3-c&meta=true":                    `}`,
		"?rev=2-b&latest=true":                  `}`,
		"?rev=9-zzz&latest=true&conflicts=true": `,"_conflicts":["2-b"]}`,
	} {
		got := n.Get("/db/doc"+query).Is(t, http.StatusOK)
		want = winner + want
		webtest.EqualJSON(t, want+"\n", got.Body)
		require.Equal(t, 1, strings.Count(got.Body, "\n"), "a document is one line")
		etag := ""
		if !strings.Contains(want, "conflicts") && !strings.Contains(want, "info") {
			etag = `"3-c"`
		}
		require.Equal(t, etag, got.Header.Get("ETag"), query)

		head := n.Do(http.MethodHead, "/db/doc"+query, "")
		require.Equal(t, webtest.Answer{Status: got.Status}, webtest.Answer{Status: head.Status, Body: head.Body})
		for _, name := range []string{"ETag", "Content-Length", "Content-Type"} {
			require.Equal(t, got.Header.Get(name), head.Header.Get(name))
		}
	}

	require.Equal(t, `{"_id":"doc","_rev":"2-b","v":"b"}`+"\n", n.Get("/db/doc?rev=2-b").Body)
	require.Equal(t, `{"_id":"doc","_rev":"2-a","v":"a","_deleted":true}`+"\n", n.Get("/db/doc?rev=2-a").Body)
	require.Regexp(t, `^\{"_id":"doc","_rev":"3-c","v":"c","w":"\\n","_conflicts":\["2-b"\],"_local_seq":"3-[0-9a-f]{24}"\}\n$`,
		n.Get("/db/doc?local_seq=true&conflicts=true").Body)
}

func TestGetDocumentThatIsNotThere(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.conflicted()
	n.replicated(db, "gone", `{}`, true, []string{"b", "a"})
	for target, reason := range map[string]string{
		"/db/no":                           "missing",
		"/db/_other":                       "missing",
		"/db/_design/no":                   "missing",
		"/db/_design%2Fno":                 "missing",
		"/db/_local/no":                    "missing",
		"/db/doc?rev=2-x":                  "missing",
		"/db/doc?rev=1-zz":                 "missing",
		"/db/gone":                         "deleted",
		"/db/gone?meta=true":               "deleted",
		"/db/gone?rev=2-b&latest=true":     "deleted",
		"/db/no?open_revs=all":             "missing",
		"/db/_local/no?open_revs=all":      "missing",
		"/db/no/att":                       "missing",
		"/db/gone/att":                     "deleted",
		"/db/doc/att":                      "Document is missing attachment",
		"/db/doc/att/with/slashes":         "Document is missing attachment",
		"/db/_design/no/att":               "missing",
		"/no/doc":                          "Database does not exist.",
		"/no/_all_docs":                    "Database does not exist.",
		"/no%2Fsuch/doc?open_revs=all":     "Database does not exist.",
		"/db/_" + strings.Repeat("a", 10):  "missing",
		"/db/" + strings.Repeat("a", 5000): "missing",
	} {
		webtest.Refused(t, n.Get(target), http.StatusNotFound, "not_found", reason)
		require.Equal(t, http.StatusNotFound, n.Do(http.MethodHead, target, "").Status)
	}
	got := n.Do(http.MethodPost, "/no/_bulk_get", `{"docs":[]}`)
	webtest.Refused(t, got, http.StatusNotFound, "not_found", "Database does not exist.")
}

func TestDocumentParameters(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.conflicted()
	for query, want := range map[string]string{
		"rev=3":                   "bad_request: Invalid rev format: `rev` must be a number, a dash and an id, as 1-967a00dff5e02add41819138abb3284d",
		"rev=":                    "bad_request: Invalid rev format: `rev` must be a number, a dash and an id, as 1-967a00dff5e02add41819138abb3284d",
		"open_revs=%5B%223%22%5D": "bad_request: Invalid rev format: `open_revs` must be a number, a dash and an id, as 1-967a00dff5e02add41819138abb3284d",
		"open_revs=some":          "bad_request: invalid UTF-8 JSON",
		"atts_since=1-a":          "bad_request: invalid UTF-8 JSON",
		"revs=1":                  "query_parse_error: Invalid value for boolean parameter `revs`: it must be true or false",
		"attachments=":            "query_parse_error: Invalid value for boolean parameter `attachments`: it must be true or false",
		"x=%zz":                   "query_parse_error: the query of the URL is not percent-encoded as it should be",
	} {
		code, reason, _ := strings.Cut(want, ": ")
		webtest.Refused(t, n.Get("/db/doc?"+query), http.StatusBadRequest, code, reason)
	}
	n.Do(http.MethodTrace, "/db/doc", "").Is(t, http.StatusMethodNotAllowed)
}

func TestDocumentThatTheClientHas(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.conflicted()
	_, err := db.PutLocal(t.Context(), "_local/x", "", docjson.Must(`{"a":1}`))
	require.NoError(t, err)
	local := n.Get("/db/_local/x").Header.Get("ETag")
	for header, target := range map[string]string{
		`"3-c"`:       "/db/doc",
		`W/"3-c"`:     "/db/doc",
		`"x", "3-c"`:  "/db/doc?revs=true",
		`"1-x","2-b"`: "/db/doc?rev=2-b&meta=true",
		local:         "/db/_local/x",
	} {
		got := n.Do(http.MethodGet, target, "", "If-None-Match", header).Is(t, http.StatusNotModified)
		require.Empty(t, got.Body)
		require.Contains(t, header, got.Header.Get("ETag"))
		require.NotEmpty(t, got.Header.Get("ETag"))
	}
	for _, target := range []string{"/db/doc?rev=2-b", "/db/doc?meta=true", "/db/doc?local_seq=true"} {
		require.Equal(t, http.StatusOK, n.Do(http.MethodGet, target, "", "If-None-Match", `"3-c"`).Status)
	}
	// Local documents may have another content with the same revision.
	_, err = db.PutLocal(t.Context(), "_local/x", "", docjson.Must(`{"a":2}`))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, n.Do(http.MethodGet, "/db/_local/x", "", "If-None-Match", local).Status)
}

func TestGetLocalDocument(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.conflicted()
	_, err := db.PutLocal(t.Context(), "_local/a/b", "0-6", docjson.Must(`{"a":1}`))
	require.NoError(t, err)
	for target, want := range map[string]string{
		"/db/_local%2Fa%2Fb":                `{"_id":"_local/a/b","_rev":"0-7","a":1}`,
		"/db/_local/a%2Fb?attachments=true": `{"_id":"_local/a/b","_rev":"0-7","a":1}`,
		"/db/_local/a%2Fb?revs=true":        `{"_id":"_local/a/b","_rev":"0-7","a":1,"_revisions":{"start":0,"ids":["7"]}}`,
	} {
		require.Equal(t, want+"\n", n.Get(target).Body)
	}
	got := n.Do(http.MethodGet, "/db/_local/a%2Fb?open_revs=%5B%221-a%22%5D", "", "Accept", "application/json")
	require.Equal(t, `[{"missing":"1-a"}]`+"\n", got.Body)
	webtest.Refused(t, n.Get("/db/_local/a%2Fb?rev=1-a"), http.StatusNotFound, "not_found", "missing")
	webtest.Refused(t, n.Get("/db/_local/x/att"), http.StatusBadRequest, "bad_request", "_local documents do not accept attachments.")
	webtest.Refused(t, n.Get("/db/_local%2F"), http.StatusBadRequest, "bad_request", "Invalid _local document id.")
}

// attached makes a document doc whose revision 2-b has the attachment old.txt of 1-a and
// new.txt, which are stored as gzip.
func (n *node) attached() *docstore.Database {
	n.Helper()
	db := n.NewDatabase("db")
	old := n.upload(db, "doc", "old.txt", "text/plain", strings.NewReader("old"), docstore.UploadOptions{})
	n.replicated(db, "doc", `{}`, false, []string{"a"}, old)
	unknown := n.upload(db, "doc", "new.txt", "text/plain", strings.NewReader(webtest.Gzipped(n.T, "new")), docstore.UploadOptions{Encoding: "gzip"})
	n.replicated(db, "doc", `{}`, false, []string{"b", "a"}, unknown, docstore.EditAttachment{Name: "old.txt"})
	return db
}

func TestDocumentWithAttachments(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.attached()
	const (
		oldStub  = `"old.txt":{"content_type":"text/plain","revpos":1,"digest":"OLD","length":3,"stub":true}`
		oldData  = `"old.txt":{"content_type":"text/plain","revpos":1,"digest":"OLD","data":"b2xk"}`
		new0     = `"new.txt":{"content_type":"text/plain","revpos":2,"digest":"NEW",`
		encoding = `,"encoding":"gzip","encoded_length":SIZE`
	)
	stored := webtest.Gzipped(t, "new")
	size := strconv.Itoa(len(stored))
	for query, want := range map[string]string{
		// The length of new.txt was not declared.
		"":                       new0 + `"length":SIZE,"stub":true},` + oldStub,
		"att_encoding_info=true": new0 + `"length":SIZE,"stub":true` + encoding + `},` + oldStub,
		"attachments=true":       new0 + `"data":"bmV3"},` + oldData,
		"attachments=true&att_encoding_info=true": new0 + `"data":"bmV3"` + encoding + `},` + oldData,
		"atts_since=%5B%221-a%22%5D":              new0 + `"data":"bmV3"},` + oldStub,
		"atts_since=%5B%229-z%22,%222-b%22%5D":    new0 + `"length":SIZE,"stub":true},` + oldStub,
		"atts_since=%5B%221-z%22%5D":              new0 + `"data":"bmV3"},` + oldData,
		"atts_since=%5B%5D":                       new0 + `"data":"bmV3"},` + oldData,
		"attachments=true&rev=2-b":                new0 + `"data":"bmV3"},` + oldData,
	} {
		got := n.Do(http.MethodGet, "/db/doc?"+query, "", "Accept", "application/json")
		want = strings.NewReplacer("OLD", digest("old"), "NEW", digest(stored), "SIZE", size).Replace(want)
		require.Equal(t, `{"_id":"doc","_rev":"2-b","_attachments":{`+want+"}}\n", got.Body, query)
		require.Equal(t, `"2-b"`, got.Header.Get("ETag"))
		require.Equal(t, "application/json", got.Header.Get("Content-Type"))
		require.Empty(t, n.Do(http.MethodHead, "/db/doc?"+query, "", "Accept", "application/json").Body)
	}
}

func TestDocumentAsMultipart(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.attached()
	for _, accept := range []string{"multipart/related", "multipart/*", "*/*", "text/html, multipart/related;q=0.5", ""} {
		var headers []string
		if accept != "" {
			headers = []string{"Accept", accept}
		}
		got := n.Do(http.MethodGet, "/db/doc?atts_since=%5B%221-a%22%5D", "", headers...).Is(t, http.StatusOK)
		all := webtest.Parts(t, got.Header.Get("Content-Type"), got.Body)
		require.Len(t, all, 2)
		require.Equal(t, map[string][]string{"Content-Type": {"application/json"}}, all[0].Header)
		document := decode(t, all[0].Body).(map[string]any)["_attachments"].(map[string]any)
		require.Equal(t, true, document["old.txt"].(map[string]any)["stub"])
		require.Equal(t, true, document["new.txt"].(map[string]any)["follows"])
		require.Equal(t, "gzip", document["new.txt"].(map[string]any)["encoding"])
		require.Equal(t, webtest.Part{Header: map[string][]string{
			"Content-Disposition": {`attachment; filename="new.txt"`}, "Content-Type": {"text/plain"},
			"Content-Length": {strconv.Itoa(len(webtest.Gzipped(t, "new")))}, "Content-Encoding": {"gzip"},
		}, Body: webtest.Gzipped(t, "new")}, all[1])
	}
	// Without attachments to follow, the answer is JSON.
	for target, accept := range map[string]string{
		"/db/doc":                                 "multipart/related",
		"/db/doc?atts_since=%5B%222-b%22%5D":      "multipart/related",
		"/db/doc?attachments=true":                "application/json",
		"/db/doc?attachments=true&revs=true":      "*/*, multipart/related;q=0",
		"/db/doc?attachments=true&conflicts=true": "*/*;q=0",
	} {
		got := n.Do(http.MethodGet, target, "", "Accept", accept)
		require.Equal(t, "application/json", got.Header.Get("Content-Type"), accept)
		require.Equal(t, "doc", got.JSON(t)["_id"])
	}
}

// A name that a client chose does not become a header.
func TestPartsHeadersAreNotTheClients(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	const id = "a\r\nX-Evil: 1"
	n.replicated(db, id, `{}`, false, []string{"a"},
		n.upload(db, id, "ü \"x\"\r\nX-Evil: 1", "text/plain", strings.NewReader("text"), docstore.UploadOptions{}))
	related := n.Do(http.MethodGet, "/db/a%0D%0AX-Evil:%201?attachments=true", "")
	mixed := n.Do(http.MethodPost, "/db/_bulk_get", `{"docs":[{"id":"a\r\nX-Evil: 1"}]}`, "Accept", "multipart/mixed")
	outer := webtest.Parts(t, mixed.Header.Get("Content-Type"), mixed.Body)
	require.Len(t, outer, 1)
	require.Equal(t, map[string][]string{"X-Doc-Id": {"a__X-Evil: 1"}, "X-Rev-Id": {"1-a"}}, outer[0].Header)
	for _, all := range [][]webtest.Part{webtest.Parts(t, related.Header.Get("Content-Type"), related.Body), outer[0].Parts} {
		require.Len(t, all, 2)
		require.Equal(t, webtest.Part{Header: map[string][]string{
			"Content-Disposition": {`attachment; filename="ü \"x\"__X-Evil: 1"; filename*=UTF-8''%C3%BC%20%22x%22%0D%0AX-Evil%3A%201`}, "Content-Type": {"text/plain"},
			"Content-Length": {"4"},
		}, Body: "text"}, all[1])
	}
}

// The names of attachments can be read from an answer, and the document can be written back with them.
func TestNamesOfParts(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	for i, test := range []struct{ name, want string }{
		{"plain.txt", `attachment; filename="plain.txt"`},
		{"a b/c;d=e", `attachment; filename="a b/c;d=e"`},
		{`say "x"; filename="y`, `attachment; filename="say \"x\"; filename=\"y"`},
		{`back\slash\`, `attachment; filename="back\\slash\\"`},
		{"ü\u2028名", "attachment; filename=\"ü\u2028名\"; filename*=UTF-8''%C3%BC%E2%80%A8%E5%90%8D"},
		{"a\x00b\r\nc\x7f\u0085", "attachment; filename=\"a_b__c__\"; filename*=UTF-8''a%00b%0D%0Ac%7F%C2%85"},
		{"50% + 'x'", `attachment; filename="50% + 'x'"`},
	} {
		id := fmt.Sprint("doc", i)
		n.replicated(db, id, `{}`, false, []string{"a"},
			n.upload(db, id, test.name, "text/plain", strings.NewReader("text"), docstore.UploadOptions{}))
		got := n.Do(http.MethodGet, "/db/"+id+"?attachments=true&revs=true", "")
		kind := got.Header.Get("Content-Type")
		all := webtest.Parts(t, kind, got.Body)
		require.Len(t, all, 2)
		require.Equal(t, []string{test.want}, all[1].Header["Content-Disposition"])
		_, params, err := mime.ParseMediaType(test.want)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"filename": test.name}, params)

		n.Do(http.MethodPut, "/copy", "")
		n.Do(http.MethodPut, "/copy/"+id+"?new_edits=false", got.Body, "Content-Type", kind).Is(t, http.StatusCreated)
		require.Equal(t, "text", n.Get("/copy/"+id+"/"+strings.ReplaceAll(url.PathEscape(test.name), "+", "%2B")).Body)
	}
}
