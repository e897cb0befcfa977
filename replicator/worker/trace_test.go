package worker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"settee/pkg/couch"
)

// TestTracesThatAreOffCostNothing is not parallel, because it counts the allocations of the process.
func TestTracesThatAreOffCostNothing(t *testing.T) {
	r, b, ctx := &run{}, &batch{rows: make([]couch.Row, 3)}, t.Context()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		ctx, first := r.first(ctx)
		ctx, feed := r.root(ctx, "replication feed")
		ctx, batch := r.rootOfBatch(ctx, b)
		ctx, step := r.step(ctx, "write documents", len(b.rows))
		_ = withSpanOf(context.Background(), ctx)
		r.endSpan(step, nil)
		r.endSpan(batch, errAbandoned)
		r.endSpan(feed, errMissing)
		r.endSpan(first, ErrStopped)
	}))
}
