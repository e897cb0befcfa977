//go:build !race

// Under the race detector documents of four megabytes come near the five seconds that a
// transaction has.

package jobs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator/jobs"
)

// What fits, fits.
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
