package fdbjobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
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
		due := func(id, from string) (made bool) {
			t.Helper()
			b.transact(t, func(tx kv.Transaction) error {
				all, err := b.jobs.MakeDue(tx, []string{id, id}, from, "tag")
				made = err == nil && all[0]
				assert.False(t, err == nil && all[1], "it is made due once")
				return err
			})
			return made
		}
		assert.False(t, due("none", ""))
		later := time.Now().Add(time.Hour)
		b.add(t, fdbjobs.Spec{ID: "a", Owner: "o", Scheduled: later, Tag: "waits", State: text(`{"s":1}`), Args: text(`{"a":1}`)},
			fdbjobs.Spec{ID: "b", Owner: "o", Scheduled: later})
		require.ErrorIs(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			_, err := b.jobs.MakeDue(tx, []string{"a"}, "waits", strings.Repeat("x", 101))
			return err
		}), fdbjobs.ErrTooLarge)
		accepted := make(chan []*fdbjobs.Held)
		go func() {
			held, err := b.jobs.Accept(t.Context(), fdbjobs.AcceptOptions{})
			assert.NoError(t, err)
			accepted <- held
		}()
		assert.False(t, due("a", ""), "it has a tag")
		assert.True(t, due("a", "waits"))
		held := <-accepted
		require.Len(t, held, 1)
		job := held[0].Job()
		assert.Equal(t, "a", job.ID)
		assert.Equal(t, `{"s":1} {"a":1}`, string(job.State)+" "+string(job.Args))
		assert.False(t, due("a", ""), "it runs")
		assert.Equal(t, fdbjobs.Running, b.get(t, "a").Status)
		require.NoError(t, held[0].Finish(t.Context(), nil, nil))
		assert.False(t, due("a", ""), "it has ended")
		assert.Equal(t, fdbjobs.Finished, b.get(t, "a").Status)

		assert.True(t, due("b", ""))
		assert.Equal(t, "tag", b.get(t, "b").Tag)
		assert.False(t, due("b", "tag"), "it is due")
		assert.Equal(t, "b", b.accept(t).Job().ID)
		assert.Empty(t, b.take(t, 1))
	})
}

// MakeDue makes jobs due that have the tag and are delayed, in the order of the ids.
func TestMakeDueInOrder(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		later := time.Now().Add(time.Hour)
		b.add(t, fdbjobs.Spec{ID: "due", Owner: "o", Tag: "waits"}, fdbjobs.Spec{ID: "other", Owner: "o", Scheduled: later, Tag: "x"})
		running := b.accept(t)
		b.add(t, fdbjobs.Spec{ID: "due too", Owner: "o", Tag: "waits"})
		for _, id := range []string{"c", "a", "b"} {
			b.add(t, fdbjobs.Spec{ID: id, Owner: "o" + id[:1], Scheduled: later, Tag: "waits"})
		}
		b.add(t, fdbjobs.Spec{ID: "d", Owner: "oa", Scheduled: later, Tag: "waits"})
		ids := []string{"d", "none", "due", "due too", "other", "b", "a"}
		var made []bool
		b.transact(t, func(tx kv.Transaction) (err error) {
			made, err = b.jobs.MakeDue(tx, ids, "waits", "")
			return err
		})
		assert.Equal(t, []bool{true, false, false, false, false, true, true}, made)
		b.transact(t, func(tx kv.Transaction) (err error) {
			made, err = b.jobs.MakeDue(tx, ids, "waits", "")
			return err
		})
		assert.Equal(t, make([]bool, len(ids)), made, "again, as after an unknown result")
		assert.Equal(t, "waits", b.get(t, "due too").Tag)
		assert.Empty(t, b.get(t, "a").Tag)
		require.NoError(t, running.Finish(t.Context(), nil, nil))
		var taken []string
		for _, h := range b.take(t, 10) {
			taken = append(taken, h.Job().ID)
		}
		assert.ElementsMatch(t, []string{"due too", "a", "b", "d"}, taken)
		b.check(t)
	})
}

// A Resubmit whose function returns an error leaves the job as it was, and another one with another time and tag may follow.
func TestResubmitOtherwise(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db))
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "o"})
		later := time.Now().Add(time.Hour)
		errWoken := errors.New("woken")
		for _, at := range []time.Time{{}, later} {
			h := b.accept(t)
			h.Tag = "likely"
			require.ErrorIs(t, h.Resubmit(t.Context(), later, text(`{"s":0}`), func(tx kv.Transaction) error {
				tx.Set([]byte("also"), nil)
				return errWoken
			}), errWoken)
			assert.Equal(t, fdbjobs.Running, b.get(t, "j").Status)
			h.Tag = strings.Repeat("x", 101)
			require.ErrorIs(t, h.Resubmit(t.Context(), at, nil, nil), fdbjobs.ErrTooLarge)
			h.Tag = "tag"
			require.NoError(t, h.Resubmit(t.Context(), at, text(`{"s":1}`), nil))
			job := b.get(t, "j")
			assert.Equal(t, "tag", job.Tag)
			assert.Equal(t, `{"s":1}`, string(job.State))
			b.transact(t, func(tx kv.Transaction) error {
				value, err := tx.Get([]byte("also")).Await()
				assert.Nil(t, value)
				return err
			})
			if !at.IsZero() {
				assert.Equal(t, at.Unix(), job.Scheduled.Unix())
				assert.Empty(t, b.take(t, 1))
				b.transact(t, func(tx kv.Transaction) error {
					_, err := b.jobs.MakeDue(tx, []string{"j"}, "tag", "")
					return err
				})
			}
		}
		h := b.accept(t)
		assert.True(t, b.remove(t, "j"))
		require.ErrorIs(t, h.Resubmit(t.Context(), later, nil, nil), fdbjobs.ErrHalt)
	})
}

// A job has another tag once it is due, whichever way it becomes that. Without one it keeps the tag that it is added or resubmitted
// with, and loses the tag that it waited with.
func TestTagWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBundleWith(t, enginetest.UnknownOnce(enginetest.Memory(t)), fdbjobs.Options{Derive: map[string]fdbjobs.Derivation{
			"work": {Due: map[string]string{"failed": "again", "waits": ""}},
		}})
		later := time.Now().Add(time.Minute)
		tagged := func(at time.Time, prefix string) {
			for _, tag := range []string{"failed", "waits", "x"} {
				b.add(t, fdbjobs.Spec{ID: prefix + tag, Owner: "o", Tag: tag, Scheduled: at})
			}
		}
		tags := func(prefix string) (all []string) {
			for _, id := range []string{"failed", "waits", "x"} {
				all = append(all, b.get(t, prefix+id).Tag)
			}
			return all
		}
		tagged(later, "later ")
		assert.Equal(t, []string{"failed", "waits", "x"}, tags("later "))
		tagged(time.Time{}, "now ")
		assert.Equal(t, []string{"again", "", "x"}, tags("now "))
		for range 3 {
			h := b.accept(t)
			assert.Empty(t, b.get(t, h.Job().ID).Tag, "it runs")
			h.Tag = strings.TrimPrefix(h.Job().ID, "now ")
			require.NoError(t, h.Resubmit(t.Context(), time.Time{}, nil, nil))
		}
		assert.Equal(t, []string{"again", "", "x"}, tags("now "))
		b.check(t)

		b.weigh(t, "o", 0) // none of them is taken
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, err := b.jobs.Accept(ctx, fdbjobs.AcceptOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, []string{"again", "", ""}, tags("later "))
	})
}
