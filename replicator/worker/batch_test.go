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

// batching is the intake of a run with one worker, fed by the test. A batch is copied when the test receives it from
// the channel.
func batching(size int) (*intake, chan *batch) {
	r := &run{
		settings: settings{batchSize: size, workers: 1},
		rep:      &replicator.Replication{},
		progress: progress{position: newPosition()},
	}
	q := newIntake(r)
	batches := make(chan *batch)
	q.start = func(b *batch) {
		go func() {
			batches <- b
			r.pass(b)
			q.asked()
			r.mu.Lock()
			defer r.mu.Unlock()
			q.leave()
		}()
	}
	return q, batches
}

func row(seq int, live bool) feedItem {
	return feedItem{rows: []couch.Row{{ID: "d", Seq: json.RawMessage(strconv.Itoa(seq))}}, live: live}
}

func TestBatchesOfAFeedThatEndsAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, batches := batching(3)
		take := func(item feedItem) { require.NoError(t, q.take(t.Context(), item)) }
		take(row(1, false))
		take(row(2, false))
		synctest.Wait()
		select {
		case <-batches:
			t.Fatal("it was not full")
		default:
		}
		take(row(3, false))
		b := <-batches
		require.Len(t, b.rows, 3)
		require.Equal(t, "3", string(b.seq))

		// A filter that passes little delays nothing.
		began := time.Now()
		take(row(4, false))
		b = <-batches
		require.Len(t, b.rows, 1)
		require.Equal(t, linger, time.Since(began))

		take(row(5, false))
		take(feedItem{end: true, seq: json.RawMessage("9")})
		q.end(nil)
		b = <-batches
		require.Len(t, b.rows, 1)
		require.Equal(t, "9", string(b.seq))
		<-q.copied
	})
}

func TestBatchesOfALiveFeedLeaveAtOnceAndGrowWhileWorkersAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, batches := batching(3)
		began := time.Now()
		for seq := 1; seq <= 4; seq++ {
			require.NoError(t, q.take(t.Context(), row(seq, true)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		taken := make(chan error)
		go func() { taken <- q.take(ctx, row(5, true)) }()
		synctest.Wait()
		select {
		case err := <-taken:
			t.Fatal("a batch grew beyond its size", err)
		default:
		}
		require.Len(t, (<-batches).rows, 1)
		require.NoError(t, <-taken)
		require.Len(t, (<-batches).rows, 3)
		require.Len(t, (<-batches).rows, 1)
		require.Zero(t, time.Since(began))

		synctest.Wait()
		for seq := 6; seq <= 9; seq++ {
			require.NoError(t, q.take(t.Context(), row(seq, true)))
		}
		go func() { taken <- q.take(ctx, row(10, true)) }()
		cancel()
		require.ErrorIs(t, <-taken, context.Canceled)

		// The last rows are dropped with the feed.
		q.end(context.Canceled)
		require.Len(t, (<-batches).rows, 1)
		<-q.copied
	})
}

func TestBatchesOfALiveFeedWaitWhileOthersAreCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := batching(3)
		q.r.workers = 4
		var started []*batch
		q.start = func(b *batch) { started = append(started, b) }
		take := func(seq int) { require.NoError(t, q.take(t.Context(), row(seq, true))) }
		requireRows := func(sizes ...int) {
			t.Helper()
			synctest.Wait()
			q.r.mu.Lock()
			defer q.r.mu.Unlock()
			var got []int
			for _, b := range started {
				got = append(got, len(b.rows))
			}
			require.Equal(t, sizes, got)
		}
		copied := func() {
			q.r.mu.Lock()
			defer q.r.mu.Unlock()
			q.leave()
		}
		began := time.Now()
		take(1)
		requireRows(1)
		q.asked()
		take(2)
		requireRows(1)
		require.Zero(t, time.Since(began))
		time.Sleep(liveLinger)
		requireRows(1, 1)
		q.asked()

		began = time.Now()
		for seq := range 3 {
			take(3 + seq)
		}
		requireRows(1, 1, 3) // full
		q.asked()
		take(6)
		take(7)
		copied()
		copied()
		requireRows(1, 1, 3)
		copied()
		requireRows(1, 1, 3, 2)
		require.Zero(t, time.Since(began))

		copied()
		q.end(nil)
		<-q.copied
	})
}

func TestAFeedThatIsGivenUpLeavesNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := batching(3)
		require.NoError(t, q.take(t.Context(), row(1, false)))
		q.end(context.Canceled)
		<-q.copied
		time.Sleep(2 * linger) // a batch started now would block the bubble's end
	})
}

func TestThePassageIsInTheFeedsOrder(t *testing.T) {
	t.Parallel()
	q, _ := batching(1)
	r := q.r
	r.workers = 4
	var batches []*batch
	q.start = func(b *batch) { batches = append(batches, b) }
	r.through = json.RawMessage("0")
	for i, seq := range []string{"1", "2", "", "4"} {
		item := feedItem{rows: []couch.Row{{ID: "d", Seq: json.RawMessage(seq)}}}
		if seq == "" {
			item = feedItem{end: true}
		}
		require.NoError(t, q.take(t.Context(), item))
		require.Equal(t, i, batches[i].number)
	}
	left := int64(10)
	r.setLeft(left, 3)
	for _, step := range []struct {
		ends    int
		through string
		pending int64
	}{{1, "0", 12}, {3, "0", 11}, {0, "2", 10}, {2, "4", 10}} {
		r.pass(batches[step.ends])
		progress := r.snapshot()
		require.Equal(t, step.through, string(progress.ThroughSeq))
		require.Equal(t, "4", string(progress.SourceSeq))
		require.Equal(t, step.pending, *progress.ChangesPending)
	}
	require.Empty(t, r.done)
	require.Equal(t, r.issued, r.next)
}

func TestBatchesWaitForOneThatIsFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := batching(1)
		var first, latest *batch
		q.start = func(b *batch) { latest = b }
		for seq := range maxAhead {
			require.NoError(t, q.take(t.Context(), row(seq, true)))
			q.asked()
			if first == nil {
				first = latest
			} else {
				q.r.pass(latest)
			}
		}
		taken := make(chan error)
		go func() { taken <- q.take(t.Context(), row(maxAhead, true)) }()
		synctest.Wait()
		select {
		case err := <-taken:
			t.Fatal("a batch was begun too far ahead", err)
		default:
		}
		q.r.pass(first)
		q.look()
		require.NoError(t, <-taken)
	})
}
