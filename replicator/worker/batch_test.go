package worker

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/replicator"
)

// batching is a run whose feed and workers are the test.
func batching(size int) (r *run, items chan feedItem, batches chan *batch) {
	r = &run{
		settings: settings{batchSize: size},
		rep:      &replicator.Replication{},
		position: newPosition(),
	}
	return r, make(chan feedItem), make(chan *batch)
}

func row(seq int, live bool) feedItem {
	return feedItem{row: couch.Row{ID: "d", Seq: json.RawMessage(strconv.Itoa(seq))}, live: live}
}

func TestBatchesOfAFeedThatEndsAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, items, batches := batching(3)
		end := make(chan error)
		complete := false
		go func() {
			var err error
			complete, err = r.fillBatches(t.Context(), items, batches)
			end <- err
		}()
		items <- row(1, false)
		items <- row(2, false)
		synctest.Wait()
		select {
		case <-batches:
			t.Fatal("it was not full")
		default:
		}
		items <- row(3, false)
		b := <-batches
		require.Len(t, b.rows, 3)
		require.Equal(t, "3", string(b.seq))

		// A filter that finds little holds nothing up.
		began := time.Now()
		items <- row(4, false)
		b = <-batches
		require.Len(t, b.rows, 1)
		require.Equal(t, linger, time.Since(began))

		items <- row(5, false)
		items <- feedItem{end: true, seq: json.RawMessage("9")}
		b = <-batches
		require.Len(t, b.rows, 1)
		require.Equal(t, "9", string(b.seq))
		require.NoError(t, <-end)
		require.True(t, complete)
		_, open := <-batches
		require.False(t, open)
	})
}

func TestBatchesOfALiveFeedLeaveAtOnceAndGrowWhileWorkersAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, items, batches := batching(3)
		ctx, cancel := context.WithCancel(t.Context())
		end := make(chan error)
		go func() {
			_, err := r.fillBatches(ctx, items, batches)
			end <- err
		}()
		began := time.Now()
		items <- row(1, true)
		require.Len(t, (<-batches).rows, 1)
		require.Zero(t, time.Since(began))
		for seq := 2; seq <= 4; seq++ {
			items <- row(seq, true)
		}
		synctest.Wait()
		select {
		case items <- row(5, true):
			t.Fatal("a batch grew beyond its size")
		default:
		}
		require.Len(t, (<-batches).rows, 3)
		cancel()
		require.ErrorIs(t, <-end, context.Canceled)
	})
}

func TestThePassageIsInTheFeedsOrder(t *testing.T) {
	t.Parallel()
	r, _, _ := batching(1)
	r.through = json.RawMessage("0")
	var batches []*batch
	for i, seq := range []string{"1", "2", "", "4"} {
		b, err := r.beginBatch(t.Context())
		require.NoError(t, err)
		require.Equal(t, i, b.number)
		if seq != "" {
			r.add(b, feedItem{row: couch.Row{Seq: json.RawMessage(seq)}})
		}
		batches = append(batches, b)
	}
	left := int64(10)
	r.setLeft(left)
	for _, step := range []struct {
		ends    int
		through string
		pending int64
	}{{1, "0", 12}, {3, "0", 11}, {0, "2", 10}, {2, "4", 10}} {
		r.pass(batches[step.ends])
		progress := r.progress()
		require.Equal(t, step.through, string(progress.ThroughSeq))
		require.Equal(t, "4", string(progress.SourceSeq))
		require.Equal(t, step.pending, *progress.ChangesPending)
	}
	require.Empty(t, r.done)
	require.Empty(t, r.room)
}

func TestBatchesWaitForOneThatIsFarBehind(t *testing.T) {
	t.Parallel()
	r, _, _ := batching(1)
	var first *batch
	for range maxAhead {
		b, err := r.beginBatch(t.Context())
		require.NoError(t, err)
		if first == nil {
			first = b
		} else {
			r.pass(b)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.beginBatch(ctx)
	require.ErrorIs(t, err, context.Canceled)
	r.pass(first)
	require.Empty(t, r.room)
}
