package worker_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

// CouchDB takes ids of any length in _bulk_docs, and refuses URLs of more than 8 KiB.
func TestDocumentsWithLongIDs(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		source, target := peer.DB(t, "source"), peer.DB(t, "target")
		add := func(id, rest string) {
			post(t, source+"/_bulk_docs", fmt.Sprintf(`{"new_edits":false,"docs":[{"_id":%q,"_rev":"1-a"%s}]}`, id, rest))
		}
		const attached = `,"_attachments":{"f":{"content_type":"a/b","data":"AAAA"}}`
		// A document that a request of its own must read is the only one of its source.
		add("only"+strings.Repeat("x", 200_000), attached)
		var r refusals
		require.EqualValues(t, 1, run(t, replication(t, source, target), r.collect).Stats.DocWriteFailures)
		require.Equal(t, "only"+strings.Repeat("x", 200_000), r.all[0].ID)
		require.Regexp(t, `^http_request_failed: source: GET http.*xxx\.\.\. \(200\d+ bytes\): 4.*the URL may be too long`, r.all[0].Reason)
		require.Less(t, len(r.all[0].Reason), 1000)

		long := []string{"é" + strings.Repeat("a", 70_000), strings.Repeat("b", 200_000), strings.Repeat("c", 1_500_000)}
		for _, id := range long {
			add(id, "")
		}
		add("small"+strings.Repeat("x", 20_000), attached)
		add("good", "")
		for i := range 5 {
			add(fmt.Sprintf("_design/%d", i)+strings.Repeat("x", 20_000), "")
		}
		r.all = nil
		stats := run(t, replication(t, source, target), r.collect).RunStats
		require.EqualValues(t, 5, stats.DocsWritten)
		require.Len(t, r.all, 5)
		for _, f := range r.all {
			require.True(t, strings.HasPrefix(f.ID, "_design/"))
		}
		for _, options := range []string{`"winning_revs_only":false`, `"winning_revs_only":true`} {
			_, found := verify(t, replication(t, source, target, options))
			require.Len(t, found, 1+5)
		}
	})
}

// Failures that the length of ids explains say nothing of the database, however many there are in a row.
func TestManyDocumentsWithLongIDs(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]string{"source": "GET /", "target": "PUT /"} {
		source, target := stubs(t, 1)
		for i := range 150 {
			id := fmt.Sprintf("_design/%d", i) + strings.Repeat("x", 7_000)
			source.add(id, "1-a", fmt.Sprintf(`{"_id":%q,"_rev":"1-a"}`, id))
			side(name, source, target).fail(method+id, http.StatusBadRequest, "")
		}
		var r refusals
		stats := run(t, replication(t, source.URL, target.URL), r.collect).Stats
		require.EqualValues(t, 1, stats.DocsWritten, name)
		require.EqualValues(t, 150, stats.DocWriteFailures, name)
		require.Len(t, r.all, 150, name)
		require.Contains(t, r.all[0].Reason, "(the URL may be too long)", name)
	}
}
