package couch_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
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
	var asked atomic.Int32
	db := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("open_revs") == "" {
			_, _ = io.WriteString(w, "hello")
			return
		}
		if r.URL.Query().Get("att_encoding_info") == "true" {
			asked.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `[{"ok":{"_id":"x","_rev":"1-a","_attachments":{"f":{"stub":true,"length":5,"encoding":"gzip","encoded_length":9,"digest":%q}}}}]`,
			digestOf([]byte("zzzzzzzzz")))
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
}
