package couch_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
)

func TestDigestsAreChecked(t *testing.T) {
	t.Parallel()
	content := []byte("hello")
	for _, test := range []struct {
		name, digest string
		length       int64
		fails        bool
	}{
		{"right", digestOf(content), 5, false},
		{"right, of unknown length", digestOf(content), -1, false},
		{"wrong", digestOf([]byte("hullo")), 5, true},
		{"wrong, of unknown length", digestOf([]byte("hullo")), -1, true},
		{"none", "", 5, false},
		{"none, as CouchDB says it", "md5-", 5, false},
		{"of another kind", "sha256-AAAA", 5, false},
		{"not a digest", "md5-?", 5, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			about := couch.Attachment{Name: "f", Digest: test.digest, Length: test.length}
			got, err := io.ReadAll(couch.NewAttachmentReader(about, bytes.NewReader(content)))
			require.Equal(t, string(content), string(got))
			if !test.fails {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, couch.ErrDigest)
			require.EqualError(t, err, `attachment "f": its bytes do not match its digest, `+test.digest)
		})
	}
}

// A mismatch is detected before the target has the whole request, for each form of request.
func TestDigestsThatDoNotMatchEndAWrite(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(zip, "hello")
	require.NoError(t, zip.Close())
	for _, test := range []struct {
		name, powered string
		about         couch.Attachment
		content       []byte
	}{
		{"multipart", "", couch.Attachment{Length: 5}, []byte("hello")},
		{"multipart, of unknown length", "", couch.Attachment{Length: -1}, []byte("hello")},
		{"large", "", couch.Attachment{Length: 5 << 20}, make([]byte, 5<<20)},
		{"compressed", "", couch.Attachment{Length: 5, Encoding: "gzip", EncodedLength: int64(zipped.Len())}, zipped.Bytes()},
		{"decompressed for PouchDB Server", "Express", couch.Attachment{Length: 5, Encoding: "gzip", EncodedLength: int64(zipped.Len())}, zipped.Bytes()},
		{"inline for PouchDB Server", "Express", couch.Attachment{Name: `q"`, Length: 5}, []byte("hello")},
	} {
		for _, right := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, right: %t", test.name, right), func(t *testing.T) {
				t.Parallel()
				var stored atomic.Int32
				db := serving(t, func(w http.ResponseWriter, r *http.Request) {
					if test.powered != "" {
						w.Header().Set("X-Powered-By", test.powered)
					}
					if r.Method == http.MethodGet {
						_, _ = io.WriteString(w, dbInfo)
						return
					}
					if _, err := io.ReadAll(r.Body); err != nil {
						return
					}
					stored.Add(1)
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, `{"ok":true}`)
				})
				_, err := db.Info(t.Context()) // detects the kind of server
				require.NoError(t, err)
				a := test.about
				if a.Name == "" {
					a.Name = "f"
				}
				digest := digestOf(test.content)
				if !right {
					digest = digestOf([]byte("others"))
				}
				length := ""
				if a.Length >= 0 {
					length = fmt.Sprintf(`"length":%d,`, a.Length)
				}
				if a.Encoding != "" {
					length += fmt.Sprintf(`"encoding":"gzip","encoded_length":%d,`, a.EncodedLength)
				}
				doc := document(t, fmt.Sprintf(`{"_id":"x","_rev":"1-aa","_attachments":{%q:{"content_type":"a/b",%s"digest":%q,"follows":true}}}`,
					a.Name, length, digest))
				all, err := doc.Attachments()
				require.NoError(t, err)
				err = db.PutMultipart(t.Context(), doc, &listed{{all[0], test.content}})
				if right {
					require.NoError(t, err)
					require.EqualValues(t, 1, stored.Load())
					return
				}
				require.ErrorIs(t, err, couch.ErrDigest)
				require.Zero(t, stored.Load())
			})
		}
	}
}

// From a server that answers open_revs with JSON, attachments are requested one by one, compressed if they are stored so.
// If the server sends other bytes, they are requested uncompressed the next time. The digests are of the compressed
// bytes, so then they are neither checked nor passed on.
func TestAttachmentsStoredCompressed(t *testing.T) {
	t.Parallel()
	zipped := compressed(t, "hello")
	// CouchDB says the encoded length if the client has compressed the content.
	for _, length := range []int{5, len(zipped)} {
		stub := func(digest string) string {
			return fmt.Sprintf(`{"length":%d,"encoding":"gzip","encoded_length":%d,"digest":%q,"content_type":"a/b"`, length, len(zipped), digest)
		}
		for name, test := range map[string]struct {
			sent   []byte // in an answer with gzip; nil for an answer without it
			digest string
			want   error // of the first reading
			plain  bool  // the second one is uncompressed
		}{
			"kept":            {zipped, digestOf(zipped), nil, false},
			"uncompressed":    {nil, digestOf(zipped), couch.ErrMalformed, true},
			"more bytes":      {append(bytes.Clone(zipped), 0), digestOf(zipped), couch.ErrMalformed, true},
			"fewer bytes":     {zipped[1:], digestOf(zipped), io.ErrUnexpectedEOF, true},
			"another content": {zipped, digestOf([]byte("other")), couch.ErrDigest, false},
		} {
			t.Run(fmt.Sprintf("%s, length %d", name, length), func(t *testing.T) {
				t.Parallel()
				db := serving(t, func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.URL.Query().Get("open_revs") != "":
						w.Header().Set("Content-Type", "application/json")
						fmt.Fprintf(w, `[{"ok":{"_id":"x","_rev":"1-a","_attachments":{"f":%s,"stub":true}}}}]`, stub(test.digest))
					case r.Header.Get("Accept-Encoding") == "gzip" && test.sent != nil:
						w.Header().Set("Content-Encoding", "gzip")
						_, _ = w.Write(test.sent)
					default:
						_, _ = io.WriteString(w, "hello")
					}
				}, noRetries)
				read := func() (string, []byte, error) {
					leaves, err := db.OpenRevs(t.Context(), "x", "1-a", nil)
					require.NoError(t, err)
					defer leaves.Close()
					leaf, err := leaves.Next()
					require.NoError(t, err)
					all, err := leaf.Doc.Attachments()
					require.NoError(t, err)
					require.True(t, all[0].Follows)
					a, err := leaf.NextAttachment()
					if err != nil {
						return string(leaf.Doc.Body), nil, err
					}
					require.Equal(t, all[0], a.Attachment)
					content, err := io.ReadAll(a)
					return string(leaf.Doc.Body), content, err
				}
				_, _, err := read()
				require.ErrorIs(t, err, test.want)
				doc, content, err := read()
				if test.plain {
					require.NoError(t, err)
					require.Equal(t, "hello", string(content))
					require.JSONEq(t, `{"_id":"x","_rev":"1-a","_attachments":{"f":{"length":5,"content_type":"a/b","follows":true}}}`, doc)
					return
				}
				require.ErrorIs(t, err, test.want)
				require.Equal(t, zipped, content)
				require.JSONEq(t, `{"_id":"x","_rev":"1-a","_attachments":{"f":`+stub(test.digest)+`,"follows":true}}}`, doc)
			})
		}
	}
}

// unchecked is a source with an attachment whose reader does not compare it with its digest.
type unchecked struct {
	couch.AttachmentSource
	name string
}

func (u unchecked) NextAttachment() (*couch.AttachmentReader, error) {
	a, err := u.AttachmentSource.NextAttachment()
	if err == nil && a.Name == u.name {
		a.LeaveDigest()
	}
	return a, err
}

// A CouchDB refuses a document whose last attachment does not match its digest, and its connection stays usable. ChecksDigest
// relies on that.
func TestLiveDigests(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	content := bytes.Repeat([]byte("0123456789abcdef"), 10_000)
	var zipped bytes.Buffer
	zip, err := gzip.NewWriterLevel(&zipped, gzip.NoCompression)
	require.NoError(t, err)
	_, _ = zip.Write(content)
	require.NoError(t, zip.Close())
	plain := plainAttachment("f", "application/octet-stream", content)
	large := plainAttachment("g", "application/octet-stream", bytes.Repeat(content, 20))
	small := plainAttachment("h", "a/b", []byte("1"))
	for name, all := range map[string][]attached{
		"stored as it is":       {plain},
		"large":                 {large},
		"compressed by CouchDB": {plainAttachment("f", "text/plain", content)},
		"sent compressed": {
			{couch.Attachment{Name: "f", ContentType: "text/plain", Length: int64(len(content)), Encoding: "gzip"}, zipped.Bytes()},
		},
		"after a large one":        {large, plain},
		"small, after a large one": {large, small},
		"empty, after a large one": {large, plainAttachment("f", "a/b", nil)},
	} {
		for _, right := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, right: %t", name, right), func(t *testing.T) {
				t.Parallel()
				db := live(t, peer, noRetries, func(c *couch.Config) { c.MaxConnections = 1 })
				last := all[len(all)-1]
				doc, source := withAttachments(t, "x", "1-aa", all...)
				if !right {
					another := digestOf(append([]byte("another"), last.Bytes...))
					doc = document(t, strings.Replace(string(doc.Body), digestOf(last.Bytes), another, 1))
					(*source)[len(all)-1].About.Digest = another
				}
				_, known := db.ChecksDigest(doc)
				require.False(t, known, "the server has not answered yet")
				_, err := db.Info(t.Context())
				require.NoError(t, err)
				name, known := db.ChecksDigest(doc)
				require.True(t, known)
				require.Equal(t, last.About.Name, name)
				err = db.PutMultipart(t.Context(), doc, unchecked{source, name})
				if right {
					require.NoError(t, err)
					require.Len(t, readLeaves(t, db, "x", "1-aa")[0].Attachments, len(all))
					return
				}
				e, ok := errors.AsType[*couch.Error](err)
				require.True(t, ok, err)
				require.Equal(t, "500 unknown_error: function_clause", e.Cause())
				_, err = db.Get(t.Context(), "x")
				require.ErrorIs(t, err, couch.ErrNotFound)
			})
		}
	}
}

func TestServersThatCheckDigests(t *testing.T) {
	t.Parallel()
	const couchDB, kept = "CouchDB/3.5.0 (Erlang OTP/25)", 64 << 10
	follows := func(length int64) string { return fmt.Sprintf(`{"follows":true,"length":%d}`, length) }
	for _, test := range []struct{ server, powered, attachments, checks string }{
		{couchDB, "", `{"f":` + follows(kept+1) + `}`, "f"},
		{couchDB, "Express", `{"f":` + follows(kept+1) + `}`, "f"}, // a proxy
		{"settee", "", `{"f":` + follows(kept+1) + `}`, "f"},
		{"nginx", "", `{"f":` + follows(kept+1) + `}`, ""},
		{"", "", `{"f":` + follows(kept+1) + `}`, ""},
		{"", "Express", `{"f":` + follows(kept+1) + `}`, ""},
		{couchDB, "", `{"f":` + follows(kept) + `}`, ""},
		{couchDB, "", `{"f":` + follows(kept) + `,"g":` + follows(1) + `}`, "g"},
		{couchDB, "", `{"f":` + follows(kept+1) + `,"g":{"stub":true,"length":100000}}`, "f"},
		{couchDB, "", `{"f":` + follows(kept) + `,"g":{"stub":true,"length":100000}}`, ""},
		{couchDB, "", `{"f":` + follows(kept+1) + `,"g":{"follows":true}}`, ""},
		{couchDB, "", `{"f":{"follows":true},"g":` + follows(kept+1) + `}`, "g"},
		{couchDB, "", `{"f":{"follows":true,"length":100000,"encoding":"gzip","encoded_length":100}}`, ""},
		{couchDB, "", `{"f":{"follows":true,"length":100000,"encoding":"gzip"}}`, ""},
		{couchDB, "", `{}`, ""},
	} {
		db := serving(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Server", test.server)
			w.Header().Set("X-Powered-By", test.powered)
			_, _ = io.WriteString(w, dbInfo)
		})
		_, err := db.Info(t.Context())
		require.NoError(t, err)
		name, ok := db.ChecksDigest(document(t, `{"_id":"x","_rev":"1-aa","_attachments":`+test.attachments+`}`))
		require.Equal(t, test.checks != "", ok, test)
		if ok {
			require.Equal(t, test.checks, name)
		}
	}
}
