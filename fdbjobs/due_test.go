package fdbjobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// MakeDue queues a delayed job at once, wakes a claimer that waits, and changes no other job.
func TestMakeDue(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		due := func(id string) error {
			return b.db.Transact(t.Context(), func(tx kv.Transaction) error { return b.jobs.MakeDue(tx, id, "tag") })
		}
		require.ErrorIs(t, due("none"), fdbjobs.ErrNotFound)
		later := time.Now().Add(time.Hour)
		b.add(t, fdbjobs.Spec{ID: "a", Owner: "o", Scheduled: later, Tag: "waits", State: text(`{"s":1}`), Args: text(`{"a":1}`)},
			fdbjobs.Spec{ID: "b", Owner: "o", Scheduled: later})
		require.ErrorIs(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			return b.jobs.MakeDue(tx, "a", strings.Repeat("x", 101))
		}), fdbjobs.ErrTooLarge)
		accepted := make(chan []*fdbjobs.Held)
		go func() {
			held, err := b.jobs.Accept(t.Context(), fdbjobs.AcceptOptions{})
			assert.NoError(t, err)
			accepted <- held
		}()
		require.NoError(t, due("a"))
		held := <-accepted
		require.Len(t, held, 1)
		job := held[0].Job()
		assert.Equal(t, "a", job.ID)
		assert.Equal(t, `{"s":1} {"a":1}`, string(job.State)+" "+string(job.Args))
		require.NoError(t, due("a"), "it runs")
		assert.Equal(t, fdbjobs.Running, b.get(t, "a").Status)
		require.NoError(t, held[0].Finish(t.Context(), nil, nil))
		require.NoError(t, due("a"), "it has ended")
		assert.Equal(t, fdbjobs.Finished, b.get(t, "a").Status)

		require.NoError(t, due("b"))
		assert.Equal(t, "tag", b.get(t, "b").Tag)
		require.NoError(t, due("b"), "it is due")
		assert.Equal(t, "b", b.accept(t).Job().ID)
		assert.Empty(t, b.take(t, 1))
	})
}
