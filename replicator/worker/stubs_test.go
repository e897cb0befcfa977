package worker_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
)

// TestStubs: an attachment that the source leaves out stays a stub only if the target's newest ancestor has its digest, and
// if the target takes the stub. Otherwise the bytes are sent.
func TestStubs(t *testing.T) {
	t.Parallel()
	const digest, other, noSum = `,"digest":"md5-ICy5YqxZB1uWSwcVLSNLcA=="`, `,"digest":"md5-AAAAAAAAAAAAAAAAAAAAAA=="`, `,"digest":"md5-"`
	for name, test := range map[string]struct {
		said, has string // digests of the source's stub and of the target's attachment
		ancestor  string // of the target
		refuses   bool   // the target refuses the stub
		stays     bool   // the stub is written
	}{
		"the same":                   {digest, digest, "1-a", false, true},
		"the same, refused":          {digest, digest, "1-a", true, false},
		"other bytes":                {digest, other, "1-a", false, false},
		"no digest at the target":    {digest, "", "1-a", false, false},
		"no digest":                  {"", "", "1-a", false, false},
		"no sums":                    {noSum, noSum, "1-a", false, false},
		"a revision of another path": {digest, digest, "1-c", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, target := stubs(t, 0)
			about := func(rev, digest, how string) string {
				return `{"_id":"d","_rev":"` + rev + `","_revisions":{"start":2,"ids":["b","a"]},"_attachments":{"f":{"content_type":"a/b","revpos":1,"length":3` + digest + `,` + how + `}}}`
			}
			source.add("d", "2-b", about("2-b", test.said, `"stub":true`))
			target.fail("POST /_revs_diff", 200, `{"d":{"missing":["2-b"],"possible_ancestors":["`+test.ancestor+`"]}}`)
			target.docs["d "+test.ancestor] = about(test.ancestor, test.has, `"stub":true`)
			source.on("GET /d", func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				return r.URL.Query().Get("atts_since") == "" && sendAttached(w, about("2-b", strings.Replace(test.said, noSum, "", 1), `"follows":true`), "123")
			})
			target.on("PUT /d", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
				return test.refuses && !strings.Contains(string(body), "123") && refuse(w, 412, `{"error":"missing_stub","reason":"Invalid attachment stub in d for f"}`)
			})
			result := run(t, replication(t, source.URL, target.URL))
			require.EqualValues(t, 1, result.Stats.DocsWritten)
			require.EqualValues(t, 1, result.Stats.DocsRead)
			require.Len(t, target.bodies(), 1)
			require.Equal(t, test.stays, !strings.Contains(target.bodies()[0], "123"))
		})
	}
}

// TestOtherBytesWithTheSameRevpos: CouchDB would give the new revision the old bytes.
func TestOtherBytesWithTheSameRevpos(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	source, target := peer.DB(t, "bytes"), peer.DB(t, "bytes")
	put := func(start int, ids string, revpos int, content []byte) {
		post(t, source+"/_bulk_docs", fmt.Sprintf(`{"new_edits":false,"docs":[{"_id":"d","_revisions":{"start":%d,"ids":[%s]},
			"_attachments":{"f":{"content_type":"a/b","revpos":%d,"data":"%s"}}}]}`, start, ids, revpos, base64.StdEncoding.EncodeToString(content)))
	}
	old, other := bytes.Repeat([]byte("old"), 40_000), bytes.Repeat([]byte("new"), 40_000) // not small
	put(1, `"a"`, 1, old)
	run(t, replication(t, source, target))
	for _, next := range []struct {
		rev, ids string
		revpos   int
		content  []byte
	}{{"2-b", `"b","a"`, 1, other}, {"3-c", `"c","b","a"`, 0, old}} {
		put(int(next.rev[0]-'0'), next.ids, next.revpos, next.content)
		run(t, replication(t, source, target))
		got, err := opened(t, target).Attachment(t.Context(), "d", next.rev, couch.Attachment{Name: "f", Length: -1})
		require.NoError(t, err)
		content, err := io.ReadAll(got)
		require.NoError(t, errors.Join(err, got.Close()))
		require.True(t, bytes.Equal(next.content, content), next.rev)
	}
}
