package fdbjobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// TestJobWithAnotherOwnerIsTakenOnce: a claim that remembers a job of one owner finds it among another's, and
// takes it there.
func TestJobWithAnotherOwnerIsTakenOnce(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t,
			fdbjobs.Spec{ID: "a1", Owner: "a"}, fdbjobs.Spec{ID: "a2", Owner: "a"}, fdbjobs.Spec{ID: "moved", Owner: "a"},
			fdbjobs.Spec{ID: "b1", Owner: "b"}, fdbjobs.Spec{ID: "b2", Owner: "b"})
		accept := func(count int) (ids []string) {
			for _, h := range b.take(t, count) {
				ids = append(ids, h.Job().ID)
			}
			return ids
		}
		require.Equal(t, []string{"a1"}, accept(1)) // remembers the rest of a's queue
		b.transact(t, func(tx kv.Transaction) error { b.jobs.Charge(tx, "a", 100); return nil })
		after(2 * time.Second)
		require.Equal(t, []string{"b1"}, accept(1)) // the owners after b come next
		require.True(t, b.remove(t, "moved"))
		b.add(t, fdbjobs.Spec{ID: "moved", Owner: "c"})
		after(2 * time.Second)
		assert.Equal(t, []string{"moved", "b2", "a2"}, accept(10))
		b.check(t)
	})
}
