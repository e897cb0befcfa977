package fdbjobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// derivedBundle is a process whose queue has the derivation, in version 1.
func derivedBundle(t *testing.T, db kv.Database) *bundle {
	b := newBundleWith(t, db, derived("work"))
	b.setVersion(t, 1)
	return b
}

func (b *bundle) setVersion(t *testing.T, version int64) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error {
		tx.Set(versionKey, rows.Int(version))
		return nil
	})
}

func (b *bundle) fromScratch(t *testing.T) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error { return followsFromScratch(tx.Snapshot(), b.jobs) })
	b.check(t)
}

// entries returns the keys and ids of entries, in the order in which they are read.
func (b *bundle) entries(t *testing.T, index string, r fdbjobs.EntryRange) (found []string) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error {
		read, err := b.jobs.Entries(tx.Snapshot(), index, r).Await()
		found = nil
		for _, e := range read {
			found = append(found, fmt.Sprintf("%v %s", e.Key, e.ID))
		}
		return err
	})
	return found
}

// row returns the row of a job.
func (b *bundle) row(t *testing.T, id string) (found fdbjobs.WholeRow) {
	t.Helper()
	b.transact(t, func(tx kv.Transaction) error {
		return b.jobs.EachRow(tx, func(r fdbjobs.WholeRow) {
			if r.Facts.ID == id {
				found = r
			}
		})
	})
	return found
}

func (b *bundle) tallies(t *testing.T, index string, prefix ...any) map[string]int64 {
	t.Helper()
	tallies, err := kv.TransactValue(t.Context(), b.db, func(tx kv.Transaction) (map[string]int64, error) {
		return b.jobs.Tallies(tx.Snapshot(), index, prefix).Await()
	})
	require.NoError(t, err)
	return tallies
}

// rederive gives all rows the version of new ones, and returns the number of transactions.
func (b *bundle) rederive(t *testing.T) (steps int) {
	t.Helper()
	for next := []byte(nil); steps == 0 || next != nil; steps++ {
		var err error
		next, err = kv.TransactValue(t.Context(), b.db, func(tx kv.Transaction) ([]byte, error) {
			return b.jobs.Rederive(tx, next)
		})
		require.NoError(t, err)
	}
	return steps
}

type sums = map[string]int64

// TestEntries: what follows from a job changes in the transactions that change the job, whatever happens to their commits.
func TestEntries(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := derivedBundle(t, enginetest.UnknownOnce(db))
		all := fdbjobs.EntryRange{}
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "o", Label: "x", Listed: text(`{"l":"a"}`), State: text(`{"s":7}`), Token: "1"})
		assert.Equal(t, []string{"[o 1:1] j"}, b.entries(t, "state", all))
		assert.Equal(t, []string{"[1:a] j"}, b.entries(t, "listed", all))
		assert.Equal(t, []string{"[pending ] j"}, b.entries(t, "status", all))
		assert.Equal(t, sums{"sum": 7}, b.tallies(t, "state"))
		assert.Equal(t, sums{"odd": 1, "jobs": 1}, b.tallies(t, "state", "o"))
		assert.Equal(t, sums{"o": 1, "all": 1}, b.tallies(t, "status", "pending"))
		job := b.get(t, "j")
		row := b.row(t, job.ID)
		assert.EqualValues(t, 1, row.Version)
		assert.Equal(t, "1:a", string(row.Facts.Listed))
		assert.Equal(t, tuple.Tuple{"1:1", int64(7)}.Pack(), row.Facts.State)
		b.fromScratch(t)

		h := b.accept(t)
		assert.Equal(t, []string{"[running ] j"}, b.entries(t, "status", all))
		assert.Empty(t, b.tallies(t, "status", "pending"), "what is 0 is missing")
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "o", Listed: text(`{"l":"b"}`), Token: "2"})
		assert.Equal(t, []string{"[1:b] j"}, b.entries(t, "listed", all), "added while it runs")
		b.fromScratch(t)
		require.ErrorIs(t, h.Update(t.Context(), text(`{"s":9}`), nil), fdbjobs.ErrHalt)
		b.fromScratch(t)

		h = b.accept(t)
		require.NoError(t, h.Update(t.Context(), text(`{"s":8}`), nil))
		assert.Equal(t, []string{"[o 1:2] j"}, b.entries(t, "state", all), "a fresh update with other facts")
		assert.Equal(t, sums{"sum": 8}, b.tallies(t, "state"))
		require.NoError(t, h.Update(t.Context(), text(`{"s":9}`), nil))
		assert.Equal(t, sums{"sum": 9}, b.tallies(t, "state"), "the entry stays, and adds something else")
		b.fromScratch(t)
		h.Tag = "later"
		require.NoError(t, h.Resubmit(t.Context(), time.Now().Add(time.Hour), nil, nil))
		assert.Equal(t, sums{"sum": 9}, b.tallies(t, "state"))
		assert.Equal(t, []string{"[pending later] j"}, b.entries(t, "status", all))
		b.transact(t, func(tx kv.Transaction) error {
			_, err := b.jobs.MakeDue(tx, []string{"j"}, "later", "")
			return err
		})
		assert.Equal(t, []string{"[pending ] j"}, b.entries(t, "status", all))
		b.fromScratch(t)

		h = b.accept(t)
		require.NoError(t, h.Finish(t.Context(), text(`{}`), nil))
		assert.Empty(t, b.entries(t, "state", all))
		assert.Empty(t, b.tallies(t, "state"))
		b.fromScratch(t)
		b.add(t, fdbjobs.Spec{ID: "j", Owner: "p", State: text(`{"s":3}`), Token: "3"})
		assert.Empty(t, b.entries(t, "listed", all))
		assert.Equal(t, []string{"[p 1:0] j"}, b.entries(t, "state", all))
		b.fromScratch(t)
		assert.True(t, b.remove(t, "j"))
		for _, index := range []string{"state", "listed", "status"} {
			assert.Empty(t, b.entries(t, index, all))
		}
		b.fromScratch(t)
	})
}

// TestReadEntries: ranges of an index in either order, and the prefixes that have tallies.
func TestReadEntries(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		words := []string{"", "a", "a\x00", "a\x00b", "ab", "b"}
		byOwner := fdbjobs.Derivation{Entries: func(_ int64, f fdbjobs.Facts) []fdbjobs.Entry {
			return []fdbjobs.Entry{
				{Index: "x", Key: tuple.Tuple{f.Owner, f.Label, int64(1)}, Adds: []fdbjobs.Add{
					{Prefix: 2, Name: "b", N: 1}, {Prefix: 1, Name: "a", N: 1}, {Prefix: 1, Name: "none", N: 0}, {Prefix: 0, Name: "c", N: 1},
				}},
				{Index: "y", Key: tuple.Tuple{[]byte(f.Owner)}, Value: []byte("v")},
			}
		}}
		b := newBundleWith(t, db, fdbjobs.Options{Derive: map[string]fdbjobs.Derivation{"work": byOwner}})
		for i, word := range words {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: "o", Label: word}, fdbjobs.Spec{ID: fmt.Sprint(10 + i), Owner: word, Label: "l"})
		}
		of := tuple.Tuple{"o"}
		for want, r := range map[string]fdbjobs.EntryRange{
			"0 1 2 3 4 5": {Prefix: of},
			"5 4 3 2 1 0": {Prefix: of, Reverse: true},
			"5 4":         {Prefix: of, Reverse: true, Limit: 2},
			"1 2 3 4":     {Prefix: of, Text: "a"},
			"2 3":         {Prefix: of, Text: "a\x00"},
			"3 4":         {Prefix: of, Text: "a", After: tuple.Tuple{"a\x00", int64(1), "2"}},
			"2 3 4":       {Prefix: of, Text: "a", After: tuple.Tuple{"a", int64(1), "1"}, Until: tuple.Tuple{"b"}},
			"1 2":         {Prefix: of, After: tuple.Tuple{"a"}, Until: tuple.Tuple{"a\x00b"}},
			"4 3":         {Prefix: of, Text: "a", Until: tuple.Tuple{"b"}, Reverse: true, Limit: 2},
			"1":           {Prefix: tuple.Tuple{"o", "a"}},
			"":            {Prefix: of, After: tuple.Tuple{"z"}},
			"11 12 13 14": {Text: "a"},
		} {
			var ids []string
			for _, e := range b.entries(t, "x", r) {
				ids = append(ids, e[strings.LastIndex(e, " ")+1:])
			}
			assert.Equal(t, want, strings.Join(ids, " "), "%+v", r)
		}
		b.transact(t, func(tx kv.Transaction) error {
			read, err := b.jobs.Entries(tx, "y", fdbjobs.EntryRange{Limit: 1}).Await()
			assert.Equal(t, []fdbjobs.Entry{{Key: tuple.Tuple{[]byte{}}, ID: "10", Value: []byte("v")}}, read)
			return err
		})
		prefixes := func(length int) (all []tuple.Tuple) {
			b.transact(t, func(tx kv.Transaction) error {
				all = nil
				for prefix, err := range b.jobs.TallyPrefixes(tx.Snapshot(), "x", length) {
					if err != nil {
						return err
					}
					all = append(all, prefix)
				}
				return nil
			})
			return all
		}
		assert.Equal(t, []tuple.Tuple{{}}, prefixes(0))
		assert.Equal(t, []tuple.Tuple{{""}, {"a"}, {"a\x00"}, {"a\x00b"}, {"ab"}, {"b"}, {"o"}}, prefixes(1))
		assert.Len(t, prefixes(2), 12)
		assert.Empty(t, prefixes(3))
		assert.Equal(t, sums{"c": 12}, b.tallies(t, "x"))
		assert.Equal(t, sums{"a": 6}, b.tallies(t, "x", "o"))
		assert.Equal(t, sums{"b": 1}, b.tallies(t, "x", "o", "a"))

		watch, err := kv.TransactValue(t.Context(), b.db, func(tx kv.Transaction) (kv.Watch, error) {
			return b.jobs.WatchTally(tx, "x", of, "a"), nil
		})
		require.NoError(t, err)
		b.remove(t, "0")
		require.NoError(t, watch.Wait(t.Context()))
		assert.Equal(t, sums{"a": 5}, b.tallies(t, "x", "o"))
	})
}

// TestDerivedCosts: an update that changes no facts reads and writes with a derivation what it does without, also if it renews
// the hold. Other facts cost the row and what they change.
func TestDerivedCosts(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		store := enginetest.Control(db)
		b := derivedBundle(t, store)
		plain := &bundle{db: store, layer: b.layer, jobs: b.layer.Queue("plain")}
		holds := func(b *bundle) *fdbjobs.Held {
			b.add(t, fdbjobs.Spec{ID: "j", Listed: text(`{"l":"a"}`), State: text(`{"s":11}`)})
			h := b.accept(t)
			synctest.Wait()
			return h
		}
		update := func(h *fdbjobs.Held, state json.RawMessage) step {
			before := costs(store)
			require.NoError(t, h.Update(t.Context(), state, nil))
			synctest.Wait()
			cost := costs(store).minus(before)
			cost.bytes = 0 // the names of the queues differ
			return cost
		}
		h, other := holds(b), holds(plain)
		for _, state := range []json.RawMessage{nil, text(`{"s":11}`), nil} {
			assert.Equal(t, update(other, state), update(h, state), "%s", state)
		}
		without, with := update(other, text(`{"s":13}`)), update(h, text(`{"s":13}`))
		assert.Equal(t, without.keys+2, with.keys, "the row, and the tally sum; odd and jobs stay as they are")
		assert.Equal(t, without.gets, with.gets)
		assert.Equal(t, sums{"sum": 13}, b.tallies(t, "state"))
		assert.Equal(t, 6, update(h, text(`{"s":14}`)).keys, "the row, the state, two keys of an entry, the tallies sum and odd")

		for _, state := range []json.RawMessage{text(`{"s":14}`), nil} {
			after(fdbjobs.DefaultTimeout / 5)
			assert.Equal(t, update(other, state), update(h, state), "a renewal with %s", state)
		}
		after(fdbjobs.DefaultTimeout / 5)
		without, with = update(other, text(`{"s":16}`)), update(h, text(`{"s":16}`))
		assert.Equal(t, without.keys+2, with.keys, "a renewal: the row, and the tally sum")
		assert.Equal(t, without.gets, with.gets)
		assert.Equal(t, sums{"sum": 16}, b.tallies(t, "state"))
		b.fromScratch(t)
	})
}

// TestWithoutTheDerivation: a process that lacks the derivation of a queue changes nothing that follows from its jobs. It reads
// them, and writes what leaves all that as it is.
func TestWithoutTheDerivation(t *testing.T) {
	db := enginetest.Memory(t)
	with := derivedBundle(t, db)
	with.add(t, fdbjobs.Spec{ID: "j", State: text(`{"s":1}`)})
	h := with.accept(t)
	layer := fdbjobs.Open(db, prefix, fdbjobs.Options{})
	defer layer.Close()
	without := &bundle{db: db, layer: layer, jobs: layer.Queue("work")}
	assert.EqualValues(t, 1, without.row(t, "j").Version)
	err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		_, err := without.jobs.Remove(tx, "j")
		return err
	})
	require.ErrorContains(t, err, `open the layer with its derivation`)
	_, err = kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]byte, error) { return without.jobs.Rederive(tx, nil) })
	require.ErrorIs(t, err, fdbjobs.ErrInvalid)
	require.ErrorIs(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		return without.jobs.Add(tx, fdbjobs.Spec{ID: "j", Listed: text(`{"l":"a"}`)})
	}), fdbjobs.ErrInvalid)
	_, err = without.jobs.RequeueAll(t.Context())
	require.ErrorIs(t, err, fdbjobs.ErrInvalid)
	require.NoError(t, h.Finish(t.Context(), nil, nil))
	with.add(t, fdbjobs.Spec{ID: "k", State: text(`{"s":1}`)})
	_, err = without.jobs.Accept(t.Context(), doesNotWait)
	require.ErrorIs(t, err, fdbjobs.ErrInvalid)
	with.fromScratch(t)
}

// TestRederive: rows get another version in steps, and keep it when they change.
func TestRederive(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := derivedBundle(t, enginetest.UnknownOnce(db))
		b.setVersion(t, 0)
		var specs []fdbjobs.Spec
		for i := range 70 {
			specs = append(specs, fdbjobs.Spec{
				ID: fmt.Sprintf("%02d", i), Owner: "o", State: text(fmt.Sprintf(`{"s":%d}`, i)), Listed: text(`{"l":"a"}`), Token: fmt.Sprint(i),
			})
		}
		b.add(t, specs...)
		assert.Empty(t, b.entries(t, "status", fdbjobs.EntryRange{}))
		h := b.accept(t)
		assert.Equal(t, 1, b.rederive(t), "nothing to do")
		b.setVersion(t, 1)
		require.NoError(t, h.Update(t.Context(), text(`{"s":5}`), nil))
		assert.Zero(t, b.row(t, h.Job().ID).Version, "a row keeps its version")
		b.fromScratch(t)
		assert.Greater(t, b.rederive(t), 1)
		assert.Len(t, b.entries(t, "listed", fdbjobs.EntryRange{Prefix: tuple.Tuple{"1:a"}}), 70)
		b.fromScratch(t)
		b.setVersion(t, 2)
		require.NoError(t, h.Update(t.Context(), text(`{"s":6}`), nil))
		b.add(t, fdbjobs.Spec{ID: "new", State: text(`{"s":1}`)})
		assert.EqualValues(t, 2, b.row(t, "new").Version)
		b.add(t, fdbjobs.Spec{ID: "69", Owner: "p", Listed: text(`{"l":"b"}`)})
		assert.Equal(t, "1:b", string(b.row(t, "69").Facts.Listed), "the facts of both parts have one version")
		b.fromScratch(t)
		assert.Greater(t, b.rederive(t), 1)
		assert.Len(t, b.entries(t, "waiting", fdbjobs.EntryRange{}), 70)
		b.fromScratch(t)
		require.NoError(t, h.Finish(t.Context(), nil, nil))
		b.fromScratch(t)
		b.setVersion(t, 1)
		b.rederive(t)
		b.fromScratch(t)
	})
}

// TestRederiveDuringAnUpdate: rows get the facts of the state that is there when they get their version, although an update
// that does not renew the hold writes the state alone.
func TestRederiveDuringAnUpdate(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		store := enginetest.Control(db)
		holder, b := newBundleWith(t, db, derived("work")), newBundleWith(t, store, derived("work"))
		holder.add(t, fdbjobs.Spec{ID: "j", State: text(`{"s":1}`)})
		h := holder.accept(t)
		b.setVersion(t, 1)
		store.BeforeCommit(func() { require.NoError(t, h.Update(t.Context(), text(`{"s":8}`), nil)) })
		b.rederive(t)
		assert.Equal(t, sums{"sum": 8}, b.tallies(t, "state"))
		b.fromScratch(t)
	})
}

// TestDerivedHistory: after any history, what follows from the jobs is what follows from them from scratch. Commits are
// reported unknown, functions run twice, and rows of three versions are there at once. The simulation has such histories of
// many processes.
func TestDerivedHistory(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		for seed := range uint64(3) {
			random := rand.New(rand.NewPCG(seed, 1))
			faulty := faultkv.Wrap(db, faultkv.Options{Seed: seed, Rates: faultkv.Rates{
				faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.1,
			}})
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
				tx.ClearRange(kv.PrefixRange(prefix))
				tx.Clear(versionKey)
				return nil
			}))
			layer := fdbjobs.Open(faulty, prefix, derived("work"))
			h := &history{bundle: &bundle{db: faulty, layer: layer, jobs: layer.Queue("work")}, random: random}
			for range 150 {
				what := h.step(t)
				err := db.Transact(t.Context(), func(tx kv.Transaction) error { return followsFromScratch(tx.Snapshot(), h.jobs) })
				require.NoError(t, err, "seed %d, after %s", seed, what)
			}
			layer.Close()
			(&bundle{db: db, layer: layer}).check(t)
		}
	})
}

// history is a random history of calls.
type history struct {
	*bundle
	random *rand.Rand
	held   []*fdbjobs.Held
	names  int
}

func (h *history) id() string { return fmt.Sprint("job ", h.random.IntN(6)) }

func (h *history) state() json.RawMessage {
	if h.random.IntN(4) == 0 {
		return nil
	}
	return text(fmt.Sprintf(`{"s":%d}`, h.random.IntN(30)))
}

// step makes a random call. It returns its name.
func (h *history) step(t *testing.T) string {
	n := h.random.IntN(12)
	switch n {
	case 0, 1:
		h.names++
		spec := fdbjobs.Spec{ID: h.id(), Owner: fmt.Sprint(h.random.IntN(2)), State: h.state(), Token: fmt.Sprint(h.names), Tag: "later"}
		if h.random.IntN(2) == 0 {
			spec.Scheduled = time.Now().Add(time.Hour)
		}
		if h.random.IntN(2) == 0 {
			spec.Listed = text(fmt.Sprintf(`{"l":"%d"}`, h.random.IntN(3)))
		}
		h.transact(t, func(tx kv.Transaction) error { return h.jobs.Add(tx, spec) })
		return "add"
	case 2:
		h.remove(t, h.id())
		return "remove"
	case 3:
		id := h.id()
		h.transact(t, func(tx kv.Transaction) error {
			_, err := h.jobs.MakeDue(tx, []string{id}, "later", "")
			return err
		})
		return "make due"
	case 4:
		if h.random.IntN(2) == 0 {
			h.setVersion(t, int64(h.random.IntN(3)))
			return "set the version"
		}
		id, args, listed := h.id(), text(fmt.Sprintf(`{"a":%d}`, h.names)), text(fmt.Sprintf(`{"l":"%d"}`, h.random.IntN(3)))
		h.transact(t, func(tx kv.Transaction) error {
			if err := h.jobs.Amend(tx, id, args, listed); !errors.Is(err, fdbjobs.ErrNotFound) {
				return err
			}
			return nil
		})
		return "amend"
	case 5:
		if h.random.IntN(2) == 0 {
			h.rederive(t)
			return "rederive"
		}
		_, err := h.jobs.RequeueAll(t.Context())
		require.NoError(t, err)
		return "requeue"
	case 6, 7:
		h.held = append(h.held, h.take(t, 2)...)
		return "accept"
	}
	if len(h.held) == 0 {
		return "nothing"
	}
	i := h.random.IntN(len(h.held))
	held, state := h.held[i], h.state()
	return h.write(t, i, n, held, state)
}

// write makes a random call of a holder.
func (h *history) write(t *testing.T, i, n int, held *fdbjobs.Held, state json.RawMessage) (what string) {
	var err error
	switch {
	case n < 10:
		if what = "update"; h.random.IntN(3) == 0 {
			what = "renewal"
			held.Stale()
		}
		err = held.Update(t.Context(), state, nil)
	case n == 10:
		what, held.Tag = "resubmit", []string{"", "later"}[h.random.IntN(2)]
		err = held.Resubmit(t.Context(), time.Now().Add(time.Duration(h.random.IntN(2))*time.Hour), state, nil)
	default:
		what, err = "finish", held.Finish(t.Context(), state, nil)
	}
	if err != nil || what == "resubmit" || what == "finish" {
		h.held = append(h.held[:i:i], h.held[i+1:]...)
	}
	if !errors.Is(err, fdbjobs.ErrHalt) {
		require.NoError(t, err)
	}
	return what
}

// TestUpdateOfUnknownResult: what follows from a state whose commit was given up, and may have been made, agrees with the state after
// an end that keeps it.
func TestUpdateOfUnknownResult(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		store := enginetest.Control(db)
		b := derivedBundle(t, store)
		b.add(t, fdbjobs.Spec{ID: "j", State: text(`{"s":11}`)})
		h := b.accept(t)
		ctx, cancel := context.WithCancel(t.Context())
		release := store.HoldAfter()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = h.Update(ctx, text(`{"s":13}`), func(kv.Transaction) error {
				cancel()
				return nil
			})
		}()
		release()
		<-ended
		require.NoError(t, h.Finish(t.Context(), nil, nil))
		b.fromScratch(t)
	})
}
