package fdbjobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// TestCommitUnknown: every call returns the right result although each transaction is made once more after its commit.
func TestCommitUnknown(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db))
		state := func(pending, running, finished int) {
			t.Helper()
			assert.EqualValues(t, pending, b.count(t, fdbjobs.Pending))
			assert.EqualValues(t, running, b.count(t, fdbjobs.Running))
			assert.EqualValues(t, finished, b.count(t, fdbjobs.Finished))
			b.check(t)
		}
		also := func(tx kv.Transaction) error {
			tx.Add([]byte("also"), 1)
			return nil
		}
		for i := range 5 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint(i % 2), Token: fmt.Sprint(i)})
		}
		state(5, 0, 0)
		one := b.accept(t)
		state(4, 1, 0)
		two := b.take(t, 2)
		require.Len(t, two, 2)
		state(2, 3, 0)

		require.NoError(t, one.Update(t.Context(), text(`{"s":1}`), nil))
		require.NoError(t, one.Finish(t.Context(), text(`{"s":2}`), also))
		assert.EqualValues(t, 1, b.also(t))
		assert.JSONEq(t, `{"s":2}`, string(b.get(t, one.Job().ID).State))
		state(2, 2, 1)

		require.NoError(t, two[0].Resubmit(t.Context(), time.Now(), text(`{"s":3}`), also))
		assert.EqualValues(t, 2, b.also(t))
		require.NoError(t, two[1].Resubmit(t.Context(), time.Now().Add(time.Hour), nil, nil))
		state(4, 0, 1)

		// Added again: the generation grows once.
		h := b.accept(t)
		b.add(t, fdbjobs.Spec{ID: h.Job().ID, Token: "again"})
		assert.Equal(t, h.Job().Generation()+1, b.get(t, h.Job().ID).Generation())
		require.ErrorIs(t, h.Finish(t.Context(), nil, also), fdbjobs.ErrHalt)
		assert.EqualValues(t, 2, b.also(t))
		state(4, 0, 1)

		h = b.accept(t)
		assert.True(t, b.remove(t, h.Job().ID))
		require.ErrorIs(t, h.Update(t.Context(), nil, nil), fdbjobs.ErrHalt)
		assert.True(t, b.remove(t, one.Job().ID))
		state(3, 0, 0)
		rest := b.take(t, 10)
		require.Len(t, rest, 2)
		for _, h := range rest {
			require.NoError(t, h.Finish(t.Context(), nil, nil))
		}
		assert.Empty(t, b.take(t, 1))
		state(1, 0, 2)
		job, err := b.jobs.Wait(t.Context(), rest[0].Job().ID, nil)
		require.NoError(t, err)
		assert.Equal(t, fdbjobs.Finished, job.Status)
	})
}

// TestCommitUnknownOverTime: the same for what happens without calls.
func TestCommitUnknownOverTime(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db))
		b.monitor(t)
		for i := range 130 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Scheduled: time.Now().Add(time.Minute)})
		}
		waited := make(chan error)
		go func() { _, err := b.jobs.Wait(t.Context(), "7", nil); waited <- err }()
		for taken := 0; taken < 130; { // taken by processors that die
			held := b.acceptBy(t, fdbjobs.AcceptOptions{Count: 64})
			taken += len(held)
		}
		assert.EqualValues(t, 130, b.count(t, fdbjobs.Running))
		after(2 * time.Minute)
		assert.EqualValues(t, 130, b.count(t, fdbjobs.Pending))
		b.check(t)
		for b.count(t, fdbjobs.Pending) > 0 {
			for _, h := range b.take(t, 64) {
				require.NoError(t, h.Finish(t.Context(), nil, nil))
			}
		}
		require.NoError(t, <-waited)
	})
}

// TestMeanwhile: other calls run between a commit of unknown result and its repetition.
func TestMeanwhile(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		other := newBundle(t, db)
		store := enginetest.Control(enginetest.UnknownOnce(db))
		b := newBundle(t, store)
		fresh := func() *fdbjobs.Held {
			other.remove(t, "j")
			other.add(t, fdbjobs.Spec{ID: "j", Args: text(`{"n":1}`)})
			return b.accept(t)
		}

		// A claimed job that is added again keeps its first holder, which is halted.
		other.add(t, fdbjobs.Spec{ID: "j"})
		store.BetweenRuns(func() { other.add(t, fdbjobs.Spec{ID: "j", Args: text(`{"n":2}`)}) })
		h := b.accept(t)
		require.ErrorIs(t, h.Finish(t.Context(), nil, nil), fdbjobs.ErrHalt)
		assert.Equal(t, fdbjobs.Pending, other.get(t, "j").Status)
		other.check(t)

		// A claimed job that is removed is not returned.
		store.BetweenRuns(func() { other.remove(t, "j") })
		assert.Empty(t, b.take(t, 1))

		// A job that begins again has still been finished before.
		h = fresh()
		store.BetweenRuns(func() { other.add(t, fdbjobs.Spec{ID: "j"}) })
		require.NoError(t, h.Finish(t.Context(), nil, nil))
		assert.Equal(t, fdbjobs.Pending, other.get(t, "j").Status)

		// Finishing a job that another holder has taken may return ErrHalt, and does not change the job.
		h = fresh()
		var taken *fdbjobs.Held
		store.BetweenRuns(func() { taken = other.accept(t) })
		require.ErrorIs(t, h.Resubmit(t.Context(), time.Now(), nil, nil), fdbjobs.ErrHalt)
		require.NoError(t, taken.Finish(t.Context(), nil, nil))
		other.check(t)
	})
}

// TestLocksOfALostClaimAreNotUsedAgain: a claim whose commit was reported unknown takes other jobs with new locks if it
// has lost the first ones meanwhile.
func TestLocksOfALostClaimAreNotUsedAgain(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		store := enginetest.Control(enginetest.UnknownOnce(db))
		b, other := newBundle(t, store), newBundle(t, db)
		lockOf := func(id string) (lock string) {
			other.transact(t, func(tx kv.Transaction) (err error) {
				lock, err = other.jobs.LockOf(tx, id)
				return err
			})
			require.NotEmpty(t, lock, id)
			return lock
		}
		other.add(t, fdbjobs.Spec{ID: "lost"})
		var lost string
		store.BetweenRuns(func() {
			lost = lockOf("lost")
			require.True(t, other.remove(t, "lost"))
			other.add(t, fdbjobs.Spec{ID: "next"})
		})
		require.Equal(t, "next", b.accept(t).Job().ID)
		assert.NotEqual(t, lost, lockOf("next"))
	})
}
