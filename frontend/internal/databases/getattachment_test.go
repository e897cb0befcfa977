package databases_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/pkg/docstore"
)

func TestGetAttachment(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	for _, id := range []string{"doc/x", "_design/x"} {
		n.replicated(db, id, `{}`, false, []string{"a"},
			n.upload(db, id, "dir/a b.txt", "text/plain; charset=utf-8", strings.NewReader("old"), docstore.UploadOptions{}),
			n.upload(db, id, "empty", "", strings.NewReader(""), docstore.UploadOptions{}))
		n.replicated(db, id, `{}`, false, []string{"b", "a"}, docstore.EditAttachment{Name: "dir/a b.txt"}, docstore.EditAttachment{Name: "empty"})
		n.replicated(db, id, `{}`, false, []string{"c", "a"},
			n.upload(db, id, "dir/a b.txt", "text/plain; charset=utf-8", strings.NewReader("new"), docstore.UploadOptions{}))
	}
	for target, want := range map[string]string{
		"/db/doc%2Fx/dir/a%20b.txt":                         "new",
		"/db/doc%2Fx/dir%2Fa%20b.txt":                       "new",
		"/db/doc%2Fx/dir%2Fa%20b.txt?rev=2-c":               "new",
		"/db/doc%2Fx/dir/a%20b.txt?rev=2-b":                 "old",
		"/db/doc%2Fx/dir/a%20b.txt?rev=1-a&latest=true":     "new",
		"/db/_design/x/dir/a%20b.txt?rev=2-b":               "old",
		"/db/_design%2Fx/dir/a%20b.txt?rev=2-b&unknown=%22": "old",
	} {
		got := n.Get(target).Is(t, http.StatusOK)
		require.Equal(t, want, got.Body, target)
		tag := `"` + strings.TrimPrefix(digest(want), "md5-") + `"`
		for name, value := range map[string]string{
			"ETag": tag, "Content-Type": "text/plain; charset=utf-8", "Content-Length": "3", "Accept-Ranges": "bytes",
			"Content-Security-Policy": "sandbox", "Content-Encoding": "", "Content-Disposition": "", "Cache-Control": "must-revalidate",
		} {
			require.Equal(t, value, got.Header.Get(name), name)
		}
		head := n.Do(http.MethodHead, target, "")
		require.Equal(t, webtest.Answer{Status: http.StatusOK}, webtest.Answer{Status: head.Status, Body: head.Body})
		got.Header.Del("X-Couch-Request-ID")
		head.Header.Del("X-Couch-Request-ID")
		got.Header.Del("Date")
		head.Header.Del("Date")
		require.Equal(t, got.Header, head.Header)

		unchanged := n.Do(http.MethodGet, target, "", "If-None-Match", `"x", `+tag, "Range", "bytes=0-0")
		require.Equal(t, webtest.Answer{Status: http.StatusNotModified}, webtest.Answer{Status: unchanged.Status, Body: unchanged.Body})
		require.Equal(t, tag, unchanged.Header.Get("ETag"))
	}
	empty := n.Get("/db/doc%2Fx/empty?rev=2-b")
	require.Equal(t, webtest.Answer{Status: http.StatusOK}, webtest.Answer{Status: empty.Status, Body: empty.Body})
	require.Equal(t, "0", empty.Header.Get("Content-Length"))
	require.Equal(t, "application/octet-stream", empty.Header.Get("Content-Type"))
	webtest.Refused(t, n.Get("/db/doc%2Fx/empty"), http.StatusNotFound, "not_found", "Document is missing attachment")
	webtest.Refused(t, n.Get("/db/doc%2Fx/empty?rev=1-a"), http.StatusNotFound, "not_found", "missing")
	webtest.Refused(t, n.Get("/db/doc%2Fx/empty?rev=a"), http.StatusBadRequest, "bad_request",
		"Invalid rev format: `rev` must be a number, a dash and an id, as 1-967a00dff5e02add41819138abb3284d")
}

func TestGetEncodedAttachment(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	plain := strings.Repeat("hello ", 20_000)
	stored := webtest.Gzipped(t, plain)
	upload := func(name, content string, opts docstore.UploadOptions) docstore.EditAttachment {
		return n.upload(db, "doc", name, "text/plain", strings.NewReader(content), opts)
	}
	n.replicated(db, "doc", `{}`, false, []string{"a"},
		upload("known", stored, docstore.UploadOptions{Encoding: "gzip", DecodedLength: new(int64(len(plain)))}),
		upload("unknown", stored, docstore.UploadOptions{Encoding: "gzip"}),
		upload("copied", stored, docstore.UploadOptions{Encoding: "gzip", DecodedLength: new(int64(len(stored)))}), // from CouchDB
		upload("short", stored, docstore.UploadOptions{Encoding: "gzip", DecodedLength: new(int64(len(plain)) - 1)}),
		upload("long", stored, docstore.UploadOptions{Encoding: "gzip", DecodedLength: new(int64(len(plain)) + 1)}),
		upload("broken", stored[:len(stored)-20], docstore.UploadOptions{Encoding: "gzip"}),
		upload("none", plain, docstore.UploadOptions{Encoding: "gzip"}),
		upload("corrupt", stored[:10]+"\xff"+stored[11:], docstore.UploadOptions{Encoding: "gzip"}),
		upload("truncated", stored[:11], docstore.UploadOptions{Encoding: "gzip"}),
		upload("nothing", "", docstore.UploadOptions{Encoding: "gzip"}),
		upload("other", plain, docstore.UploadOptions{Encoding: "zstd"}))

	for accept, want := range map[string]string{
		"gzip": stored, "deflate, gzip;q=0.1": stored, "*": stored, "GZIP": stored,
		"": plain, "identity": plain, "gzip;q=0, *": plain, "deflate;q=1.0": plain,
	} {
		for _, name := range []string{"known", "unknown", "copied"} {
			got := n.Do(http.MethodGet, "/db/doc/"+name, "", "Accept-Encoding", accept, "Range", "bytes=0-9").Is(t, http.StatusOK)
			require.Equal(t, want, got.Body, accept)
			encoding, length := "", ""
			if want == stored {
				encoding, length = "gzip", strconv.Itoa(len(stored))
			} else if name == "known" {
				length = strconv.Itoa(len(plain))
			}
			require.Equal(t, encoding, got.Header.Get("Content-Encoding"))
			require.Equal(t, length, got.Header.Get("Content-Length"))
			require.Equal(t, "none", got.Header.Get("Accept-Ranges"))
			require.Equal(t, "sandbox", got.Header.Get("Content-Security-Policy"))
			require.Equal(t, `"`+strings.TrimPrefix(digest(stored), "md5-")+`"`, got.Header.Get("ETag"))
		}
	}

	// A content that is not as long as its writer declared is cut off.
	for _, name := range []string{"short", "long", "broken"} {
		require.Equal(t, stored[:10], n.Do(http.MethodGet, "/db/doc/"+name, "", "Accept-Encoding", "gzip").Body[:10])
		_, err := n.Request(http.MethodGet, "/db/doc/"+name, "")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
	}
	const why = "the attachment can only be read as it was written, with its encoding in Accept-Encoding: it is stored as "
	for _, name := range []string{"none", "corrupt", "truncated", "nothing"} {
		webtest.Refused(t, n.Get("/db/doc/"+name), http.StatusNotAcceptable, "not_acceptable", why+"gzip, but is none")
	}
	webtest.Refused(t, n.Get("/db/doc/other"), http.StatusNotAcceptable, "not_acceptable", why+`"zstd", which this node cannot decode`)
	require.Equal(t, plain, n.Do(http.MethodGet, "/db/doc/other", "", "Accept-Encoding", "zstd").Body)
}

// TestEmptyEncodedAttachment: CouchDB stores an empty text as 20 bytes of gzip, and its length is 0.
func TestEmptyEncodedAttachment(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	stored := "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00" + strings.Repeat("\x00", 8)
	n.Put("/db/doc?new_edits=false", related(`{"_rev":"1-a","_attachments":{"f":{"follows":true,"length":0,"encoding":"gzip","encoded_length":20}}}`, stored),
		"Content-Type", relatedType).Is(t, http.StatusCreated)
	n.Do("COPY", "/db/doc", "", "Destination", "copy").Is(t, http.StatusCreated)
	other := webtest.Gzipped(t, "") // some more bytes
	n.Put("/db/other?new_edits=false", related(`{"_rev":"1-a","_attachments":{"f":{"follows":true,"length":0,"encoding":"gzip","encoded_length":`+strconv.Itoa(len(other))+`}}}`, other),
		"Content-Type", relatedType).Is(t, http.StatusCreated)
	require.Contains(t, n.Get("/db/other").Body, `"length":0,`)
	for _, doc := range []string{"/db/doc", "/db/copy"} {
		about := n.Get(doc + "?att_encoding_info=true").JSON(t)["_attachments"].(map[string]any)["f"].(map[string]any)
		require.EqualValues(t, 0, about["length"])
		require.EqualValues(t, 20, about["encoded_length"])
		require.Contains(t, n.Do(http.MethodGet, doc+"?attachments=true", "", "Accept", "application/json").Body, `"data":""`)
		for accept, want := range map[string]string{"gzip": stored, "identity": ""} {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				got := n.Do(method, doc+"/f", "", "Accept-Encoding", accept).Is(t, http.StatusOK)
				require.Equal(t, strconv.Itoa(len(want)), got.Header.Get("Content-Length"))
				require.True(t, method == http.MethodHead || got.Body == want)
			}
		}
	}
}

func TestAttachmentRanges(t *testing.T) {
	t.Parallel()
	n := start(t)
	db := n.NewDatabase("db")
	const size = 2_500_000 // some pieces of the store
	content := binary(size)
	n.replicated(db, "doc", `{}`, false, []string{"a"},
		n.upload(db, "doc", "bin", "application/x-bin", bytes.NewReader(content), docstore.UploadOptions{}),
		n.upload(db, "doc", "empty", "application/x-bin", strings.NewReader(""), docstore.UploadOptions{}))
	etag := n.Do(http.MethodHead, "/db/doc/bin", "").Header.Get("ETag")

	for header, want := range map[string]struct{ first, last int }{
		"bytes=0-0":                {0, 0},
		"bytes=10-19":              {10, 19},
		"bytes=10-19,":             {10, 19},
		"bytes=1-":                 {1, size - 1},
		"bytes=2000000-2499999":    {2_000_000, size - 1},
		"bytes=2000000-9999999999": {2_000_000, size - 1},
		"bytes=-5":                 {size - 5, size - 1},
		"bytes=-9999999":           {0, size - 1},
		"bytes=0-2499999":          {0, size - 1},
	} {
		got := n.Do(http.MethodGet, "/db/doc/bin", "", "Range", header, "If-Range", etag).Is(t, http.StatusPartialContent)
		require.Equal(t, "bytes "+strconv.Itoa(want.first)+"-"+strconv.Itoa(want.last)+"/2500000", got.Header.Get("Content-Range"))
		require.Equal(t, strconv.Itoa(want.last-want.first+1), got.Header.Get("Content-Length"))
		require.Equal(t, etag, got.Header.Get("ETag"))
		require.True(t, string(content[want.first:want.last+1]) == got.Body, header)
	}
	for _, header := range []string{
		"", "bytes=0-", "bytes=", "bytes=a-b", "bytes=5", "bytes=--5", "lines=1-2", "bytes=1-2,x",
		"bytes=0-0,1-1,2-2,3-3,4-4,5-5,6-6,7-7,8-8,9-9", "bytes=99999999999999999999-",
	} {
		got := n.Do(http.MethodGet, "/db/doc/bin", "", "Range", header).Is(t, http.StatusOK)
		require.Len(t, got.Body, size)
	}
	require.Equal(t, http.StatusOK, n.Do(http.MethodGet, "/db/doc/bin", "", "Range", "bytes=1-2", "If-Range", `"x"`).Status)
	for _, header := range []string{"bytes=9-8", "bytes=2500000-", "bytes=2500000-2500001", "bytes=-0", "bytes=0-1,9-8"} {
		got := n.Do(http.MethodGet, "/db/doc/bin", "", "Range", header)
		webtest.Refused(t, got, http.StatusRequestedRangeNotSatisfiable, "requested_range_not_satisfiable", "Requested range not satisfiable")
		require.Equal(t, "bytes */2500000", got.Header.Get("Content-Range"))
	}
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, n.Do(http.MethodGet, "/db/doc/empty", "", "Range", "bytes=0-0").Status)

	got := n.Do(http.MethodGet, "/db/doc/bin", "", "Range", "bytes=300-302, 1000000-1000001,-1").Is(t, http.StatusPartialContent)
	require.Equal(t, etag, got.Header.Get("ETag"))
	var want []webtest.Part
	for span, text := range map[string][]byte{
		"300-302": content[300:303], "1000000-1000001": content[1_000_000:1_000_002], "2499999-2499999": content[size-1:],
	} {
		want = append(want, webtest.Part{Header: map[string][]string{
			"Content-Type": {"application/x-bin"}, "Content-Range": {"bytes " + span + "/2500000"},
		}, Body: string(text)})
	}
	require.ElementsMatch(t, want, webtest.Parts(t, got.Header.Get("Content-Type"), got.Body))
	head := n.Do(http.MethodHead, "/db/doc/bin", "", "Range", "bytes=0-0,2-2")
	require.Equal(t, webtest.Answer{Status: http.StatusPartialContent}, webtest.Answer{Status: head.Status, Body: head.Body})
}

// replacing returns the answer to a request during which the document is replaced by a
// revision without its attachment.
func (n *node) replacing(db *docstore.Database, method, target, body string, headers ...string) (text []byte, err error) {
	n.Helper()
	const size = 5_000_000
	id := "doc" + strconv.Itoa(len(n.Get("/db/_all_docs").Body))
	n.replicated(db, id, `{}`, false, []string{"a"},
		n.upload(db, id, "bin", "application/x-bin", bytes.NewReader(binary(size)), docstore.UploadOptions{}))
	response, err := n.Stream(method, strings.ReplaceAll(target, "ID", id), strings.ReplaceAll(body, "ID", id), headers...)
	require.NoError(n, err)
	defer response.Body.Close()
	require.Less(n, response.StatusCode, 300)
	begun := make([]byte, 100_000)
	_, err = io.ReadFull(response.Body, begun)
	require.NoError(n, err)
	n.replicated(db, id, `{}`, false, []string{"b", "a"})
	return io.ReadAll(response.Body)
}

// If reading a content fails, the answer is cut off in a way that the client can see.
func TestContentThatIsRemovedMeanwhile(t *testing.T) {
	t.Parallel()
	n := startOn(t, webtest.Memory(t), webtest.ListenPipe()) // which holds nothing back
	db := n.NewDatabase("db")
	const get, post = http.MethodGet, http.MethodPost
	const bulk = `{"docs":[{"id":"ID"},{"id":"no"}]}`
	for name, read := range map[string]func() ([]byte, error){
		"attachment": func() ([]byte, error) { return n.replacing(db, get, "/db/ID/bin", "") },
		"range":      func() ([]byte, error) { return n.replacing(db, get, "/db/ID/bin", "", "Range", "bytes=5-") },
		"ranges":     func() ([]byte, error) { return n.replacing(db, get, "/db/ID/bin", "", "Range", "bytes=5-,6-") },
		"inline": func() ([]byte, error) {
			return n.replacing(db, get, "/db/ID?attachments=true", "", "Accept", "application/json")
		},
		"related": func() ([]byte, error) { return n.replacing(db, get, "/db/ID?attachments=true", "") },
		"leaves":  func() ([]byte, error) { return n.replacing(db, get, "/db/ID?open_revs=all", "") },
		"leaves inline": func() ([]byte, error) {
			return n.replacing(db, get, "/db/ID?open_revs=all&attachments=true", "", "Accept", "application/json")
		},
		"bulk": func() ([]byte, error) {
			return n.replacing(db, post, "/db/_bulk_get", bulk, "Accept", "multipart/mixed")
		},
		"bulk inline": func() ([]byte, error) { return n.replacing(db, post, "/db/_bulk_get?attachments=true", bulk) },
		"listing": func() ([]byte, error) {
			return n.replacing(db, get, "/db/_all_docs?include_docs=true&attachments=true&key=%22ID%22", "")
		},
	} {
		text, err := read()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
		require.NotEmpty(t, text, name)
	}
}
