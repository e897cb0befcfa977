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

// TestNewProcessBeginsAtTheHead: a process that has not read a queue yet does not pass over the rows that others have
// taken from it.
func TestNewProcessBeginsAtTheHead(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		head := func() (begin []byte) {
			b.transact(t, func(tx kv.Transaction) (err error) {
				begin, err = b.jobs.Head(tx, "o")
				return err
			})
			return begin
		}
		b.addMany(t, "o", 200)
		require.Nil(t, head())
		for range 8 { // more than a window
			require.Len(t, b.take(t, 20), 20)
			after(2 * time.Second)
		}
		require.NotNil(t, head(), "a claim that reads another window notes where the ready jobs begin")
		b.check(t)
		assert.EqualValues(t, 40, b.count(t, fdbjobs.Pending))

		other := newBundle(t, db)
		taken := 0
		for n := 1; n > 0; taken += n { // its own share first
			n = len(other.take(t, 40))
		}
		assert.Equal(t, 40, taken)
		b.check(t)
	})
}

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
