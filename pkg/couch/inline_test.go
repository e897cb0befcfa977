package couch_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
)

func TestCheckInline(t *testing.T) {
	t.Parallel()
	good := `"digest":"` + digestOf([]byte("abc")) + `","data":"YWJj"`
	for _, test := range []struct {
		name, attachment string
		ok, mismatch     bool
	}{
		{name: "good", attachment: good, ok: true},
		{name: "good with a length", attachment: good + `,"length":3`, ok: true},
		{name: "good with escapes", attachment: `"digest":"` + digestOf([]byte("\xff\xff\xff")) + `","data":"\/\/\u002f\/"`, ok: true},
		{name: "empty", attachment: `"digest":"` + digestOf(nil) + `","data":""`, ok: true},
		{name: "another length", attachment: good + `,"length":4`, mismatch: true},
		{name: "another content", attachment: `"digest":"` + digestOf([]byte("abc")) + `","data":"YWJk"`, mismatch: true},
		{name: "not base64", attachment: `"digest":"` + digestOf([]byte("abc")) + `","data":"YWJ?"`, mismatch: true},
		{name: "not a string", attachment: `"digest":"` + digestOf([]byte("abc")) + `","data":3`, mismatch: true},
		{name: "null", attachment: `"digest":"` + digestOf(nil) + `","data":null`, mismatch: true},
		{name: "a stub", attachment: `"digest":"` + digestOf([]byte("abc")) + `","stub":true,"length":3`},
		{name: "both", attachment: good + `,"stub":true`},
		{name: "no digest", attachment: `"data":"YWJj"`},
		{name: "another digest", attachment: `"digest":"sha-1","data":"YWJj"`},
		{name: "was compressed", attachment: good + `,"encoding":"gzip","encoded_length":3`},
	} {
		t.Run(test.name, func(t *testing.T) {
			doc := document(t, `{"_id":"x","_rev":"1-a","_attachments":{"good":{`+good+`},"f":{"content_type":"a/b",`+test.attachment+`}}}`)
			err := doc.CheckInline()
			if test.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, `attachment "f"`)
			require.Equal(t, test.mismatch, strings.Contains(err.Error(), couch.ErrDigest.Error()))
		})
	}
	require.NoError(t, document(t, `{"_id":"x"}`).CheckInline())
}

// What one server returns inline, it accepts inline: with the same digests, and with the revision that added each
// attachment.
func TestLiveInline(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		db := live(t, peer)
		written := fmt.Sprintf(`{"_id":"x","_rev":"3-cc","_revisions":{"start":3,"ids":["cc","bb","aa"]},"_attachments":{`+
			`"old":{"content_type":"a/b","revpos":1,"data":"YWJj"},"new ü":{"content_type":"a/b","revpos":3,"data":"%s"}}}`,
			base64.StdEncoding.EncodeToString([]byte(strings.Repeat("text ", 5000))))
		refused, err := db.BulkDocs(t.Context(), []couch.Document{document(t, written)})
		require.NoError(t, err)
		require.Empty(t, refused)

		results, err := db.BulkGetInline(t.Context(), []couch.DocRef{{ID: "x", Rev: "3-cc"}})
		require.NoError(t, err)
		defer results.Close()
		f, err := results.Next()
		require.NoError(t, err)
		require.NoError(t, f.Err)
		require.NoError(t, f.Doc.CheckInline())
		about, err := f.Doc.Attachments()
		require.NoError(t, err)
		positions := map[string]int64{}
		for _, a := range about {
			positions[a.Name] = a.RevPos
		}
		if _, is := peer.(*couchtest.CouchDB); is { // PouchDB Server says 3 for both
			require.Equal(t, map[string]int64{"old": 1, "new ü": 3}, positions)
		}

		again := live(t, peer)
		refused, err = again.BulkDocs(t.Context(), []couch.Document{f.Doc})
		require.NoError(t, err)
		require.Empty(t, refused)
		stubs := fetchAll(t, again, couch.DocRef{ID: "x", Rev: "3-cc"})
		copied, err := stubs[0].Doc.Attachments()
		require.NoError(t, err)
		for i, a := range copied {
			require.Equal(t, []any{about[i].Name, about[i].Digest, about[i].RevPos}, []any{a.Name, a.Digest, a.RevPos})
		}
	})
}

// CouchDB is not asked whether it accepts a multipart body, except after a write that ended without an answer.
func TestCouchDBIsAskedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	lost := true
	db, _ := putServer(t, 1000, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "CouchDB/3.5.0 (Erlang OTP/25)")
		w.Header().Set("Content-Type", "application/json")
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodPut {
			_, _ = w.Write([]byte(`{"update_seq":1}`))
			return
		}
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Expect"))
		if lost = !lost; !lost {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = w.Write([]byte(`{"error":"too_large","reason":"the request entity is too large"}`))
	}, noRetries, expectant(t))
	_, err := db.Info(t.Context()) // so that the client knows the server
	require.NoError(t, err)
	put := func(id string) error {
		doc, source := withAttachments(t, id, "1-aa", plainAttachment("f", "a/b", make([]byte, 2<<20)))
		return db.PutMultipart(t.Context(), doc, source)
	}
	require.Error(t, put("x"))
	require.ErrorIs(t, put("x"), couch.ErrTooLarge)
	require.Error(t, put("y"))
	require.ErrorIs(t, put("y"), couch.ErrTooLarge)
	require.Error(t, put("x"))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"/db/x ", "/db/x 100-continue", "/db/y ", "/db/y 100-continue", "/db/x "}, asked)
}
