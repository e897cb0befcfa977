package docstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/memkv"
)

// wait starts waiting for a change after a sequence.
func (b *bundle) wait(ctx context.Context, since docstore.Sequence) <-chan error {
	told := make(chan error, 1)
	go func() { told <- b.db.WaitChange(ctx, since) }()
	return told
}

func TestWaitChange(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		feeds := make([]<-chan error, 50)
		for i := range feeds {
			feeds[i] = b.wait(t.Context(), docstore.Sequence{})
		}
		after(time.Hour)
		tickers, waiting := b.store.Waiting()
		assert.Equal(t, 1, tickers)
		assert.Equal(t, len(feeds), waiting)
		_, err := b.db.PutLocal(t.Context(), "_local/x", "", docjson.Body{})
		require.NoError(t, err)
		synctest.Wait()
		_, waiting = b.store.Waiting()
		assert.Equal(t, len(feeds), waiting) // that was no change
		b.put(t, "d", "", `{}`)
		synctest.Wait() // no time passes
		for _, told := range feeds {
			require.NoError(t, <-told)
		}
		tickers, _ = b.store.Waiting()
		assert.Zero(t, tickers)

		require.NoError(t, b.db.WaitChange(t.Context(), docstore.Sequence{})) // at once
		last := b.info(t).UpdateSeq
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, b.db.WaitChange(ctx, last), context.DeadlineExceeded)

		gone := b.wait(t.Context(), last)
		synctest.Wait()
		require.NoError(t, b.db.Delete(t.Context()))
		require.ErrorIs(t, <-gone, docstore.ErrDatabaseNotFound)

		b.db, err = b.store.Create(t.Context(), "db")
		require.NoError(t, err)
		closed := b.wait(t.Context(), last)
		synctest.Wait()
		b.store.Close()
		require.ErrorIs(t, <-closed, docstore.ErrClosed)
		require.ErrorIs(t, b.db.WaitChange(t.Context(), last), docstore.ErrClosed)
	})
}

// TestWaitWithFaults: watches may be lost, late, or end without a change. A waiter still returns within little more
// than 30 seconds.
func TestWaitWithFaults(t *testing.T) {
	for name, rates := range map[string]faultkv.Rates{
		"lost":     {faultkv.LostWatch: 1},
		"late":     {faultkv.LateWatch: 1},
		"spurious": {faultkv.SpuriousWatch: 0.9},
		"unknown":  {faultkv.UnknownCommitted: 0.5, faultkv.UnknownNotCommitted: 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
				b := newBundle(t, faultkv.Wrap(db, faultkv.Options{Seed: 1, Rates: rates}), docstore.Options{})
				last := docstore.Sequence{}
				for i := range 5 {
					told := b.wait(t.Context(), last)
					after(time.Duration(i) * time.Second)
					b.put(t, fmt.Sprint(i), "", `{}`)
					began := time.Now()
					require.NoError(t, <-told)
					assert.LessOrEqual(t, time.Since(began), 35*time.Second)
					last = b.info(t).UpdateSeq
				}
			})
		})
	}
}

// TestTooManyWatches: feeds continue without a watch.
func TestTooManyWatches(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		store := docstore.Open(enginetest.MemoryWith(t, memkv.Options{MaxWatches: 1}), prefix, docstore.Options{})
		defer store.Close()
		var told []<-chan error
		var dbs []*docstore.Database
		for i := range 3 {
			made, err := store.Create(t.Context(), fmt.Sprint("n", i))
			require.NoError(t, err)
			dbs = append(dbs, made)
			told = append(told, (&bundle{db: made}).wait(t.Context(), docstore.Sequence{}))
		}
		after(time.Minute)
		for i, made := range dbs {
			_, err := made.Put(t.Context(), docstore.Edit{ID: "d"})
			require.NoError(t, err)
			began := time.Now()
			require.NoError(t, <-told[i])
			assert.LessOrEqual(t, time.Since(began), 2*time.Second)
		}
	})
}

// TestFailedFeed: an error of the store ends the waiting, and the next call waits again.
func TestFailedFeed(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		f := enginetest.Control(db)
		b := newBundle(t, f, docstore.Options{})
		told := b.wait(t.Context(), docstore.Sequence{})
		synctest.Wait()
		broken := errors.New("broken")
		f.Fail(broken)
		after(31 * time.Second)
		require.ErrorIs(t, <-told, broken)
		require.ErrorIs(t, b.db.WaitChange(t.Context(), docstore.Sequence{}), broken)
		f.Fail(nil)
		told = b.wait(t.Context(), docstore.Sequence{})
		synctest.Wait()
		b.put(t, "d", "", `{}`)
		require.NoError(t, <-told)
	})
}

// TestFollow: a feed that follows concurrent writers, and continues from each of its ends, gets every document's last
// revision, and never goes back.
func TestFollow(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		const writers, rounds = 4, 30
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				rev := docstore.Rev{}
				for i := range rounds {
					var err error
					rev, err = b.db.Put(t.Context(), docstore.Edit{ID: fmt.Sprint("d", w), Rev: rev, Body: docjson.Must(fmt.Appendf(nil, `{"n":%d}`, i))})
					assert.NoError(t, err)
				}
			})
		}
		var last docstore.Sequence
		ends := map[string]int64{}
		for done := false; !done; {
			require.NoError(t, b.db.WaitChange(t.Context(), last))
			feed := b.db.Changes(docstore.ChangesOptions{Since: last})
			for row, err := range feed.All(t.Context()) {
				require.NoError(t, err)
				assert.Positive(t, row.Sequence.Compare(last))
				last = row.Sequence
				assert.Greater(t, row.Revs[0].Pos, ends[row.ID])
				ends[row.ID] = row.Revs[0].Pos
			}
			assert.GreaterOrEqual(t, feed.Last().Compare(last), 0)
			last = feed.Last()
			done = len(ends) == writers
			for _, pos := range ends {
				done = done && pos == rounds
			}
		}
		wg.Wait()
	})
}
