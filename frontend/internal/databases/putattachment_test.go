package databases_test

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

func TestPutAttachment(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	first := n.Put("/db/a/x/y%2Fz%20ü.txt", "hello", "Content-Type", "text/plain; charset=utf-8").Is(t, http.StatusCreated)
	require.Equal(t, `{"ok":true,"id":"a","rev":"`+first.Rev(t)+`"}`+"\n", first.Body)
	require.Equal(t, "http://"+n.Address+"/db/a/x%2Fy%2Fz%20%C3%BC.txt", first.Header.Get("Location"))
	require.Empty(t, first.Header.Get("ETag"))
	doc := n.doc(db, "a")
	require.Equal(t, "hello", n.content(db, doc, "x/y/z ü.txt"))
	require.Equal(t, "text/plain; charset=utf-8", doc.Attachments[0].Type)

	// The rest of the document stays as it is.
	second := n.Put("/db/a?rev="+first.Rev(t), `{"v":1,"_attachments":{"x/y/z ü.txt":{"stub":true}}}`)
	third := n.Put("/db/a/b?rev="+second.Rev(t), "").Is(t, http.StatusCreated)
	fourth := n.Put("/db/a/b", "new", "If-Match", `"`+third.Rev(t)+`"`)
	doc = n.doc(db, "a")
	require.Equal(t, fourth.Rev(t), doc.Rev.String())
	require.Equal(t, `{"v":1}`, string(doc.Body))
	require.Equal(t, "hello", n.content(db, doc, "x/y/z ü.txt"))
	require.Equal(t, "new", n.content(db, doc, "b"))
	b, _ := doc.Attachment("b")
	require.Equal(t, "application/octet-stream", b.Type)
	require.Equal(t, int64(4), b.RevPos)

	design := n.Put("/db/_design/d/f", "x")
	require.Equal(t, "_design/d", design.JSON(t)["id"])
	require.Equal(t, "x", n.content(db, n.doc(db, "_design/d"), "f"))

	// A document that was deleted is made anew.
	n.Do(http.MethodDelete, "/db/a?rev="+doc.Rev.String(), "")
	n.Put("/db/a/c", "x").Is(t, http.StatusCreated)
	require.Equal(t, "{}", string(n.doc(db, "a").Body))
}

func TestPutAttachmentRefused(t *testing.T) {
	t.Parallel()
	n := start(t, "couchdb/max_attachment_size=1000", "chttpd/max_http_request_size=5000")
	n.NewDatabase("db")
	rev := n.Put("/db/a", `{}`).Rev(t)
	n.Put("/db/a?rev="+rev, `{"v":1}`)
	before := n.rows()
	for _, target := range []string{"/db/a/f", "/db/a/f?rev=" + rev} {
		got := n.Put(target, "content").Is(t, http.StatusConflict)
		require.Equal(t, conflict, got.Body)
	}
	for _, target := range []string{"/db/a/f?rev=7-x", "/db/none/f?rev=1-x"} {
		webtest.Refused(t, n.Put(target, "content"), http.StatusConflict, "not_found", "missing_rev")
		webtest.Refused(t, n.Do(http.MethodDelete, target, ""), http.StatusConflict, "not_found", "missing_rev")
	}
	for target, reason := range map[string]string{
		"/db/a/_f": "Attachment name '_f' starts with prohibited character '_'", "/db/a/%ff": "Attachment name is not UTF-8 encoded",
		"/db/a/f?rev=x": "Invalid rev format",
	} {
		webtest.Refused(t, n.Put(target, "content"), http.StatusBadRequest, "bad_request", reason)
	}
	webtest.Refused(t, n.Put("/db/b/f", "content", "Content-Encoding", "br"), http.StatusUnsupportedMediaType, "bad_content_type",
		"Only gzip and identity content-encodings are supported")
	webtest.Refused(t, n.Put("/db/b/f", "content", "Content-MD5", "XrY7u+Ae7tCTyyK7j1rNww=="), http.StatusBadRequest, "content_md5_mismatch",
		"Possible message corruption.")
	const tooLarge = `the attachment "f" has more than 1000 bytes, which is the limit ([couchdb] max_attachment_size)`
	webtest.Refused(t, n.Put("/db/b/f", strings.Repeat("x", 1001)), http.StatusRequestEntityTooLarge, "attachment_too_large", tooLarge)
	webtest.Refused(t, n.chunked("/db/b/f", strings.Repeat("x", 1001), ""), http.StatusRequestEntityTooLarge, "attachment_too_large", tooLarge)
	webtest.Refused(t, n.Put("/db/b/f", strings.Repeat("x", 5001)), http.StatusRequestEntityTooLarge, "too_large",
		"the request body has more than 5000 bytes, which is the limit ([chttpd] max_http_request_size)")
	got := n.Put("/db/b", `{"_attachments":{"f":{"data":"`+strings.Repeat("AAAA", 334)+`"}}}`)
	webtest.Refused(t, got, http.StatusRequestEntityTooLarge, "attachment_too_large", tooLarge)
	const control = `invalid document: the content_type of the attachment "f" has a control character`
	webtest.Refused(t, n.Put("/db/b", `{"_attachments":{"f":{"content_type":"a\u0000b","data":""}}}`), http.StatusBadRequest, "doc_validation", control)
	got = n.Put("/db/b?new_edits=false", `{"_rev":"1-a","_attachments":{"f":{"content_type":"a\nb","data":""}}}`)
	webtest.Refused(t, got, http.StatusBadRequest, "doc_validation", control)
	webtest.Refused(t, n.Put("/none/b/f", "x"), http.StatusNotFound, "not_found", "Database does not exist.")
	require.Equal(t, before, n.rows())
	require.Equal(t, http.StatusCreated, n.Put("/db/b/f", strings.Repeat("x", 1000)).Status)
}

// chunked puts an attachment in chunks, with its digest in the trailer if there is one.
func (n *node) chunked(target, content, digest string) webtest.Answer {
	n.Helper()
	conn := n.Connect()
	request := "PUT " + target + " HTTP/1.1\r\n" + webtest.RawHead + "Transfer-Encoding: chunked\r\nTrailer: Content-MD5\r\n\r\n"
	for rest := content; rest != ""; rest = rest[min(len(rest), 100):] {
		request += fmt.Sprintf("%x\r\n%s\r\n", min(len(rest), 100), rest[:min(len(rest), 100)])
	}
	request += "0\r\n"
	if digest != "" {
		request += "Content-MD5: " + digest + "\r\n"
	}
	conn.Send(request + "\r\n")
	got, _ := conn.Answer()
	return got
}

func md5Of(text string) string {
	sum := md5.Sum([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func TestAttachmentDigests(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	text := strings.Repeat("some text ", 50)
	require.Equal(t, http.StatusCreated, n.Put("/db/a/f", text, "Content-MD5", md5Of(text)).Status)
	require.Equal(t, http.StatusCreated, n.chunked("/db/b/f", text, md5Of(text)).Status)
	require.Equal(t, text, n.content(db, n.doc(db, "b"), "f"))
	require.Equal(t, http.StatusCreated, n.chunked("/db/c/f", text, "").Status)
	before := n.rows()
	webtest.Refused(t, n.chunked("/db/d/f", text, md5Of("other")), http.StatusBadRequest, "content_md5_mismatch", "Possible message corruption.")
	require.Equal(t, before, n.rows())

	// An encoded content is stored as it came, and its digest covers the encoded bytes.
	require.Equal(t, http.StatusCreated, n.Put("/db/e/f", "not looked at", "Content-Encoding", "GZIP", "Content-MD5", md5Of("not looked at")).Status)
	a, _ := n.doc(db, "e").Attachment("f")
	require.Equal(t, "gzip", a.Encoding)
	require.Equal(t, "md5-"+md5Of("not looked at"), a.Digest())
}

func TestDeleteAttachment(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	rev := n.Put("/db/a", `{"v":1,"_attachments":{"f":{"data":"aGVsbG8="},"g":{"data":"aGVsbG8="}}}`).Rev(t)
	webtest.Refused(t, n.Do(http.MethodDelete, "/db/none/f", ""), http.StatusNotFound, "not_found", "missing")
	for _, target := range []string{"/db/a/none", "/db/a/none?rev=" + rev} {
		webtest.Refused(t, n.Do(http.MethodDelete, target, ""), http.StatusNotFound, "not_found", "Document is missing attachment")
	}
	require.Equal(t, conflict, n.Do(http.MethodDelete, "/db/a/f", "").Body)
	deleted := n.Do(http.MethodDelete, "/db/a/f?rev="+rev, "").Is(t, http.StatusOK)
	require.Equal(t, `{"ok":true,"id":"a","rev":"`+deleted.Rev(t)+`"}`+"\n", deleted.Body)
	require.Empty(t, deleted.Header.Get("Location"))
	doc := n.doc(db, "a")
	require.Equal(t, `{"v":1}`, string(doc.Body))
	require.Len(t, doc.Attachments, 1)
	require.Equal(t, "hello", n.content(db, doc, "g"))
	require.Equal(t, conflict, n.Do(http.MethodDelete, "/db/a/g?rev="+rev, "").Body)
}

const relatedType = `multipart/related; boundary="abc"`

// related makes a body of a document and contents.
func related(document string, contents ...string) string {
	text := "--abc\r\nContent-Type: application/json\r\n\r\n" + document
	for _, content := range contents {
		text += "\r\n--abc\r\n\r\n" + content
	}
	return text + "\r\n--abc--"
}

func TestPutRelated(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	first := n.Put("/db/a", related(`{"v":1,"_attachments":{
		"f":{"follows":true,"content_type":"text/plain","length":5,"digest":"md5-XUFAKrxLKna5cZ2REBfFkg=="},
		"i":{"data":"aGVsbG8="},
		"z":{"follows":true,"length":9,"encoded_length":3,"encoding":"gzip","revpos":7}}}`, "hello", "abc"), "Content-Type", relatedType)
	require.Equal(t, http.StatusCreated, first.Status, first.Body)
	require.Equal(t, `"`+first.Rev(t)+`"`, first.Header.Get("ETag"))
	require.Equal(t, "http://"+n.Address+"/db/a", first.Header.Get("Location"))
	doc := n.doc(db, "a")
	for name, want := range map[string]string{"f": "hello", "i": "hello", "z": "abc"} {
		require.Equal(t, want, n.content(db, doc, name))
	}
	z, _ := doc.Attachment("z")
	require.Equal(t, "gzip", z.Encoding)
	require.Equal(t, int64(9), z.Length)
	require.Equal(t, int64(1), z.RevPos)

	n.Put("/db/a?rev="+first.Rev(t), related(`{"v":2,"_attachments":{"f":{"stub":true},"n":{"follows":true}}}`, "new"), "Content-Type", relatedType).Is(t, http.StatusCreated)
	doc = n.doc(db, "a")
	require.Equal(t, "hello", n.content(db, doc, "f"))
	require.Equal(t, "new", n.content(db, doc, "n"))
	require.Len(t, doc.Attachments, 2)

	// A replicated revision that is there already keeps its own contents.
	write := related(`{"_revisions":{"start":3,"ids":["c","b","a"]},"_attachments":{"f":{"follows":true,"revpos":2}}}`, "x")
	require.Equal(t, http.StatusCreated, n.Put("/db/r?new_edits=false", write, "Content-Type", relatedType).Status)
	before := n.rows()
	require.Equal(t, http.StatusCreated, n.Put("/db/r?new_edits=false", write, "Content-Type", relatedType).Status)
	require.Equal(t, before, n.rows())
	a, _ := n.doc(db, "r").Attachment("f")
	require.Equal(t, int64(2), a.RevPos)
}

// A document that was refused leaves nothing in the store, even if contents were stored before.
func TestPutRelatedRefused(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	n.Put("/db/there", `{}`)
	before := n.rows()
	const two = `{"_attachments":{"i":{"data":"aGVsbG8="},"f":{"follows":true,"length":5},"g":{"follows":true,"digest":"md5-XUFAKrxLKna5cZ2REBfFkg=="}}}`
	whole := related(two, "12345", "hello")
	for _, test := range []struct {
		target, body string
		status       int
		code, reason string
	}{
		{"/db/there", whole, 409, "conflict", "Document update conflict."},
		{"/db/a", related(two, "12345", "other"), 400, "content_md5_mismatch", "Possible message corruption."},
		{"/db/a", related(`{"_attachments":{"f":{"follows":true,"digest":"md5-XUFAKrxLKna5cZ2REBfFkg==","length":9,"encoded_length":5,
			"encoding":"gzip"}}}`, "other"), 400, "content_md5_mismatch", "Possible message corruption."},
		{"/db/a", related(two, "1234", "hello"), 400, "bad_request", `attachment shorter than expected: "f" should have 5 bytes`},
		{"/db/a", related(two, "12345"), 400, "bad_request", `the content of the attachment "g" is missing`},
		{"/db/a", related(two, "12345", "hello", ""), 400, "bad_request", "the body has more parts than the document has attachments that follow"},
		{"/db/a", whole[:len(whole)-9], 400, "bad_request", "the body ends before its last boundary"},
		{"/db/a", "", 400, "bad_request", "the body ends before its last boundary"},
		{"/db/a", related(`{"_nope":1}`), 400, "doc_validation", "Bad special document member: _nope"},
		{"/db/a?new_edits=false", whole, 400, "bad_request", "When `new_edits: false`, the document needs `_rev` or `_revisions` specified"},
	} {
		webtest.Refused(t, n.Put(test.target, test.body, "Content-Type", relatedType), test.status, test.code, test.reason)
		require.Equal(t, before, n.rows(), test.reason)
	}
	webtest.Refused(t, n.Put("/db/a", whole, "Content-Type", "multipart/related"), http.StatusBadRequest, "bad_request",
		"Content-Type multipart/related must have a boundary")
	require.Equal(t, before, n.rows())
}

// A client that hangs up leaves nothing behind, either.
func TestUploadThatIsBrokenOff(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	before := n.rows()
	content := strings.Repeat("x", 200_000)
	for target, text := range map[string]string{
		"/db/a/f": content, "/db/a": related(`{"_attachments":{"i":{"data":"aGVsbG8="},"f":{"follows":true}}}`, content)[:150_000],
	} {
		conn := n.Connect()
		conn.Send(fmt.Sprintf("PUT %s HTTP/1.1\r\n"+webtest.RawHead+"Content-Length: 1000000\r\nContent-Type: %s\r\n\r\n%s", target, relatedType, text))
		require.NoError(t, conn.Close())
		n.Journal.Line(t, `"path":"`+target+`"`)
	}
	require.Equal(t, before, n.rows())
}
