package fdbjobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/sealed/sealedtest"
)

func TestLifeCycle(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		assert.Equal(t, "work", b.jobs.Name())
		assert.Same(t, b.jobs, b.layer.Queue("work"))
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "o", Args: text(`{"n":1}`), State: text(`{"s":0}`)})
		job := b.get(t, "j")
		assert.Equal(t, "j", job.ID)
		assert.Equal(t, "o", job.Owner)
		assert.Equal(t, fdbjobs.Pending, job.Status)
		assert.JSONEq(t, `{"n":1}`, string(job.Args))
		assert.JSONEq(t, `{"s":0}`, string(job.State))
		assert.WithinDuration(t, time.Now(), job.Scheduled, time.Minute)

		h := b.accept(t)
		assert.Equal(t, "j", h.Job().ID)
		assert.Equal(t, fdbjobs.Running, h.Job().Status)
		assert.JSONEq(t, `{"n":1}`, string(h.Job().Args))
		assert.Equal(t, fdbjobs.Running, b.get(t, "j").Status)
		assert.Empty(t, b.take(t, 1), "the job is held")

		require.NoError(t, h.Update(t.Context(), text(`{"s":1}`), nil))
		assert.JSONEq(t, `{"s":1}`, string(b.get(t, "j").State))
		require.NoError(t, h.Update(t.Context(), nil, nil))
		assert.JSONEq(t, `{"s":1}`, string(b.get(t, "j").State), "a heartbeat leaves the state")
		b.check(t)

		require.NoError(t, h.Finish(t.Context(), text(`{"s":2}`), nil))
		require.ErrorIs(t, context.Cause(h.Context()), context.Canceled)
		job = b.get(t, "j")
		assert.Equal(t, fdbjobs.Finished, job.Status)
		assert.JSONEq(t, `{"s":2}`, string(job.State))
		require.ErrorIs(t, h.Update(t.Context(), nil, nil), fdbjobs.ErrHalt, "it has let go of the job")

		assert.True(t, b.remove(t, "j"))
		assert.False(t, b.remove(t, "j"))
		_, err := b.read(t, "j")
		require.ErrorIs(t, err, fdbjobs.ErrNotFound)
		assert.Zero(t, b.count(t, fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished))
	})
}

func TestResubmit(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"})
		h := b.accept(t)
		require.NoError(t, h.Resubmit(t.Context(), time.Now(), text(`{"s":1}`), nil))
		require.Error(t, h.Context().Err())
		h = b.accept(t)
		assert.JSONEq(t, `{"s":1}`, string(h.Job().State))

		later := time.Now().Add(time.Hour)
		require.NoError(t, h.Resubmit(t.Context(), later, nil, nil))
		job := b.get(t, "j")
		assert.Equal(t, fdbjobs.Pending, job.Status)
		assert.Equal(t, later.Unix(), job.Scheduled.Unix())
		assert.JSONEq(t, `{"s":1}`, string(job.State))
		assert.Empty(t, b.take(t, 1))
	})
}

func TestAddAgain(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "o", Args: text(`{"n":1}`), State: text(`{"s":0}`)})

		later := time.Now().Add(time.Hour)
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "p", Args: text(`{"n":2}`), State: text(`{"s":9}`), Scheduled: later})
		job := b.get(t, "j")
		assert.Equal(t, "p", job.Owner)
		assert.JSONEq(t, `{"n":2}`, string(job.Args))
		assert.JSONEq(t, `{"s":0}`, string(job.State), "a pending job keeps its state")
		assert.Empty(t, b.take(t, 1), "it has a later time now")
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "p", Args: text(`{"n":3}`)})

		h := b.accept(t)
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "x", Args: text(`{"n":4}`), State: text(`{"s":9}`)})
		job = b.get(t, "j")
		assert.Equal(t, fdbjobs.Running, job.Status)
		assert.Equal(t, h.Job().Generation()+1, job.Generation())
		assert.JSONEq(t, `{"n":4}`, string(job.Args))
		b.check(t)
		require.ErrorIs(t, h.Finish(t.Context(), text(`{"s":5}`), nil), fdbjobs.ErrHalt)
		job = b.get(t, "j")
		assert.Equal(t, fdbjobs.Pending, job.Status)
		assert.JSONEq(t, `{"s":0}`, string(job.State), "the halted run wrote nothing")

		h = b.accept(t)
		require.NoError(t, h.Finish(t.Context(), nil, nil))
		b.add(t, fdbjobs.Spec{ID: "j", State: text(`{"s":7}`)})
		job = b.get(t, "j")
		assert.Equal(t, fdbjobs.Pending, job.Status)
		assert.JSONEq(t, `{}`, string(job.Args), "args are replaced")
		assert.JSONEq(t, `{"s":7}`, string(job.State), "a job that had finished begins anew")
	})
}

// TestClaimedArgs: a claim returns the args that a job has when it is taken, also if they are replaced after the claim has read them.
func TestClaimedArgs(t *testing.T) {
	replaced := text(`{"a":2}`)
	for name, replace := range map[string]func(*fdbjobs.Queue, kv.Transaction) error{
		"amended": func(q *fdbjobs.Queue, tx kv.Transaction) error { return q.Amend(tx, "j", replaced, nil) },
		"added again": func(q *fdbjobs.Queue, tx kv.Transaction) error {
			return q.Add(tx, fdbjobs.Spec{ID: "j", Args: replaced})
		},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.Each(t, func(t *testing.T, db kv.Database) {
				store := enginetest.Control(db)
				b := newBundle(t, store)
				b.add(t, fdbjobs.Spec{ID: "j", Args: text(`{"a":1}`)})
				store.BeforeCommit(func() {
					assert.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error { return replace(b.jobs, tx) }))
				})
				held := b.accept(t)
				assert.JSONEq(t, string(replaced), string(held.Job().Args))
				require.NoError(t, held.Finish(t.Context(), nil, nil))
			})
		})
	}
}

// What is amended is there at once, and the job is what it was: a run goes on.
func TestAmend(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db))
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "o", Args: text(`{"a":1}`), Listed: text(`{"l":1}`), State: text(`{"s":1}`), Label: "x"})
		amend := func(id string, args, listed json.RawMessage) error {
			return b.db.Transact(t.Context(), func(tx kv.Transaction) error { return b.jobs.Amend(tx, id, args, listed) })
		}
		large := text(`{"a":"` + strings.Repeat("x", 300_000) + `"}`)
		for _, c := range []struct{ args, listed json.RawMessage }{{large, nil}, {nil, text(`{"l":2}`)}, {text(`{"a":3}`), text(`{"l":3}`)}} {
			was := b.get(t, "j")
			require.NoError(t, amend("j", c.args, c.listed))
			if c.args != nil {
				was.Args = c.args
			}
			require.Equal(t, was, b.get(t, "j"))
			if c.listed != nil {
				listed, err := kv.TransactValue(t.Context(), b.db, func(tx kv.Transaction) (*fdbjobs.Job, error) {
					return b.jobs.Read(tx, "j").Await()
				})
				require.NoError(t, err)
				require.Equal(t, string(c.listed), string(listed.Listed))
			}
			b.check(t)
		}
		held := b.accept(t)
		running := b.get(t, "j")
		require.NoError(t, amend("j", large, nil))
		running.Args = large
		require.Equal(t, running, b.get(t, "j"))
		require.NoError(t, held.Update(t.Context(), text(`{"s":2}`), nil))
		require.NoError(t, held.Finish(t.Context(), nil, nil))
		require.Equal(t, large, b.get(t, "j").Args)
		require.NoError(t, amend("j", text(`{}`), nil), "it has ended")
		require.Equal(t, fdbjobs.Finished, b.get(t, "j").Status)
		require.ErrorIs(t, amend("nosuch", text(`{}`), nil), fdbjobs.ErrNotFound)
		require.ErrorIs(t, amend("j", text(`[]`), nil), fdbjobs.ErrInvalid)
		require.ErrorIs(t, amend("j", nil, text(`{"l":"`+strings.Repeat("x", fdbjobs.MaxListedSize)+`"}`)), fdbjobs.ErrTooLarge)
		b.check(t)
	})
}

// TestAddRunningForLater: a job that is added for a later time while it runs waits for that time when its processor
// ends it.
func TestAddRunningForLater(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"})
		h := b.accept(t)
		later := time.Now().Add(time.Hour)
		b.add(t, fdbjobs.Spec{ID: "j", Scheduled: later, Tag: "later"})
		require.ErrorIs(t, h.Update(t.Context(), nil, nil), fdbjobs.ErrHalt)
		assert.Equal(t, later.Unix(), b.get(t, "j").Scheduled.Unix())
		assert.Equal(t, "later", b.get(t, "j").Tag)
		assert.Empty(t, b.take(t, 1))
	})
}

func TestToken(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		first := fdbjobs.Spec{ID: "j", Args: text(`{"n":1}`), Token: "t1"}
		repeat := fdbjobs.Spec{ID: "j", Args: text(`{"n":2}`), Token: "t1", Scheduled: time.Now().Add(time.Hour)}
		unchanged := func(status fdbjobs.Status) {
			before := b.get(t, "j")
			b.add(t, repeat)
			assert.Equal(t, before, b.get(t, "j"))
			assert.Equal(t, status, before.Status)
		}
		b.add(t, first)
		unchanged(fdbjobs.Pending)
		h := b.accept(t)
		unchanged(fdbjobs.Running)
		require.NoError(t, h.Update(t.Context(), nil, nil))
		require.NoError(t, h.Resubmit(t.Context(), time.Now(), nil, nil))
		unchanged(fdbjobs.Pending)
		require.NoError(t, b.accept(t).Finish(t.Context(), nil, nil))
		unchanged(fdbjobs.Finished)
		repeat.Token = "t2"
		b.add(t, repeat)
		assert.Equal(t, fdbjobs.Pending, b.get(t, "j").Status)
		assert.JSONEq(t, `{"n":2}`, string(b.get(t, "j").Args))
	})
}

// TestOverdue: a job that became due while no claimer ran is made ready.
func TestOverdue(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		var specs []fdbjobs.Spec
		for i := range 250 {
			specs = append(specs, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint(i % 3), Scheduled: time.Now().Add(time.Second)})
		}
		b.add(t, specs...)
		assert.Empty(t, b.take(t, 1))
		after(time.Hour)
		seen := map[string]bool{}
		for len(seen) < len(specs) {
			held := b.take(t, 64)
			require.NotEmpty(t, held)
			b.check(t)
			for _, h := range held {
				require.False(t, seen[h.Job().ID])
				seen[h.Job().ID] = true
				require.NoError(t, h.Finish(t.Context(), nil, nil))
			}
		}
	})
}

func TestSeveral(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		var specs []fdbjobs.Spec
		for i := range 200 {
			specs = append(specs, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint(i % 7)})
		}
		b.add(t, specs...)
		assert.Len(t, b.take(t, 3), 3)
		assert.Len(t, b.take(t, 1000), fdbjobs.MaxClaim)
		assert.Len(t, b.take(t, -1), 1)
		assert.EqualValues(t, 3+fdbjobs.MaxClaim+1, b.count(t, fdbjobs.Running))
		b.check(t)
	})
}

// TestLargeJobsAtOnce: jobs with more args than a transaction can read in its time are taken in several.
func TestLargeJobsAtOnce(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		large := text(`{"x":"` + strings.Repeat("x", 2_000_000) + `"}`)
		for i := range 40 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint(i % 20), Args: large})
		}
		taken := 0
		for taken < 40 {
			n := len(b.take(t, 40))
			require.NotZero(t, n)
			require.Less(t, n, 40)
			taken += n
		}
	})
}

// TestOrder: a single process takes the longest waiting first, and serves owners with the same usage in turn.
func TestOrder(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		for i := range 60 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprintf("many %d", i), Owner: "many"})
		}
		b.add(t, fdbjobs.Spec{ID: "few", Owner: "few"}, fdbjobs.Spec{ID: "one", Owner: "one"})
		var owners []string
		for range 3 {
			h := b.accept(t)
			owners = append(owners, h.Job().Owner)
			require.NoError(t, h.Finish(t.Context(), nil, nil))
		}
		assert.ElementsMatch(t, []string{"many", "few", "one"}, owners)
		for k := range 59 {
			var i int
			_, err := fmt.Sscanf(b.accept(t).Job().ID, "many %d", &i)
			require.NoError(t, err)
			assert.Equal(t, k+1, i)
		}
		assert.Empty(t, b.take(t, 1))
	})
}

// TestManyOwners: there are more owners than a claim reads, most of them without jobs.
func TestManyOwners(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		const n = 1200
		for i := range n {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprintf("%04d", i)})
		}
		for i := range n - 1 {
			b.remove(t, fmt.Sprint(i))
		}
		assert.Equal(t, fmt.Sprint(n-1), b.accept(t).Job().ID)
		assert.Empty(t, b.take(t, 1))
	})
}

func TestLimits(t *testing.T) {
	testkit.SkipRace(t)
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		object := func(size int) json.RawMessage { return text(`{"x":"` + strings.Repeat("x", size-8) + `"}`) }
		args, state := object(fdbjobs.MaxArgsSize), object(fdbjobs.MaxStateSize)
		name := strings.Repeat("\x00", fdbjobs.MaxNameSize) // the longest when packed
		b.add(t, fdbjobs.Spec{ID: name, Owner: name, Token: name, Args: args, State: state})
		h := b.accept(t)
		assert.True(t, string(args) == string(h.Job().Args) && string(state) == string(h.Job().State))
		require.NoError(t, h.Update(t.Context(), state, nil))
		b.check(t)

		refused := func(want error, spec fdbjobs.Spec, names string) {
			t.Helper()
			err := db.Transact(t.Context(), func(tx kv.Transaction) error {
				err := b.jobs.Add(tx, spec)
				require.ErrorIs(t, err, want)
				require.ErrorContains(t, err, names)
				return nil // the caller continues, and nothing is written
			})
			require.NoError(t, err)
		}
		refused(fdbjobs.ErrTooLarge, fdbjobs.Spec{ID: "j", Args: object(fdbjobs.MaxArgsSize + 1)}, "args")
		refused(fdbjobs.ErrTooLarge, fdbjobs.Spec{ID: "j", State: object(fdbjobs.MaxStateSize + 1)}, "state")
		refused(fdbjobs.ErrTooLarge, fdbjobs.Spec{ID: name + "x"}, "id")
		refused(fdbjobs.ErrTooLarge, fdbjobs.Spec{ID: "j", Owner: name + "x"}, "owner")
		refused(fdbjobs.ErrTooLarge, fdbjobs.Spec{ID: "j", Token: name + "x"}, "token")
		refused(fdbjobs.ErrInvalid, fdbjobs.Spec{}, "id")
		for _, bad := range []string{``, `[]`, `1`, `null`, `"{}"`, `{`, `{}x`, `{"a":}`} {
			refused(fdbjobs.ErrInvalid, fdbjobs.Spec{ID: "j", Args: text(bad)}, "args")
			refused(fdbjobs.ErrInvalid, fdbjobs.Spec{ID: "j", State: text(bad)}, "state")
			require.ErrorIs(t, h.Update(t.Context(), text(bad), nil), fdbjobs.ErrInvalid)
			require.ErrorIs(t, h.Finish(t.Context(), text(bad), nil), fdbjobs.ErrInvalid)
			require.ErrorIs(t, h.Resubmit(t.Context(), time.Now(), text(bad), nil), fdbjobs.ErrInvalid)
		}
		require.ErrorIs(t, h.Update(t.Context(), object(fdbjobs.MaxStateSize+1), nil), fdbjobs.ErrTooLarge)
		_, err := b.read(t, "j")
		require.ErrorIs(t, err, fdbjobs.ErrNotFound)
		require.NoError(t, h.Finish(t.Context(), nil, nil), "what was refused left the job held")
		assert.EqualValues(t, 1, b.count(t, fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished))
	})
}

func TestList(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		// Of jobs 0 to 8 one third each is pending, running and finished.
		all := []fdbjobs.Status{fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished}
		want := map[fdbjobs.Status][]string{}
		for i := range 9 {
			id, status := fmt.Sprint(i), all[i%3]
			want[status] = append(want[status], id)
			if status == fdbjobs.Pending {
				b.add(t, fdbjobs.Spec{ID: id, Scheduled: time.Now().Add(time.Hour)})
				continue
			}
			b.add(t, fdbjobs.Spec{ID: id, Args: text(`{"n":` + id + `}`)})
			h := b.accept(t)
			if status == fdbjobs.Finished {
				require.NoError(t, h.Finish(t.Context(), nil, nil))
			}
		}
		list := func(after string, limit int, statuses ...fdbjobs.Status) []string {
			ids := []string{}
			b.transact(t, func(tx kv.Transaction) error {
				jobs, err := b.jobs.List(tx, fdbjobs.Selection{Parts: fdbjobs.Parts(statuses...)}, fdbjobs.Position{ID: after}, limit)
				ids = ids[:0]
				for _, job := range jobs {
					ids = append(ids, job.ID)
					assert.Contains(t, statuses, job.Status)
				}
				return err
			})
			return ids
		}
		skip := func(after string, n int, statuses ...fdbjobs.Status) (id string) {
			b.transact(t, func(tx kv.Transaction) error {
				at, err := b.jobs.Skip(tx, fdbjobs.Selection{Owner: new(""), Parts: fdbjobs.Parts(statuses...)}, fdbjobs.Position{ID: after}, n)
				id = at.ID
				return err
			})
			return id
		}
		for _, status := range all {
			assert.Equal(t, want[status], list("", 10, status))
			assert.EqualValues(t, 3, b.count(t, status))
		}
		assert.Equal(t, []string{"0", "1", "2", "3"}, list("", 4, all...))
		assert.Equal(t, []string{"4", "6", "7"}, list("3", 4, fdbjobs.Pending, fdbjobs.Running))
		assert.Empty(t, list("8", 4, all...))
		assert.Empty(t, list("", 0, all...))
		assert.Empty(t, list("", 4))
		assert.Equal(t, "4", skip("", 5, all...))
		assert.Equal(t, "7", skip("3", 3, fdbjobs.Pending, fdbjobs.Running))
		assert.Equal(t, "8", skip("3", 100, all...))
		assert.Equal(t, "8", skip("8", 1, all...))
		assert.Empty(t, skip("", 0, all...))
		assert.EqualValues(t, 9, b.count(t, all...))
		assert.Zero(t, b.count(t))
	})
}

func TestTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: fdbjobs.DefaultTimeout, -1: fdbjobs.DefaultTimeout, time.Hour: time.Hour} {
		b := newBundleWith(t, enginetest.Memory(t), fdbjobs.Options{Timeout: timeout})
		assert.Equal(t, want, b.jobs.Timeout())
	}
}

// TestRenewal: the first update after a sixth of the timeout renews the hold. Those before write the state alone.
func TestRenewal(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"})
		h := b.accept(t)
		assert.Equal(t, 20*time.Second, h.Heartbeat())
		after(10*time.Second - time.Millisecond)
		require.NoError(t, h.Update(t.Context(), text(`{"s":1}`), nil))
		assert.JSONEq(t, `{"s":1}`, string(b.get(t, "j").State))
		after(time.Millisecond)
		require.NoError(t, h.Update(t.Context(), nil, nil))

		after(9 * time.Second)
		require.NoError(t, h.Update(t.Context(), text(`{"s":2}`), nil))
		after(36*time.Second - time.Millisecond)
		require.NoError(t, h.Check())
		after(time.Millisecond)
		require.ErrorIs(t, h.Check(), fdbjobs.ErrHalt, "three quarters of the timeout after the renewal")
	})
}

// TestQueuesApart: queues and layers share only the store.
func TestQueuesApart(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		b.add(t, fdbjobs.Spec{ID: "j"})
		for _, layer := range []*fdbjobs.Layer{b.layer, fdbjobs.Open(db, []byte("other/"), fdbjobs.Options{})} {
			held, err := layer.Queue("works").Accept(t.Context(), doesNotWait)
			require.NoError(t, err)
			assert.Empty(t, held)
			if layer != b.layer {
				layer.Close()
			}
		}
		b.accept(t)
	})
}

// TestAddTwiceAtOnce: a transaction may remove a job and add it again, but add it only once.
func TestAddTwiceAtOnce(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		err := db.Transact(t.Context(), func(tx kv.Transaction) error {
			if err := b.jobs.Add(tx, fdbjobs.Spec{ID: "j"}); err != nil {
				return err
			}
			return b.jobs.Add(tx, fdbjobs.Spec{ID: "j"})
		})
		require.ErrorIs(t, err, kv.ErrUnreadable)
		b.add(t, fdbjobs.Spec{ID: "j", State: text(`{"s":1}`)})
		h := b.accept(t)
		b.transact(t, func(tx kv.Transaction) error {
			if _, err := b.jobs.Remove(tx, "j"); err != nil {
				return err
			}
			return b.jobs.Add(tx, fdbjobs.Spec{ID: "j"})
		})
		b.check(t)
		require.ErrorIs(t, h.Update(t.Context(), nil, nil), fdbjobs.ErrHalt)
		assert.JSONEq(t, `{}`, string(b.get(t, "j").State))
		b.accept(t)
	})
}

// TestAddEnded: a job that has ended elsewhere is listed, does not run, and can be queued.
func TestAddEnded(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db))
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "o", State: text(`{"s":1}`), Ended: true, Tag: "done", Token: "1"})
		b.check(t)
		held := b.acceptBy(t, fdbjobs.AcceptOptions{Wait: -1})
		assert.Empty(t, held)
		b.transact(t, func(tx kv.Transaction) error {
			listed, err := b.jobs.List(tx, fdbjobs.Selection{Parts: []fdbjobs.Part{{Status: fdbjobs.Finished, Tag: "done"}}}, fdbjobs.Position{}, 10)
			require.NoError(t, err)
			require.Len(t, listed, 1)
			assert.JSONEq(t, `{"s":1}`, string(listed[0].State))
			return nil
		})
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "o", Token: "2"})
		err := db.Transact(t.Context(), func(tx kv.Transaction) error {
			return b.jobs.Add(tx, fdbjobs.Spec{ID: "j", Owner: "o", Ended: true, Token: "3"})
		})
		require.ErrorIs(t, err, fdbjobs.ErrInvalid)
		require.NoError(t, b.accept(t).Finish(t.Context(), nil, nil))
		b.check(t)
	})
}

// TestAddAll: many jobs are added at once, in order, and changed as single ones are. Their rows are read together.
func TestAddAll(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db))
		addAll := func(specs ...fdbjobs.Spec) error {
			return b.db.Transact(t.Context(), func(tx kv.Transaction) error { return b.jobs.Add(tx, specs...) })
		}
		b.add(t, fdbjobs.Spec{ID: "9", Owner: "other"})
		b.add(t, fdbjobs.Spec{ID: "running", Owner: "running"})
		var running *fdbjobs.Held
		for running == nil || running.Job().ID != "running" {
			running = b.accept(t)
			if running.Job().ID != "running" {
				require.NoError(t, running.Resubmit(t.Context(), time.Now().Add(time.Hour), nil, nil))
			}
		}
		specs := []fdbjobs.Spec{{ID: "running", Owner: "running", Args: text(`{"n":0}`), Token: "0"}}
		for i := range 100 {
			token := fmt.Sprint("token ", i)
			specs = append(specs, fdbjobs.Spec{ID: fmt.Sprint((i + 7) % 100), Owner: "o", Args: text(fmt.Sprintf(`{"n":%d}`, i)), Token: token})
		}
		require.NoError(t, addAll(specs...))
		assert.EqualValues(t, 100, b.count(t, fdbjobs.Pending))
		b.check(t)
		_, there := b.owners(t)["other"]
		assert.False(t, there, "its job has another owner now")
		for i, h := range b.take(t, 60) {
			assert.Equal(t, specs[i+1].ID, h.Job().ID)
			assert.JSONEq(t, string(specs[i+1].Args), string(h.Job().Args))
		}
		require.ErrorIs(t, running.Update(t.Context(), nil, nil), fdbjobs.ErrHalt, "it was added again")

		require.NoError(t, addAll())
		require.ErrorIs(t, addAll(fdbjobs.Spec{ID: "a"}, fdbjobs.Spec{ID: "b"}, fdbjobs.Spec{ID: "a"}), fdbjobs.ErrInvalid)
		err := addAll(fdbjobs.Spec{ID: "a"}, fdbjobs.Spec{ID: "b", Args: text(`[]`)})
		require.ErrorIs(t, err, fdbjobs.ErrInvalid)
		require.ErrorContains(t, err, `the job "b"`)
		_, err = b.read(t, "a")
		require.ErrorIs(t, err, fdbjobs.ErrNotFound)
	})
}

// TestKeysWritten: the keys that the steps of a life cycle write, besides args and state, and the mutations that these are
// for FoundationDB, with lists and without. No number may grow.
func TestKeysWritten(t *testing.T) {
	t.Run("listed", func(t *testing.T) { testKeysWritten(t, fdbjobs.Options{}, [4]int64{5, 5, 0, 6}, 18) })
	unlisted := fdbjobs.Options{Derive: map[string]fdbjobs.Derivation{"work": {Unlisted: true}}}
	t.Run("unlisted", func(t *testing.T) { testKeysWritten(t, unlisted, [4]int64{4, 5, 0, 3}, 14) })
}

// testKeysWritten gets the most keys of each step, and the most mutations of all.
func testKeysWritten(t *testing.T, opts fdbjobs.Options, most [4]int64, mostMutations int64) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		store := enginetest.Control(db)
		b := newBundleWith(t, store, opts)
		b.add(t, fdbjobs.Spec{ID: "other"}) // its owner waits
		b.accept(t)                         // and the claimer has written its heartbeat
		var h *fdbjobs.Held
		mutations := int64(0)
		for i, step := range []struct {
			name    string
			content int64 // keys of args and state
			do      func()
		}{
			{"add", 2, func() { b.add(t, fdbjobs.Spec{ID: "j", Args: text(`{"n":1}`)}) }},
			{"accept", 0, func() { h = b.accept(t) }},
			{"update", 1, func() { require.NoError(t, h.Update(t.Context(), text(`{"s":1}`), nil)) }},
			{"finish", 1, func() { require.NoError(t, h.Finish(t.Context(), text(`{"s":2}`), nil)) }},
		} {
			before, mutated := store.KeysWritten.Load(), store.Mutations.Load()
			step.do()
			synctest.Wait()
			mutations += store.Mutations.Load() - mutated - step.content
			keys := store.KeysWritten.Load() - before - step.content
			assert.LessOrEqual(t, keys, most[i], step.name)
		}
		assert.LessOrEqual(t, mutations, mostMutations)
	})
}

// TestWhatStaysIsNotWritten: a write that leaves a job in its place writes the row alone, and one that leaves the row writes
// nothing besides its own keys.
func TestWhatStaysIsNotWritten(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		store := enginetest.Control(db)
		b := newBundleWith(t, store, fdbjobs.Options{Sealer: sealedtest.Keys(t, "a")})
		later := time.Now().Add(time.Hour)
		delayed := fdbjobs.Spec{ID: "delayed", Owner: "o", Args: text(`{}`), Scheduled: later}
		b.add(t, delayed, fdbjobs.Spec{ID: "running", Args: text(`{}`)})
		h := b.accept(t)
		synctest.Wait()
		for _, c := range []struct {
			name string
			keys int64
			do   func()
		}{
			{"a delayed job with the same time: row, args", 2, func() { b.add(t, delayed) }},
			{"fresh update: state", 1, func() { require.NoError(t, h.Update(t.Context(), text(`{"s":1}`), nil)) }},
			{"sealed with the same key: nothing", 0, func() { reseal(t, b, "a") }},
			{"a running job: row, args", 2, func() { b.add(t, fdbjobs.Spec{ID: "running", Args: text(`{}`)}) }},
		} {
			before := store.KeysWritten.Load()
			c.do()
			synctest.Wait()
			assert.Equal(t, c.keys, store.KeysWritten.Load()-before, c.name)
			b.check(t)
		}
		delayed.Owner = "p"
		b.add(t, delayed)
		b.check(t)
	})
}
