package couch_test

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
)

const (
	plainRev = "2-d0df861eb528e79690cd2ff3c4d394f3"
	otherRev = "2-ffffffffffffffffffffffffffffffff"
	attRev   = "1-13e0ab7e3efab0226d4b0d7381ad71ed"
	numRev   = "1-5b81110a7f591d501d47a11d32c9002d"
	goneRev  = "2-d9b15b235a7d0afdfe6058d5fb8afbd1"
)

// numBody is the document "num" as CouchDB sends it, with its own spelling of numbers.
const numBody = `{"_id":"num","_rev":"1-5b81110a7f591d501d47a11d32c9002d","int":12345678901234567890,"float":1.0,` +
	`"exp":1000.0,"neg0":0.0,"small":1.5e-7,"z":1,"a":2,"uni":"üü😀 / ` + "\u2028" + `",` +
	`"_revisions":{"start":1,"ids":["5b81110a7f591d501d47a11d32c9002d"]}}`

// replay opens the database "wire" of a server that answers with recordings.
func replay(t *testing.T, numbers ...int) (*couch.Database, *couchtest.ReplayServer) {
	t.Helper()
	server := couchtest.Replay(t, numbers...)
	return open(t, server.URL+"/wire", noRetries), server
}

// sent compares the only request that a replay received with the recorded one.
func sent(t *testing.T, server *couchtest.ReplayServer, method, path, query string) couchtest.Received {
	t.Helper()
	received := server.Received()
	require.Len(t, received, 1)
	require.Equal(t, method, received[0].Method)
	gotPath, gotQuery, _ := strings.Cut(received[0].Target, "?")
	require.Equal(t, path, gotPath)
	want, err := url.ParseQuery(query)
	require.NoError(t, err)
	got, err := url.ParseQuery(gotQuery)
	require.NoError(t, err)
	require.Equal(t, want, got)
	return received[0]
}

func TestWireDatabase(t *testing.T) {
	t.Parallel()
	t.Run("info", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 34)
		info, err := db.Info(t.Context())
		require.NoError(t, err)
		require.Equal(t, "wire", info.Name)
		require.Equal(t, `"1795225691"`, string(info.InstanceStartTime))
		require.True(t, strings.HasPrefix(string(info.UpdateSeq), `"9-g1AAAACveJz`))
		require.EqualValues(t, 5, info.DocCount)
		require.EqualValues(t, 1, info.DocDelCount)
		sent(t, server, "GET", "/wire", "")
	})
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 3)
		_, err := db.Info(t.Context())
		require.ErrorIs(t, err, couch.ErrNotFound)
		require.ErrorIs(t, err, couch.ErrNoDatabase)
		require.EqualError(t, err, "GET "+server.URL+"/wire: 404 not_found: Database does not exist.")
	})
	t.Run("created", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 5)
		require.NoError(t, db.Create(t.Context(), url.Values{"q": {"2"}}))
		sent(t, server, "PUT", "/wire", "q=2")
	})
	t.Run("exists", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 6)
		require.ErrorIs(t, db.Create(t.Context(), nil), couch.ErrExists)
	})
	t.Run("bad name", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 7)
		err := db.Create(t.Context(), nil)
		var e *couch.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "illegal_database_name", e.Code)
		require.Equal(t, http.StatusBadRequest, e.Status)
	})
	t.Run("committed", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 60)
		instance, err := db.EnsureFullCommit(t.Context())
		require.NoError(t, err)
		require.Equal(t, `"1795225691"`, string(instance))
		r := sent(t, server, "POST", "/wire/_ensure_full_commit", "")
		require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	})
	for number, want := range map[int]error{
		8: couch.ErrUnauthorized, 9: couch.ErrUnauthorized, 112: couch.ErrForbidden,
	} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			db, _ := replay(t, number)
			_, err := db.Info(t.Context())
			require.ErrorIs(t, err, want)
			require.NotErrorIs(t, err, couch.ErrNotFound)
		})
	}
}

func TestWireDocuments(t *testing.T) {
	t.Parallel()
	t.Run("numbers", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 14)
		doc, err := db.Get(t.Context(), "num")
		require.NoError(t, err)
		require.Equal(t, numBody, string(doc))
		sent(t, server, "GET", "/wire/num", "")
	})
	t.Run("design document", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 44)
		doc, err := db.Get(t.Context(), "_design/f")
		require.NoError(t, err)
		require.Contains(t, string(doc), `"t":"function(doc,req){ return doc.v == req.query.v; }"`)
		sent(t, server, "GET", "/wire/_design/f", "")
	})
	for _, number := range []int{17, 18} {
		t.Run("missing", func(t *testing.T) {
			t.Parallel()
			db, _ := replay(t, number)
			_, err := db.Get(t.Context(), "never")
			require.ErrorIs(t, err, couch.ErrNotFound)
			require.NotErrorIs(t, err, couch.ErrNoDatabase)
		})
	}
	t.Run("conflict", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 15)
		_, err := db.PutLocal(t.Context(), "x", raw("{}"))
		require.ErrorIs(t, err, couch.ErrConflict)
	})
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 56, 57, 59)
		_, err := db.GetLocal(t.Context(), "0123abcd")
		require.ErrorIs(t, err, couch.ErrNotFound)
		require.NotErrorIs(t, err, couch.ErrNoDatabase)
		rev, err := db.PutLocal(t.Context(), "0123abcd", raw(`{"session_id":"s1"}`))
		require.NoError(t, err)
		require.Equal(t, "0-1", rev)
		doc, err := db.GetLocal(t.Context(), "0123abcd")
		require.NoError(t, err)
		require.Equal(t, `{"_id":"_local/0123abcd","_rev":"0-1","session_id":"s2"}`, string(doc))
		for _, r := range server.Received() {
			require.Equal(t, "/wire/_local/0123abcd", r.Target)
		}
	})
}

func TestWireChanges(t *testing.T) {
	t.Parallel()
	everything := []string{"plain", "gone", "a/b c+dü", "att2", "num", "att"}
	for _, test := range []struct {
		name    string
		number  int
		options couch.ChangesOptions
		method  string
		query   string
		body    string
		want    []string
		pending int64
	}{
		{
			name: "normal", number: 32, options: couch.ChangesOptions{AllLeaves: true, Since: raw("0")},
			query: "style=all_docs&feed=normal&since=0", want: everything,
		},
		{
			name: "limited", number: 33, options: couch.ChangesOptions{AllLeaves: true, Since: raw("0"), Limit: 2},
			query: "style=all_docs&feed=normal&limit=2&since=0", want: everything[:2], pending: 4,
		},
		{
			name: "few sequences", number: 32, options: couch.ChangesOptions{Since: raw("0"), SeqInterval: 50},
			query: "feed=normal&limit=99999999999999&seq_interval=50&since=0", want: everything,
		},
		{
			name: "nothing new", number: 35, options: couch.ChangesOptions{Since: raw(`"9-g1AAAAC_+="`)},
			query: "feed=normal&since=9-g1AAAAC_%2B%3D", want: []string{},
		},
		{
			name: "document ids", number: 39, options: couch.ChangesOptions{AllLeaves: true, DocIDs: []string{"num", "gone", "never"}},
			method: "POST", query: "feed=normal&filter=_doc_ids&style=all_docs", body: `{"doc_ids":["num","gone","never"]}`,
			want: []string{"gone", "num"}, pending: 4,
		},
		{
			name: "selector", number: 40, options: couch.ChangesOptions{AllLeaves: true, Selector: raw(`{"v": {"$gte": 1}}`)},
			method: "POST", query: "feed=normal&filter=_selector&style=all_docs", body: `{"selector":{"v": {"$gte": 1}}}`,
			want: []string{"plain", "att", "a/b c+dü"},
		},
		{
			name: "filter", number: 43, options: couch.ChangesOptions{Filter: "f/t", Query: url.Values{"v": {"1"}}},
			query: "feed=normal&filter=f%2Ft&v=1", want: []string{"att", "a/b c+dü"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db, server := replay(t, test.number)
			rows, feed := allRows(t, db, test.options)
			require.Equal(t, test.want, ids(rows))
			require.NotEmpty(t, feed.LastSeq())
			require.Equal(t, byte('"'), feed.LastSeq()[0])
			pending, ok := feed.Pending()
			require.True(t, ok)
			require.Equal(t, test.pending, pending)
			if test.method == "" {
				test.method = "GET"
			}
			r := sent(t, server, test.method, "/wire/_changes", test.query)
			require.Equal(t, test.body, string(r.Body))
		})
	}
	t.Run("rows", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 32)
		rows, feed := allRows(t, db, couch.ChangesOptions{})
		require.Equal(t, []string{otherRev, plainRev}, rows[0].Revs)
		require.Equal(t, `"3-g1AAAACIeJzLYWBgYMpgTmEQS84vTc5ISTI0tbQwcTA0MtczAELDHJB8IkNS_f___7MymBOZc4EC7GmpximJRgY4dREyMI8FSDI0AKn_IHMTGbIAL6cjvQ"`, string(rows[0].Seq))
		require.False(t, rows[0].Deleted)
		require.True(t, rows[1].Deleted)
		require.Equal(t, rows[5].Seq, feed.LastSeq())
	})
	t.Run("normal cut after heartbeats", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 36)
		rows, err := rowsUntil(t, db, couch.ChangesOptions{Heartbeat: 500e6})
		require.Empty(t, rows)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorContains(t, err, "the changes feed was cut")
	})
	t.Run("continuous cut after heartbeats", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 37)
		rows, err := rowsUntil(t, db, couch.ChangesOptions{Feed: couch.FeedContinuous, AllLeaves: true, Heartbeat: 500e6})
		require.Equal(t, everything, ids(rows))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.NotErrorIs(t, err, io.EOF)
		r := sent(t, server, "GET", "/wire/_changes", "feed=continuous&style=all_docs&heartbeat=500")
		require.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
	})
	for number, want := range map[int]string{
		41: "400 bad_request: Invalid operator: $nope",
		42: "404 not_found: missing",
		45: "400 bad_request: Malformed sequence supplied in 'since' parameter.",
	} {
		t.Run("refused", func(t *testing.T) {
			t.Parallel()
			db, _ := replay(t, number)
			_, err := db.Changes(t.Context(), couch.ChangesOptions{})
			require.ErrorContains(t, err, want)
		})
	}
}

func TestWireRevsDiff(t *testing.T) {
	t.Parallel()
	db, server := replay(t, 46)
	missing, err := db.RevsDiff(t.Context(), []couch.DocRevs{
		{ID: "plain", Revs: []string{plainRev, "3-cccc"}},
		{ID: "never", Revs: []string{"1-aaaa"}},
		{ID: "num", Revs: []string{}},
		{ID: "plain", Revs: []string{"2-dddd", "3-cccc"}},
	})
	require.NoError(t, err)
	require.Equal(t, []couch.Missing{
		{Revs: []string{"2-dddd", "3-cccc"}, PossibleAncestors: []string{otherRev, plainRev}},
		{Revs: []string{"1-aaaa"}},
		{},
		{},
	}, missing)
	r := sent(t, server, "POST", "/wire/_revs_diff", "")
	require.Equal(t, `{"plain":["`+plainRev+`","3-cccc","2-dddd"],"never":["1-aaaa"],"num":[]}`, string(r.Body))

	bad, _ := replay(t, 47)
	_, err = bad.RevsDiff(t.Context(), []couch.DocRevs{{ID: "plain"}})
	require.ErrorContains(t, err, "500 unknown_error: function_clause")
}

func TestWireBulkGet(t *testing.T) {
	t.Parallel()
	t.Run("answers", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 29)
		got := fetchAll(t, db, couch.DocRef{ID: "plain", Rev: plainRev}, couch.DocRef{ID: "num"},
			couch.DocRef{ID: "never", Rev: "1-aaaa"}, couch.DocRef{ID: "plain", Rev: "5-bbbb"}, couch.DocRef{ID: "gone"})
		require.Len(t, got, 5)
		require.Equal(t, plainRev, got[0].Doc.Rev)
		require.Equal(t, numBody, string(got[1].Doc.Body))
		for i, id := range map[int]string{2: "never", 3: "plain"} {
			require.ErrorIs(t, got[i].Err, couch.ErrNotFound)
			require.Equal(t, id, got[i].ID)
			require.Equal(t, &couch.DocError{ID: id, Rev: got[i].Rev, Code: "not_found", Reason: "missing"}, got[i].Err)
		}
		require.Equal(t, "5-bbbb", got[3].Rev)
		require.True(t, got[4].Doc.Deleted)
		require.Equal(t, goneRev, got[4].Rev)
		r := sent(t, server, "POST", "/wire/_bulk_get", "revs=true&latest=true&att_encoding_info=true")
		require.Equal(t, `{"docs":[{"id":"plain","rev":"`+plainRev+`"},{"id":"num"},{"id":"never","rev":"1-aaaa"},`+
			`{"id":"plain","rev":"5-bbbb"},{"id":"gone"}]}`, string(r.Body))
	})
	t.Run("inline attachments", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 30)
		got := fetchAll(t, db, couch.DocRef{ID: "att"})
		require.True(t, got[0].Doc.HasAttachments())
		about, err := got[0].Doc.Attachments()
		require.NoError(t, err)
		require.True(t, about[0].Inline)
	})
	t.Run("no _bulk_get", func(t *testing.T) {
		t.Parallel()
		// CouchDB 1 takes _bulk_get for a document.
		db, server := replay(t, 18, 34)
		_, err := db.BulkGet(t.Context(), []couch.DocRef{{ID: "x"}})
		require.ErrorIs(t, err, couch.ErrNoBulkGet)
		require.Len(t, server.Received(), 2)
	})
	t.Run("no database", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 3, 3)
		_, err := db.BulkGet(t.Context(), []couch.DocRef{{ID: "x"}})
		require.ErrorIs(t, err, couch.ErrNoDatabase)
		require.NotErrorIs(t, err, couch.ErrNoBulkGet)
	})
}

func TestWireOpenRevs(t *testing.T) {
	t.Parallel()
	digest := func(b []byte) string {
		sum := md5.Sum(b)
		return "md5-" + base64.StdEncoding.EncodeToString(sum[:])
	}
	t.Run("conflicts", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 24)
		got := readLeaves(t, db, "plain", plainRev)
		require.Len(t, got, 2)
		require.Equal(t, plainRev, got[0].Rev)
		require.Equal(t, `{"_id":"plain","_rev":"2-ffffffffffffffffffffffffffffffff","v":"conflict","_revisions":`+
			`{"start":2,"ids":["ffffffffffffffffffffffffffffffff","7a7e4b29f3af401e69b6f86e4c26b727"]}}`, string(got[1].Doc.Body))
		r := sent(t, server, "GET", "/wire/plain", `open_revs=["`+plainRev+`"]&revs=true&latest=true&attachments=true&att_encoding_info=true`)
		require.Equal(t, "multipart/mixed", r.Header.Get("Accept"))
	})
	t.Run("attachments", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 25)
		got := readLeaves(t, db, "att", attRev, "1-a")
		require.Len(t, got, 1)
		require.Equal(t, attRev, got[0].Rev)
		require.Len(t, got[0].Attachments, 2)

		hello := got[0].Attachments[0]
		require.Equal(t, couch.Attachment{
			Name: "hello.txt", ContentType: "text/plain", Digest: digest(hello.Bytes), RevPos: 1, Length: 12000,
			Encoding: "gzip", EncodedLength: 62, Follows: true,
		}, hello.About)
		unzip, err := gzip.NewReader(bytes.NewReader(hello.Bytes))
		require.NoError(t, err)
		text, err := io.ReadAll(unzip)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("hello ", 2000), string(text))

		bin := got[0].Attachments[1]
		require.Equal(t, "bin.dat", bin.About.Name)
		require.Len(t, bin.Bytes, 2048)
		require.Equal(t, bin.About.Digest, digest(bin.Bytes))
		sent(t, server, "GET", "/wire/att", `open_revs=["`+attRev+`"]&revs=true&latest=true&attachments=true&`+
			`att_encoding_info=true&atts_since=["1-a"]`)
	})
	t.Run("attachments not read", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 25)
		leaves, err := db.OpenRevs(t.Context(), "att", attRev, nil)
		require.NoError(t, err)
		leaf, err := leaves.Next()
		require.NoError(t, err)
		a, err := leaf.NextAttachment()
		require.NoError(t, err)
		_, err = a.Read(make([]byte, 10))
		require.NoError(t, err)
		_, err = leaves.Next()
		require.Equal(t, io.EOF, err)
	})
	t.Run("JSON", func(t *testing.T) {
		t.Parallel()
		// The first answer, with all attachments inline, is not read; the second is.
		db, server := replay(t, 26, 26)
		got := readLeaves(t, db, "att", attRev)
		require.Len(t, got, 1)
		require.Empty(t, got[0].Attachments) // this recording has them inline as well
		received := server.Received()
		require.Contains(t, received[0].Target, "attachments=true")
		require.NotContains(t, received[1].Target, "attachments=true")
	})
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 27, 27) // without attachments at the second try
		got := readLeaves(t, db, "plain", "9-aaaa")
		require.Len(t, got, 1)
		require.ErrorIs(t, got[0].Err, couch.ErrNotFound)
		require.Equal(t, "9-aaaa", got[0].Rev)
	})
	t.Run("one attachment", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 21)
		_, err := db.Attachment(t.Context(), "att", attRev, couch.Attachment{Name: "hello.txt", Length: 12000})
		require.ErrorIs(t, err, couch.ErrMalformed) // the recorded client had asked for gzip
		r := sent(t, server, "GET", "/wire/att/hello.txt", "rev="+attRev)
		require.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
	})
}

func TestWireWrites(t *testing.T) {
	t.Parallel()
	t.Run("all taken", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 49)
		refused, err := db.BulkDocs(t.Context(), []couch.Document{
			document(t, `{"_id": "x", "_rev": "2-bbbb", "n": 1.0}`), document(t, ` {"_id":"y"}`),
		})
		require.NoError(t, err)
		require.Empty(t, refused)
		r := sent(t, server, "POST", "/wire/_bulk_docs", "")
		require.Equal(t, `{"new_edits":false,"docs":[{"_id": "x", "_rev": "2-bbbb", "n": 1.0},{"_id":"y"}]}`, string(r.Body))
	})
	t.Run("some refused", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 50)
		refused, err := db.BulkDocs(t.Context(), []couch.Document{document(t, `{"_id":"ok"}`)})
		require.NoError(t, err)
		require.Equal(t, []couch.DocError{
			{ID: "no", Rev: "1-aaaa", Code: "forbidden", Reason: "bad document"},
			{ID: "no2", Rev: "1-aaaa", Code: "unauthorized", Reason: "who are you"},
		}, refused)
		require.ErrorIs(t, &refused[0], couch.ErrForbidden)
		require.ErrorIs(t, &refused[1], couch.ErrUnauthorized)
	})
	t.Run("everything listed", func(t *testing.T) {
		t.Parallel()
		db, _ := replay(t, 51)
		refused, err := db.BulkDocs(t.Context(), []couch.Document{document(t, `{"_id":"num","_rev":"1-a"}`)})
		require.NoError(t, err)
		require.Equal(t, []couch.DocError{
			{ID: "num", Rev: "1-a", Code: "conflict", Reason: "Document update conflict."},
		}, refused)
	})
	for number, want := range map[int]error{63: couch.ErrTooLarge, 64: couch.ErrTooLarge, 52: nil, 53: nil, 54: nil} {
		t.Run("whole request refused", func(t *testing.T) {
			t.Parallel()
			db, _ := replay(t, number)
			_, err := db.BulkDocs(t.Context(), []couch.Document{document(t, `{"_id":"big"}`)})
			var e *couch.Error
			require.ErrorAs(t, err, &e)
			require.NotEmpty(t, e.Code)
			if want != nil {
				require.ErrorIs(t, err, want)
			}
		})
	}
	t.Run("multipart", func(t *testing.T) {
		t.Parallel()
		db, server := replay(t, 55)
		doc := document(t, `{"_id": "mp", "_rev": "1-eeee", "_revisions": {"start": 1, "ids": ["eeee"]}, "_attachments": `+
			`{"f.bin": {"content_type": "application/octet-stream", "follows": true, "length": 5, "revpos": 1}}}`)
		about, err := doc.Attachments()
		require.NoError(t, err)
		source := &listed{{about[0], []byte("12345")}}
		require.NoError(t, db.PutMultipart(t.Context(), doc, source))
		r := sent(t, server, "PUT", "/wire/mp", "new_edits=false")

		// The body equals the recorded one except for the boundary.
		_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		require.NoError(t, err)
		recorded := couchtest.Recorded(t, 55).Request
		_, body, _ := bytes.Cut(recorded, []byte("\r\n\r\n"))
		require.Equal(t, string(body), strings.ReplaceAll(string(r.Body), params["boundary"], "abc123"))
	})
}

// listed is an attachment source in memory.
type listed []attached

func (l *listed) NextAttachment() (*couch.AttachmentReader, error) {
	if len(*l) == 0 {
		return nil, io.EOF
	}
	a := (*l)[0]
	*l = (*l)[1:]
	return couch.NewAttachmentReader(a.About, bytes.NewReader(a.Bytes)), nil
}

// TestWireAllParse parses the body of every recording according to its Content-Type.
func TestWireAllParse(t *testing.T) {
	t.Parallel()
	for _, r := range couchtest.Recordings(t) {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, slices.Contains([]int{36, 37, 117, 120}, r.Number), r.CutOff)
			if r.Method == http.MethodHead || r.CutOff {
				return
			}
			media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			require.NoError(t, err)
			switch media {
			case "application/json":
				require.True(t, json.Valid([]byte(r.Body)))
			case "text/event-stream":
				for line := range strings.Lines(r.Body) {
					if _, value, ok := strings.Cut(line, ": "); ok {
						require.True(t, json.Valid([]byte(value)))
					}
				}
			case "multipart/mixed", "multipart/related":
				require.NotZero(t, countParts(t, []byte(r.Body), params["boundary"]))
			default:
				require.Contains(t, []string{"text/plain", "application/octet-stream"}, media)
			}
		})
	}
}

// countParts counts the innermost parts of a multipart body.
func countParts(t *testing.T, body []byte, boundary string) int {
	t.Helper()
	parts := 0
	reader := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts
		}
		require.NoError(t, err)
		inner, err := io.ReadAll(part)
		require.NoError(t, err)
		media, params, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		require.NoError(t, err)
		if media == "multipart/related" {
			parts += countParts(t, inner, params["boundary"])
			continue
		}
		if media == "application/json" {
			require.True(t, json.Valid(inner))
		}
		parts++
	}
}
