package worker

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestsPerBatchLeaveConnectionsToOthers(t *testing.T) {
	for _, test := range []struct{ workers, connections, want int }{
		{4, 20, 4}, {1, 20, 4}, {1, 1000, 4}, {6, 20, 3}, {9, 20, 2}, {10, 20, 1}, {100, 20, 1}, {1, 4, 2}, {1, 3, 1}, {4, 1, 1},
	} {
		s := settings{workers: test.workers, connections: test.connections}
		require.Equal(t, test.want, s.requestsPerBatch(), "%+v", test)
	}
}

// Portions that are being written have as much memory as one of maxPortion for each worker.
func TestTheWriteStepAdmitsPortionsByTheirSize(t *testing.T) {
	for _, test := range []struct{ workers, perWorker, size, limit, want int }{
		{4, 4, maxPortion, maxPortion, 4},
		{4, 4, maxPortion + 1, maxPortion, 4}, // a document alone
		{4, 4, 8 * maxPortion, maxPortion, 4},
		{4, 4, maxPortion / 2, maxPortion, 8},
		{4, 4, maxPortion/2 + 1, maxPortion, 5},
		{4, 4, maxPortion / 4, maxPortion, 16},
		{4, 4, 1, maxPortion, 16},
		{1, 4, 1, maxPortion, 4},
		{3, 1, 1, maxPortion, 3},
		{4, 4, 20_000, 20_000, 4}, // a target that takes no more
		{4, 4, 5000, 20_000, 16},
	} {
		s := newWriteStep(test.workers, test.perWorker)
		var leave []func()
		for range test.want {
			out, err := s.enter(t.Context(), test.size, test.limit)
			require.NoError(t, err)
			leave = append(leave, out)
		}
		ended, end := context.WithCancelCause(t.Context())
		end(ErrStopped)
		_, err := s.enter(ended, test.size, test.limit)
		require.ErrorIs(t, err, ErrStopped, "%+v", test)
		leave[0]()
		out, err := s.enter(t.Context(), test.size, test.limit)
		require.NoError(t, err, "%+v", test)
		out()
	}
}

func TestPartsOfABatch(t *testing.T) {
	refs := func(docs, leaves int) []ref {
		var all []ref
		for i := range docs {
			for rev := range leaves {
				all = append(all, ref{id: fmt.Sprint(i), rev: fmt.Sprint(rev)})
			}
		}
		return all
	}
	for _, test := range []struct {
		refs []ref
		n    int
		want []int
	}{
		{nil, 4, nil},
		{refs(1, 1), 4, []int{1}},
		{refs(199, 1), 4, []int{199}},
		{refs(200, 1), 4, []int{100, 100}},
		{refs(500, 1), 4, []int{125, 125, 125, 125}},
		{refs(500, 1), 1, []int{500}},
		{refs(403, 1), 4, []int{100, 101, 101, 101}},
		{refs(100, 3), 2, []int{150, 150}},
		{refs(67, 3), 2, []int{102, 99}}, // no document in both
		{refs(1, 1000), 4, []int{1000}},
	} {
		parts := partsOf(test.refs, test.n)
		var sizes []int
		var all []ref
		for _, part := range parts {
			sizes, all = append(sizes, len(part)), append(all, part...)
		}
		require.Equal(t, test.want, sizes)
		require.Equal(t, test.refs, all)
	}
}
