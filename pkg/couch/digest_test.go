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

// From a server that answers open_revs with JSON, attachments are requested one by one, decompressed. Their digests are
// of the compressed bytes, so they are neither checked nor passed on.
func TestDigestsOfWhatIsStoredCompressed(t *testing.T) {
	t.Parallel()
	// CouchDB says the encoded length if the client has compressed the content. Then the attachment is read for its length.
	for length, reads := range map[int]int32{5: 1, 9: 2} {
		var asked, read atomic.Int32
		db := serving(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("open_revs") == "" {
				read.Add(1)
				_, _ = io.WriteString(w, "hello")
				return
			}
			if r.URL.Query().Get("att_encoding_info") == "true" {
				asked.Add(1)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `[{"ok":{"_id":"x","_rev":"1-a","_attachments":{"f":{"stub":true,"length":%d,"encoding":"gzip","encoded_length":9,"digest":%q}}}}]`,
				length, digestOf([]byte("zzzzzzzzz")))
		})
		leaves, err := db.OpenRevs(t.Context(), "x", "1-a", nil)
		require.NoError(t, err)
		defer leaves.Close()
		leaf, err := leaves.Next()
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(string(leaf.Doc.Body), `"_attachments":{"f":{"length":5,"follows":true}}}`), string(leaf.Doc.Body))
		a, err := leaf.NextAttachment()
		require.NoError(t, err)
		got, err := io.ReadAll(a)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
		require.EqualValues(t, 2, asked.Load())
		require.Equal(t, reads, read.Load())
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
