package jobs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/audit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/check"
)

// Each change is recorded once, although each commit is reported unknown once, and several changes of one transaction are recorded
// together.
func TestAuditOnUnknownCommits(t *testing.T) {
	onEngines(t, func(b *bundle) {
		db := b.create(repdb)
		ids := []string{"a", "b", "c"}
		var revs []docstore.Rev
		write := func(members string, deleted bool) {
			var edits []docstore.Edit
			for i, id := range ids {
				edit := docstore.Edit{ID: id, Deleted: deleted}
				if revs != nil {
					edit.Rev = revs[i]
				}
				if !deleted {
					edit.Body = docjson.Must(definitionText(members + `"doc_ids": ["` + id + `"]`))
				}
				edits = append(edits, edit)
			}
			results, err := db.Write(b.Context(), edits, docstore.WriteOptions{By: "ann"})
			require.NoError(b, err)
			revs = nil
			for _, r := range results {
				require.NoError(b, r.Err)
				revs = append(revs, r.Rev)
			}
		}
		b.db.on.Store(true)
		ann := audit.By(b.Context(), "ann")
		write("", false)
		write(`"paused": true, `, false)
		write("", false)
		first := b.jobID(repdb, "a")
		_, err := b.store.Requests.RunNow(ann, first)
		require.NoError(b, err)
		write("", true)
		job := b.replicate(`"continuous": true`)
		_, err = b.store.Requests.Cancel(ann, job.ID, nil)
		require.NoError(b, err)
		require.NoError(b, db.Delete(ann))
		b.db.on.Store(false)

		counts := map[audit.Action]int{}
		found, err := b.store.Lists.Audit(b.Context(), "", "", audit.Kept)
		require.NoError(b, err)
		for _, e := range found {
			require.Equal(b, "ann", e.User)
			counts[e.Action]++
		}
		require.Equal(b, map[audit.Action]int{audit.Paused: 3, audit.Resumed: 3, audit.Ran: 1, audit.Deleted: 5}, counts)
		found, err = b.store.Lists.Audit(b.Context(), first, "", audit.Kept)
		require.NoError(b, err)
		require.Len(b, found, 4)
		require.NoError(b, check.Sound(b.Context(), b.db, audit.Check))
	})
}
