//go:build !race

// Under the race detector, writing documents of four megabytes takes almost the five seconds that
// a transaction may take.

package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/sealed/sealedtest"
	"settee/replicator"
	"settee/replicator/jobs"
)

func TestLargestDocuments(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		longest := strings.Repeat("x", jobs.MaxDocumentIDSize)
		_, err := b.write(repdb, longest, "", atLimit(jobs.MaxDocumentSize))
		require.NoError(b, err)
		ids := strings.Repeat("y", jobs.MaxDocumentSize-500)
		rev := b.put(repdb, "d", "", `"doc_ids": ["`+ids+`"]`)
		assert.Equal(b, 2, b.total())
		rev = b.put(repdb, "d", rev, `"doc_ids": ["`+ids+`z"]`)
		b.remove(repdb, "d", rev)
		assert.Equal(b, 1, b.total())
	})
}

// The largest document fits with sealing too.
func TestTheLargestSealedDocument(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b = b.withKeys(sealedtest.Keys(b, "a"))
		b.create("_replicator")
		members := `"doc_ids": ["%s"]`
		size := jobs.MaxDocumentSize - len(definitionText(members)) + len("%s") - 1000 // the job is a little larger
		b.put("_replicator", "large", "", fmt.Sprintf(members, strings.Repeat("x", size)))
		run := b.accept()
		require.Len(b, run.Job().Args.Replication.DocIDs[0], size)
		require.NoError(b, run.Complete(b.Context(), nil))
		require.Equal(b, "completed", b.document("_replicator", "large")["_replication_state"])
	})
}

// The database with the longest name of the mirror with the longest id is copied.
func TestLargestMirror(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.create(repdb)
		id := strings.Repeat("m", jobs.MaxDocumentIDSize-replicator.ChildIDSize)
		_, err := b.write(repdb, id, "", []byte(`{"source": "http://a.example/", "target": "http://b.example/", "continuous": true, "mirror": {}}`))
		require.NoError(b, err)
		mirror := b.accept()
		database := strings.Repeat("d", 1_000)
		require.NoError(b, asMirror(mirror).AddDatabases(b.Context(), []string{database}, 0))
		_, err = asMirror(mirror).StartDatabases(b.Context(), 1)
		require.NoError(b, err)
		require.NoError(b, b.accept().Crash(b.Context(), time.Now(), 1, replicator.TextFault("error", "boom")))
		require.Equal(b, map[string]replicator.MirroredState{database: "failing"}, b.states(mirror))
	})
}
