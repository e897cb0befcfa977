package databases_test

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/internal/testkit"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

const conflict = `{"error":"conflict","reason":"Document update conflict."}` + "\n"

func TestPutDocument(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	first := n.Put("/db/a", `{"_id":"other","v":1}`).Is(t, http.StatusCreated)
	require.Equal(t, `{"ok":true,"id":"a","rev":"`+first.Rev(t)+`"}`+"\n", first.Body)
	require.Equal(t, `{"v":1}`, string(n.doc(db, "a").Body))

	// The revision is in the document, in the query or in a header.
	rev := first.Rev(t)
	second := n.Put("/db/a", `{"_rev":"`+rev+`","v":2}`).Is(t, http.StatusCreated)
	third := n.Put("/db/a?rev="+second.Rev(t), `{"v":3}`).Is(t, http.StatusCreated)
	fourth := n.Put("/db/a", `{"v":4}`, "If-Match", `"`+third.Rev(t)+`"`).Is(t, http.StatusCreated)
	rev = fourth.Rev(t)
	fifth := n.Put("/db/a?rev="+rev, `{"v":5,"_rev":"`+rev+`"}`, "If-Match", rev).Is(t, http.StatusCreated)
	require.True(t, strings.HasPrefix(fifth.Rev(t), "5-"))
	rev = fifth.Rev(t)
	for _, stale := range []string{"?rev=" + first.Rev(t), "", "?rev=7-x"} {
		got := n.Put("/db/a"+stale, `{}`).Is(t, http.StatusConflict)
		require.Equal(t, conflict, got.Body)
	}

	deleted := n.Put("/db/a?rev="+rev, `{"_deleted":true,"why":1}`).Is(t, http.StatusOK)
	require.Equal(t, `"`+deleted.Rev(t)+`"`, deleted.Header.Get("ETag"))
	again := n.Put("/db/a", `{}`).Is(t, http.StatusCreated)
	require.True(t, strings.HasPrefix(again.Rev(t), "7-"))

	batch := n.Put("/db/b?batch=ok", `{"v":1}`).Is(t, http.StatusAccepted)
	require.Equal(t, `{"ok":true,"id":"b"}`+"\n", batch.Body)
	require.Equal(t, `{"v":1}`, string(n.doc(db, "b").Body))
}

func TestPutDocumentIDs(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("a/b")
	for path, want := range map[string]struct{ id, location string }{
		"_design/x":           {"_design/x", "_design%2Fx"},
		"_design%2Fy":         {"_design/y", "_design%2Fy"},
		"_design/a%2Fb":       {"_design/a/b", "_design%2Fa%2Fb"},
		"c%2Fd:e~f@g!":        {"c/d:e~f@g!", "c%2Fd:e%7Ef%40g%21"},
		"100%25+%2B%E2%9C%93": {"100% +✓", "100%25%20%2B%E2%9C%93"},
	} {
		got := n.Put("/a%2Fb/"+path, `{}`, "X-Forwarded-Host", "couch.example", "X-Forwarded-Proto", "https").Is(t, http.StatusCreated)
		require.Equal(t, want.id, got.JSON(t)["id"])
		require.Equal(t, "https://couch.example/a%2Fb/"+want.location, got.Header.Get("Location"))
		n.doc(db, want.id)
	}
	for path, want := range map[string][2]string{
		"_x":         {"illegal_docid", "Only reserved document ids may start with underscore."},
		"_design":    {"illegal_docid", "Only reserved document ids may start with underscore."},
		"_design%2F": {"illegal_docid", "Illegal document id `_design/`"},
		"_local":     {"bad_request", "Invalid _local document id."},
		"_local%2F":  {"bad_request", "Invalid _local document id."},
		"%ff":        {"illegal_docid", "Document id must be valid UTF-8"},
	} {
		for _, method := range []string{http.MethodPut, http.MethodDelete, "COPY"} {
			webtest.Refused(t, n.Do(method, "/a%2Fb/"+path, `{}`), http.StatusBadRequest, want[0], want[1])
		}
	}
	webtest.Refused(t, n.Put("/none/x", `{}`), http.StatusNotFound, "not_found", "Database does not exist.")
}

func TestPutReplicated(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	for _, write := range []struct{ target, body string }{
		{"/db/a?new_edits=false", `{"_rev":"2-b","_revisions":{"start":2,"ids":["b","a"]},"v":1}`},
		{"/db/a?new_edits=false", `{"_rev":"2-b","v":"not looked at: it is there"}`},
		{"/db/a?new_edits=false&rev=2-c", `{"v":2}`},
	} {
		n.Put(write.target, write.body).Is(t, http.StatusCreated)
	}
	doc, err := db.Get(t.Context(), "a", docstore.GetOptions{Conflicts: true})
	require.NoError(t, err)
	require.Equal(t, "2-c", doc.Rev.String())
	require.Equal(t, []docstore.Rev{{Pos: 2, ID: "b"}}, doc.Conflicts)
	webtest.Refused(t, n.Put("/db/a?new_edits=false", `{"v":1}`), http.StatusBadRequest, "bad_request",
		"When `new_edits: false`, the document needs `_rev` or `_revisions` specified")
	webtest.Refused(t, n.Put("/db/a?new_edits=no", `{"v":1}`), http.StatusBadRequest, "query_parse_error",
		"Invalid value for boolean parameter `new_edits`: it must be true or false")
	got := n.Put("/db/a?new_edits=false", `{"_revisions":{"start":1,"ids":["b","a"]}}`).Is(t, http.StatusBadRequest)
	require.Equal(t, "bad_request", got.JSON(t)["error"])
}

// What CouchDB's replicator says in a document is part of it.
func TestReplicationStateIsKept(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	const body = `{"v":1,"_replication_state":"failed","_replication_state_reason":"no \u00fc"}`
	require.Equal(t, http.StatusCreated, n.Put("/db/a", body).Status)
	require.Equal(t, body, string(n.doc(db, "a").Body))
}

func TestBadDocuments(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	rev := n.Put("/db/a", `{}`).Rev(t)
	for _, test := range []struct {
		target, body string
		headers      []string
		status       int
		code, reason string
	}{
		{"/db/a", "", nil, 400, "bad_request", "Missing request body"},
		{"/db/a", `{`, nil, 400, "bad_request", "invalid UTF-8 JSON"},
		{"/db/a", `[]`, nil, 400, "bad_request", "Document must be a JSON object"},
		{"/db/a", `{"_rev":"x"}`, nil, 400, "bad_request", "Invalid rev format"},
		{"/db/a?rev=", `{}`, nil, 400, "bad_request", "Invalid rev format"},
		{"/db/a?rev=1", `{}`, nil, 400, "bad_request", "Invalid rev format"},
		{"/db/a", `{}`, []string{"If-Match", "*"}, 400, "bad_request", "Invalid rev format"},
		{"/db/a?rev=2-x", `{"_rev":"1-x"}`, nil, 400, "bad_request", "Document rev from request body and query string have different values"},
		{"/db/a?rev=2-x", `{}`, []string{"If-Match", `"1-x"`}, 400, "bad_request", "Document rev and etag have different values"},
		{"/db/a?rev=%zz", `{}`, nil, 400, "query_parse_error", "the query of the URL is not percent-encoded as it should be"},
		{"/db/a?rev=" + rev, `{"_attachments":{"f":{"stub":true}}}`, nil, 412, "missing_stub", "Invalid attachment stub in a for f"},
		{"/db/a?rev=" + rev, `{"_attachments":{"f":{"data":"x"}}}`, nil, 400, "bad_request", "Invalid attachment data for f"},
		{"/db/a?rev=" + rev, `{"_attachments":{"f":{"follows":true}}}`, nil, 400, "bad_request", `the attachment "f" cannot follow: the body is not multipart/related`},
		{"/db/a?rev=" + rev, `{}`, []string{"Content-Encoding", "br"}, 415, "bad_content_type", "Content-Encoding must be gzip or identity"},
		{"/db/a?rev=" + rev, `{}`, []string{"Content-Encoding", "gzip"}, 400, "bad_request", "the request body is not compressed as its Content-Encoding says"},
	} {
		webtest.Refused(t, n.Put(test.target, test.body, test.headers...), test.status, test.code, test.reason)
	}
}

// TestStubsOfOtherBytes: a stub whose digest or length is not that of the stored bytes is not taken, whatever its revpos says.
func TestStubsOfOtherBytes(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	const hello, other = `"digest":"md5-XUFAKrxLKna5cZ2REBfFkg=="`, `"digest":"md5-AAAAAAAAAAAAAAAAAAAAAA=="`
	for stub, status := range map[string]int{
		`"revpos":0,` + other: 412, `"revpos":1,` + other: 412, other: 412, `"revpos":1,"length":0`: 412, `"revpos":0`: 412,
		`"revpos":1,"length":5,` + hello: 201, hello: 201, `"length":5,"digest":"md5-"`: 201, `"digest":"sha1-xx"`: 201,
	} {
		id := "/db/" + url.PathEscape(stub)
		n.Put(id+"?new_edits=false", `{"_rev":"1-a","_attachments":{"f":{"data":"aGVsbG8="}}}`).Is(t, http.StatusCreated)
		second := `{"_revisions":{"start":2,"ids":["b","a"]},"_attachments":{"f":{"stub":true,` + stub + `}}}`
		got := n.Put(id+"?new_edits=false", second)
		require.Equal(t, status, got.Status, stub)
		// What a replicator does then.
		follows := `{"_revisions":{"start":2,"ids":["b","a"]},"_attachments":{"f":{"follows":true,"length":3,"revpos":0}}}`
		if status == http.StatusPreconditionFailed {
			n.Put(id+"?new_edits=false", related(follows, "new"), "Content-Type", relatedType).Is(t, http.StatusCreated)
			require.Equal(t, "new", n.Get(id+"/f").Body)
		} else {
			require.Equal(t, "hello", n.Get(id+"/f").Body)
		}
	}
}

// What little becomes very much is refused before it does.
func TestCompressedBodyThatGrows(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	const megabyte = 1 << 20
	compressed := func(chunk []byte, times int) string { // in members, which gzip allows: the chunk is compressed once
		return strings.Repeat(webtest.Gzipped(t, string(chunk)), times) + webtest.Gzipped(t, `{}`)
	}
	uniform := bytes.Repeat([]byte(" "), megabyte)
	n.Put("/db/small", compressed(uniform, 60), "Content-Encoding", "gzip").Is(t, http.StatusCreated)
	various := make([]byte, megabyte)
	for i := range various {
		various[i] = " \t\r\n"[rand.IntN(4)]
	}
	n.Put("/db/various", compressed(various, 70), "Content-Encoding", "gzip").Is(t, http.StatusCreated)

	bomb := compressed(uniform, 70)
	for _, target := range []string{"/db/bomb", "/db/_local/bomb"} {
		webtest.Refused(t, n.Put(target, bomb, "Content-Encoding", "gzip"), http.StatusRequestEntityTooLarge, "too_large",
			"the request body becomes more than 32 times as large when it is decompressed, which only one of up to 67108864 bytes may: send it as it is, or in several requests")
	}
	require.Equal(t, http.StatusRequestEntityTooLarge,
		n.Do(http.MethodPost, "/db/_bulk_docs", bomb, "Content-Encoding", "gzip", "Content-Type", "application/json").Status)
}

func TestCompressedBody(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/max_http_request_size=3000")
	db := n.NewDatabase("db")
	text := webtest.Gzipped(t, `{"v":"`+strings.Repeat("x", 2000)+`"}`)
	n.Put("/db/a", text, "Content-Encoding", "gzip").Is(t, http.StatusCreated)
	require.Len(t, n.doc(db, "a").Body, 2008)
	corrupt := func(at int) string { return text[:at] + "\xff" + text[at+1:] }
	for name, bad := range map[string]string{
		"truncated": text[:len(text)-9], "header": corrupt(1), "block": corrupt(10), "within the block": corrupt(20), "checksum": corrupt(len(text) - 8),
	} {
		t.Run(name, func(t *testing.T) {
			webtest.Refused(t, n.Put("/db/b", bad, "Content-Encoding", "gzip"), http.StatusBadRequest, "bad_request",
				"the request body is not compressed as its Content-Encoding says")
		})
	}
	webtest.Refused(t, n.Put("/db/b", webtest.Gzipped(t, `{"v":"`+strings.Repeat("x", 4000)+`"}`), "Content-Encoding", "gzip"),
		http.StatusRequestEntityTooLarge, "too_large",
		"the request body has more than 3000 bytes, which is the limit ([chttpd] max_http_request_size)")
}

func TestPostDocument(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	made := n.PostJSON("/db", `{"v":1,"_rev":"1-of_another"}`).Is(t, http.StatusCreated)
	id := made.JSON(t)["id"].(string)
	require.Regexp(t, "^[0-9a-f]{32}$", id)
	require.Equal(t, "http://"+n.Address+"/db/"+id, made.Header.Get("Location"))
	require.Empty(t, made.Header.Get("ETag"))
	require.Equal(t, `{"v":1}`, string(n.doc(db, id).Body))

	named := n.PostJSON("/db/", `{"_id":"_design/x","_attachments":{"f":{"data":"aGVsbG8="}}}`)
	require.Equal(t, `{"ok":true,"id":"_design/x","rev":"`+named.Rev(t)+`"}`+"\n", named.Body)
	require.Equal(t, "hello", n.content(db, n.doc(db, "_design/x"), "f"))
	require.Equal(t, conflict, n.PostJSON("/db", `{"_id":"_design/x"}`).Body)
	n.PostJSON("/db", `{"_id":"_design/x","_rev":"`+named.Rev(t)+`","_attachments":{"f":{"stub":true}}}`).Is(t, http.StatusCreated)
	local := n.PostJSON("/db", `{"_id":"_local/x","v":1}`)
	require.Equal(t, "0-1", local.Rev(t))
	batch := n.PostJSON("/db?batch=ok", `{"_id":"b"}`).Is(t, http.StatusAccepted)
	require.Equal(t, `{"ok":true,"id":"b"}`+"\n", batch.Body)
	n.doc(db, "b")

	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded"} {
		for _, path := range []string{"/db", "/db/_bulk_docs"} {
			webtest.Refused(t, n.Do(http.MethodPost, path, `{}`, "Content-Type", kind), http.StatusUnsupportedMediaType,
				"bad_content_type", "Content-Type must be application/json")
		}
	}
	require.Equal(t, http.StatusCreated, n.Do(http.MethodPost, "/db", `{}`, "Content-Type", "Application/JSON; charset=utf-8").Status)
	webtest.Refused(t, n.PostJSON("/db", `{"_id":"_x"}`), http.StatusBadRequest, "illegal_docid", "Only reserved document ids may start with underscore.")
}

func TestDeleteDocument(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	rev := n.Put("/db/a", `{}`).Rev(t)
	webtest.Refused(t, n.Do(http.MethodDelete, "/db/none?rev=1-x", ""), http.StatusNotFound, "not_found", "missing")
	require.Equal(t, conflict, n.Do(http.MethodDelete, "/db/a", "").Body)
	require.Equal(t, conflict, n.Do(http.MethodDelete, "/db/a?rev=1-x", "").Body)
	webtest.Refused(t, n.Do(http.MethodDelete, "/db/a?rev=x", ""), http.StatusBadRequest, "bad_request", "Invalid rev format")
	deleted := n.Do(http.MethodDelete, "/db/a", "", "If-Match", `"`+rev+`"`).Is(t, http.StatusOK)
	require.Equal(t, `{"ok":true,"id":"a","rev":"`+deleted.Rev(t)+`"}`+"\n", deleted.Body)
	require.Equal(t, `"`+deleted.Rev(t)+`"`, deleted.Header.Get("ETag"))
	webtest.Refused(t, n.Do(http.MethodDelete, "/db/a?rev="+deleted.Rev(t), ""), http.StatusNotFound, "not_found", "deleted")
}

func TestLocalDocuments(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	first := n.Put("/db/_local%2Fa", `{"v":1}`)
	require.Equal(t, `{"ok":true,"id":"_local/a","rev":"0-1"}`+"\n", first.Body)
	require.Equal(t, "http://"+n.Address+"/db/_local%2Fa", first.Header.Get("Location"))
	require.Regexp(t, `^"[0-9A-Z]+"$`, first.Header.Get("ETag"))
	require.Equal(t, "0-2", n.Put("/db/_local/a", `{"v":2,"_rev":"0-1"}`).Rev(t))
	require.Equal(t, "0-3", n.Put("/db/_local/a?rev=0-2", `{"v":3}`).Rev(t))
	doc, err := db.GetLocal(t.Context(), "_local/a")
	require.NoError(t, err)
	require.Equal(t, `{"v":3}`, string(doc.Body))
	webtest.Refused(t, n.Put("/db/_local/a", `{"_rev":"1-abc"}`), http.StatusBadRequest, "bad_request", "Invalid rev format")
	require.Equal(t, "0-4", n.Put("/db/_local/a?rev=0-3", `{"v":4,"_attachments":{"f":{"data":""}}}`).Rev(t), "without the attachment")
	require.Equal(t, `{"_id":"_local/a","_rev":"0-4","v":4}`+"\n", n.Get("/db/_local/a").Body)
	for _, got := range []webtest.Answer{
		n.Put("/db/_local/a/f", "x"),
		n.Do(http.MethodDelete, "/db/_local/a/f?rev=0-3", ""),
	} {
		webtest.Refused(t, got, http.StatusBadRequest, "bad_request", "_local documents do not accept attachments.")
	}

	deleted := n.Do(http.MethodDelete, "/db/_local/a?rev=0-4", "").Is(t, http.StatusOK)
	require.Equal(t, `{"ok":true,"id":"_local/a","rev":"0-0"}`+"\n", deleted.Body)
	webtest.Refused(t, n.Do(http.MethodDelete, "/db/_local/a", ""), http.StatusNotFound, "not_found", "missing")
	n.Put("/db/_local/a", `{}`)
	n.Put("/db/_local/a", `{"_deleted":true}`).Is(t, http.StatusOK)
	_, err = db.GetLocal(t.Context(), "_local/a")
	require.ErrorIs(t, err, docstore.ErrNotFound)
}

func TestCopyDocument(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	source := n.Put("/db/a", `{"v":1,"_attachments":{"f":{"data":"aGVsbG8=","content_type":"text/plain"}}}`)
	gzipped := n.Put("/db/a/g?rev="+source.Rev(t), "xyz", "Content-Encoding", "gzip").Is(t, http.StatusCreated)

	copied := n.Do("COPY", "/db/a", "", "Destination", "b%2Fc").Is(t, http.StatusCreated)
	require.Equal(t, `{"ok":true,"id":"b/c","rev":"`+copied.Rev(t)+`"}`+"\n", copied.Body)
	require.Equal(t, `"`+copied.Rev(t)+`"`, copied.Header.Get("ETag"))
	require.Equal(t, "http://"+n.Address+"/db/b%2Fc", copied.Header.Get("Location"))
	doc := n.doc(db, "b/c")
	require.Equal(t, `{"v":1}`, string(doc.Body))
	require.Equal(t, "hello", n.content(db, doc, "f"))
	require.Equal(t, "text/plain", doc.Attachments[1].Type)
	require.Equal(t, "xyz", n.content(db, doc, "g"))
	require.Equal(t, "gzip", doc.Attachments[0].Encoding)

	require.Equal(t, conflict, n.Do("COPY", "/db/a", "", "Destination", "b%2Fc").Body)
	n.Put("/db/other", `{"v":2}`)
	n.Do("COPY", "/db/other", "", "Destination", "b%2Fc?rev="+copied.Rev(t)).Is(t, http.StatusCreated)
	require.Equal(t, `{"v":2}`, string(n.doc(db, "b/c").Body))
	require.Equal(t, http.StatusCreated, n.Do("COPY", "/db/a?rev="+gzipped.Rev(t), "", "Destination", "d").Status)
	require.Equal(t, http.StatusCreated, n.Do("COPY", "/db/a", "", "Destination", "e", "If-Match", gzipped.Rev(t)).Status)

	local := n.Do("COPY", "/db/other", "", "Destination", "_local/x")
	require.Equal(t, "0-1", local.Rev(t))
	require.Equal(t, http.StatusCreated, n.Do("COPY", "/db/_local/x", "", "Destination", "from-local").Status)
	require.Equal(t, `{"v":2}`, string(n.doc(db, "from-local").Body))

	for destination, reason := range map[string]string{
		"": "Destination header is mandatory for COPY.", "http://a.example/db/x": "Destination URL must be relative.",
		"x?rev=1": "Invalid rev format", "%zz": "the Destination header is not percent-encoded as it should be",
	} {
		webtest.Refused(t, n.Do("COPY", "/db/a", "", "Destination", destination), http.StatusBadRequest, "bad_request", reason)
	}
	webtest.Refused(t, n.Do("COPY", "/db/a", "", "Destination", "_x"), http.StatusBadRequest, "illegal_docid", "Only reserved document ids may start with underscore.")
	webtest.Refused(t, n.Do("COPY", "/db/none", "", "Destination", "x"), http.StatusNotFound, "not_found", "missing")
	n.Do("COPY", "/db/a", "", "Destination", "_local/y").Is(t, http.StatusCreated) // without the attachments
}

// A hook refuses a document with the same words however it is written.
func TestRefusedByAHook(t *testing.T) {
	t.Parallel()
	hooks := docstore.Hooks{Before: func(_ kv.Transaction, _ *docstore.Database, change *docstore.Change) (any, error) {
		if strings.Contains(string(change.Body.Bytes()), "bad") || strings.Contains(string(change.Body.Bytes()), "unauth") {
			return nil, &replicator.ParseError{Field: "bad", Reason: "bad document"}
		}
		return nil, nil
	}}
	n := startWith(t, webtest.Memory(t), webtest.ListenTCP(t), hooks)
	db := n.NewDatabase("wirev")
	before := n.rows()
	for _, got := range []webtest.Answer{
		n.Put("/wirev/x", `{"bad":true,"_attachments":{"f":{"data":"aGVsbG8="}}}`), n.PostJSON("/wirev", `{"_id":"x","bad":true}`),
	} {
		webtest.Refused(t, got, http.StatusForbidden, "forbidden", "bad document")
	}
	require.Equal(t, before, n.rows())
	got := n.Send(webtest.Recorded(t, 50))
	require.Equal(t, `[{"id":"no","rev":"1-aaaa","error":"forbidden","reason":"bad document"},`+
		`{"id":"no2","rev":"1-aaaa","error":"forbidden","reason":"bad document"}]`+"\n", got.Body)
	require.Equal(t, "1-aaaa", n.doc(db, "ok").Rev.String())
}
