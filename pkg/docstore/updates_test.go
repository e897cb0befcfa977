package docstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
)

// updates returns the rows of a pass as "type name", and where the next pass continues.
func (b *bundle) updates(t *testing.T, opts docstore.UpdatesOptions) ([]string, docstore.Sequence) {
	t.Helper()
	pass, shown := b.store.Updates(opts), []string{}
	for row, err := range pass.All(t.Context()) {
		require.NoError(t, err)
		shown = append(shown, fmt.Sprint(row.Type, " ", row.Database))
	}
	return shown, pass.Last()
}

func (b *bundle) updatesSince(t *testing.T, since docstore.Sequence) ([]string, docstore.Sequence) {
	t.Helper()
	return b.updates(t, docstore.UpdatesOptions{Since: since})
}

// beside creates another database of the store.
func (b *bundle) beside(t *testing.T, name string) *bundle {
	t.Helper()
	db, err := b.store.Create(t.Context(), name)
	require.NoError(t, err)
	return &bundle{kv: b.kv, store: b.store, db: db}
}

// TestUpdates: a creation, the last change and a deletion of each database have rows, in the order of the commits.
func TestUpdates(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		all := func() []string {
			shown, _ := b.updates(t, docstore.UpdatesOptions{})
			return shown
		}
		require.Equal(t, []string{"created db"}, all())
		x := b.beside(t, "x")
		require.Equal(t, []string{"created db", "created x"}, all())
		rev := b.put(t, "a", "", `{}`)
		x.put(t, "a", "", `{}`)
		require.Equal(t, []string{"created db", "created x", "updated db", "updated x"}, all())
		_, before := b.updates(t, docstore.UpdatesOptions{})
		rev = b.put(t, "a", rev, `{"n":1}`)
		require.Equal(t, []string{"created db", "created x", "updated x", "updated db"}, all(), "the earlier row is gone")
		shown, last := b.updatesSince(t, before)
		require.Equal(t, []string{"updated db"}, shown)

		// What changes no document makes no row.
		_, err := b.tryPut(t, "a", "1-x", `{}`)
		require.ErrorIs(t, err, docstore.ErrConflict)
		_, err = b.db.PutLocal(t.Context(), "_local/x", "", docjson.Body{})
		require.NoError(t, err)
		require.NoError(t, b.db.SetRevsLimit(t.Context(), 10))
		require.NoError(t, b.db.SetSecurity(t.Context(), []byte(`{}`)))
		b.merge(t, "a", rev)
		shown, same := b.updatesSince(t, last)
		require.Empty(t, shown)
		require.Equal(t, last, same)

		b.write(t, []docstore.Edit{{ID: "b"}, {ID: "c"}}, docstore.WriteOptions{})
		shown, last = b.updatesSince(t, last)
		require.Equal(t, []string{"updated db"}, shown, "a transaction makes one row")
		require.NoError(t, x.db.Delete(t.Context()))
		shown, last = b.updatesSince(t, last)
		require.Equal(t, []string{"deleted x"}, shown)
		require.Equal(t, []string{"created db", "updated db", "deleted x"}, all())
		x = b.beside(t, "x")
		require.Equal(t, []string{"created db", "updated db", "created x"}, all(), "the deletion is replaced")
		x.put(t, "a", "", `{}`)
		require.NoError(t, x.db.Delete(t.Context()))
		shown, last = b.updatesSince(t, last)
		require.Equal(t, []string{"deleted x"}, shown)
		newest, err := b.store.LastUpdate(t.Context())
		require.NoError(t, err)
		require.Equal(t, newest, last)

		down, _ := b.updates(t, docstore.UpdatesOptions{Descending: true, Since: last})
		require.Equal(t, []string{"deleted x", "updated db", "created db"}, down)
		down, _ = b.updates(t, docstore.UpdatesOptions{Descending: true, Limit: 2})
		require.Equal(t, []string{"deleted x", "updated db"}, down)
		shown, last = b.updates(t, docstore.UpdatesOptions{Limit: 1})
		require.Equal(t, []string{"created db"}, shown)
		shown, last = b.updates(t, docstore.UpdatesOptions{Limit: 1, Since: last})
		require.Equal(t, []string{"updated db"}, shown)
		shown, _ = b.updates(t, docstore.UpdatesOptions{Limit: 5, Since: last})
		require.Equal(t, []string{"deleted x"}, shown)
		require.Regexp(t, "^[1-9][0-9]*-[0-9a-f]{24}$", last.String())
	})
}

// TestManyUpdates reads more databases than fit into a page, in each direction and with limits.
func TestManyUpdates(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		const n = docstore.Stripes*docstore.UpdatesAtOnce + 100
		want := []string{"created db"}
		for i := range n {
			name := fmt.Sprint("n", i*i)
			_, err := b.store.Create(t.Context(), name)
			require.NoError(t, err)
			want = append(want, "created "+name)
		}
		got, last := b.updates(t, docstore.UpdatesOptions{})
		require.Equal(t, want, got)
		newest, err := b.store.LastUpdate(t.Context())
		require.NoError(t, err)
		require.Equal(t, newest, last)
		down, _ := b.updates(t, docstore.UpdatesOptions{Descending: true})
		require.Len(t, down, len(want))
		for i := range down {
			require.Equal(t, want[len(want)-1-i], down[i])
		}
		for _, limit := range []int{1, 7, docstore.UpdatesAtOnce, 333} {
			var since docstore.Sequence
			var parts []string
			for len(parts) < len(want) && (limit > 1 || len(parts) < 50) {
				var part []string
				part, since = b.updates(t, docstore.UpdatesOptions{Since: since, Limit: limit})
				require.LessOrEqual(t, len(part), limit)
				require.NotEmpty(t, part)
				parts = append(parts, part...)
			}
			require.Equal(t, want[:len(parts)], parts)
		}
	})
}

// twins returns two names whose updates in one transaction have the same stamp.
func twins() (string, string) {
	seen := map[uint16]string{}
	for i := 0; ; i++ {
		name := fmt.Sprint("twin", i)
		if other, found := seen[docstore.NameHash(name)]; found {
			return other, name
		}
		seen[docstore.NameHash(name)] = name
	}
}

// TestUpdatesOfOneTransaction: several databases that one transaction changes have a row each, also if these have the
// same sequence. A pass with a limit does not part them, so that the next one misses none.
func TestUpdatesOfOneTransaction(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		first, second := twins()
		x, y := b.beside(t, first), b.beside(t, second)
		since, err := b.store.LastUpdate(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.kv.Transact(t.Context(), func(tx kv.Transaction) error {
			for _, to := range []*bundle{x, y, b} {
				for order := range uint16(2) {
					edit := docstore.Edit{ID: fmt.Sprint("d", order)}
					if _, err := to.db.WriteIn(tx, []docstore.Edit{edit}, docstore.WriteOptions{}); err != nil {
						return err
					}
				}
			}
			return nil
		}))
		want := []string{"updated " + first, "updated " + second, "updated db"}
		all, last := b.updatesSince(t, since)
		require.ElementsMatch(t, want, all)
		some, middle := b.updates(t, docstore.UpdatesOptions{Since: since, Limit: 1})
		more, end := b.updates(t, docstore.UpdatesOptions{Since: middle, Limit: 2})
		require.ElementsMatch(t, want, append(some, more...))
		require.NotEqual(t, len(some), len(more), "the twins were parted")
		require.Equal(t, last, end)
		x.put(t, "more", "", `{}`)
		all, _ = b.updatesSince(t, since)
		require.ElementsMatch(t, want, all, "the row of the other database stays")
		require.Equal(t, want[0], all[2])
	})
}

// TestForeignUpdates: a sequence that the store has not reached is of another store, and leaves out nothing.
func TestForeignUpdates(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		b.put(t, "d", "", `{}`)
		for _, text := range []string{"5-7fffffffffffffff00000000", "5-ffffffffffffffff00000000"} {
			since, err := docstore.ParseSequence(text)
			require.NoError(t, err)
			shown, last := b.updatesSince(t, since)
			require.Equal(t, []string{"created db", "updated db"}, shown)
			newest, err := b.store.LastUpdate(t.Context())
			require.NoError(t, err)
			require.Equal(t, newest, last)
		}
	})
}

// waitUpdate waits for an update after since.
func (b *bundle) waitUpdate(ctx context.Context, since docstore.Sequence) <-chan error {
	told := make(chan error, 1)
	go func() { told <- b.store.WaitUpdate(ctx, since) }()
	return told
}

// TestWaitUpdate: those who wait share one follower, and are told at once of each kind of update after a pause. The
// follower keeps its state for a while after the last one has left.
func TestWaitUpdate(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		last, err := b.store.LastUpdate(t.Context())
		require.NoError(t, err)
		var dbs []*bundle
		steps := map[string]func(){
			"created": func() { dbs = append(dbs, b.beside(t, fmt.Sprint("n", len(dbs)))) },
			"updated": func() { dbs[len(dbs)-1].put(t, "d", "", `{}`) },
			"deleted": func() { require.NoError(t, dbs[len(dbs)-1].db.Delete(t.Context())) },
		}
		for range 30 { // of all stripes
			for _, kind := range []string{"created", "updated", "deleted"} {
				var waiting []<-chan error
				for range 5 {
					waiting = append(waiting, b.waitUpdate(t.Context(), last))
				}
				after(time.Minute)
				tickers, waiters := b.store.Waiting()
				require.Equal(t, 1, tickers)
				require.Equal(t, len(waiting), waiters)
				steps[kind]()
				synctest.Wait() // no time passes
				for _, told := range waiting {
					select {
					case err := <-told:
						require.NoError(t, err)
					default:
						t.Fatal("not told of ", kind)
					}
				}
				var shown []string
				shown, last = b.updatesSince(t, last)
				require.Equal(t, []string{kind + " " + dbs[len(dbs)-1].db.Name()}, shown)
				tickers, waiters = b.store.Waiting()
				require.Equal(t, 1, tickers)
				require.Zero(t, waiters)
			}
		}
		after(docstore.FollowerLinger)
		tickers, _ := b.store.Waiting()
		require.Zero(t, tickers)
		require.NoError(t, b.store.WaitUpdate(t.Context(), docstore.Sequence{})) // at once
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, b.store.WaitUpdate(ctx, last), context.DeadlineExceeded)
		closed := b.waitUpdate(t.Context(), last)
		synctest.Wait()
		b.store.Close()
		require.ErrorIs(t, <-closed, docstore.ErrClosed)
		require.ErrorIs(t, b.store.WaitUpdate(t.Context(), last), docstore.ErrClosed)
	})
}

// TestWriteWhileArming: a write that is committed while a follower asks to be woken, and does not know of it, is seen.
func TestWriteWhileArming(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := enginetest.Control(db)
		follower := docstore.Open(c, prefix, docstore.Options{})
		t.Cleanup(follower.Close)
		b := newBundle(t, db, docstore.Options{})
		last, err := b.store.LastUpdate(t.Context())
		require.NoError(t, err)
		c.BeforeCommit(func() { b.put(t, "d", "", `{}`) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, follower.WaitUpdate(ctx, last))
	})
}

// TestFollowersShareLooks: while updates come, any number of followers look together, at most every lookInterval, and a
// write reads and writes as many keys as without followers. After a pause the first write of a stripe also removes its
// former row.
func TestFollowersShareLooks(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := enginetest.Control(db)
		b := newBundle(t, c, docstore.Options{})
		keys := func() int64 {
			before := c.KeysWritten.Load()
			b.put(t, fmt.Sprint("d", before), "", `{}`)
			return c.KeysWritten.Load() - before
		}
		keys() // later ones leave the former row, see TestLatelyWritten
		alone := keys()
		ctx, cancel := context.WithCancel(t.Context())
		const followers = 10
		for range followers {
			_, last := b.updatesSince(t, docstore.Sequence{})
			go func() {
				for b.store.WaitUpdate(ctx, last) == nil {
					last = later(t, last, b.store)
				}
			}()
		}
		after(time.Minute)
		before := c.Transactions.Load()
		require.Equal(t, alone+1, keys(), "the first write wakes the followers, and removes the former row")
		rowsBefore := int64(b.storedUpdates(t))
		const writes = 100
		var written int64
		for range writes {
			after(docstore.LookInterval / 4)
			written += keys()
		}
		looks := c.Transactions.Load() - before - 1 - writes
		left := int64(b.storedUpdates(t))
		require.Equal(t, writes*alone+(rowsBefore+writes-left), written, "beside the rows that writes remove when they tidy")
		const rounds = writes/4 + 2
		require.LessOrEqual(t, looks, int64(rounds*(1+followers)), "a look, and a pass of each follower")
		require.GreaterOrEqual(t, looks, int64(writes/4*followers))
		after(time.Second)
		before = c.Transactions.Load()
		after(20 * time.Second) // before a watch is not trusted any longer
		require.Equal(t, before, c.Transactions.Load(), "nobody looks while nothing happens")
		require.Equal(t, alone+1, keys(), "as the first write")
		after(time.Second)
		cancel()
		after(docstore.FollowerLinger)
		require.Equal(t, alone+1, keys(), "the followers have asked to be woken")
		require.Equal(t, alone, keys())
	})
}

// later returns where a pass after a sequence ends, if it finds an update.
func later(t *testing.T, since docstore.Sequence, store *docstore.Store) docstore.Sequence {
	pass, n := store.Updates(docstore.UpdatesOptions{Since: since}), 0
	for _, err := range pass.All(t.Context()) {
		if assert.NoError(t, err) {
			n++
		}
	}
	assert.Positive(t, n)
	return pass.Last()
}

// TestWokenByMany: writers at a time that wake a follower do not conflict with each other.
func TestWokenByMany(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		c := enginetest.Control(db)
		b := newBundle(t, c, docstore.Options{})
		last, err := b.store.LastUpdate(t.Context())
		require.NoError(t, err)
		told := b.waitUpdate(t.Context(), last)
		after(time.Second)
		before := c.Runs.Load()
		const depth = 10
		b.nest(t, depth)
		require.NoError(t, <-told)
		after(docstore.LookInterval / 2)
		require.Equal(t, before+depth+1, c.Runs.Load(), "each write runs once, and the follower looks")
	})
}

// TestRemovedUpdate: if the last update is removed before a follower has read it, it waits for the next one.
func TestRemovedUpdate(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		first, err := b.store.LastUpdate(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.beside(t, "gone").db.Delete(t.Context()))
		second, err := b.store.LastUpdate(t.Context())
		require.NoError(t, err)
		after(docstore.DeletedLife + time.Second)
		other := b.waitUpdate(t.Context(), second) // so that the follower knows the last update
		after(time.Second)
		_, err = b.store.RemoveUpdates(t.Context())
		require.NoError(t, err)
		for range 3 {
			shown, same := b.updatesSince(t, first)
			require.Empty(t, shown)
			require.Equal(t, first, same)
			told := b.waitUpdate(t.Context(), same)
			after(time.Minute)
			require.Empty(t, told, "there is nothing to read")
			b.put(t, fmt.Sprint("d", time.Now().Unix()), "", `{}`)
			require.NoError(t, <-told)
			_, first = b.updatesSince(t, first)
		}
		require.NoError(t, <-other)
	})
}

// TestFirstFollower: a write that began before anybody followed is not missed.
func TestFirstFollower(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		last, err := b.store.LastUpdate(t.Context())
		require.NoError(t, err)
		var told <-chan error
		runs := 0
		b.write(t, []docstore.Edit{{ID: "d"}}, docstore.WriteOptions{Check: func(int, *docstore.Change, []docstore.Design) error {
			if runs++; runs == 1 { // its reads are done
				told = b.waitUpdate(t.Context(), last)
				after(time.Second)
			}
			return nil
		}})
		require.Equal(t, 1, runs, "the follower tries again, and the write does not")
		synctest.Wait()
		select {
		case err := <-told:
			require.NoError(t, err)
		default:
			t.Fatal("not told")
		}
	})
}

// TestWaitUpdateWithFaults: watches may be lost, late, or end without a change, and commits unknown. A waiter still
// returns within little more than 30 seconds.
func TestWaitUpdateWithFaults(t *testing.T) {
	for name, rates := range map[string]faultkv.Rates{
		"lost":     {faultkv.LostWatch: 1},
		"late":     {faultkv.LateWatch: 1},
		"spurious": {faultkv.SpuriousWatch: 0.5},
		"unknown":  {faultkv.UnknownCommitted: 0.5, faultkv.UnknownNotCommitted: 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
				b := newBundle(t, faultkv.Wrap(db, faultkv.Options{Seed: 1, Rates: rates}), docstore.Options{})
				_, last := b.updates(t, docstore.UpdatesOptions{})
				for i := range 5 {
					told := b.waitUpdate(t.Context(), last)
					after(time.Duration(i) * time.Second)
					b.put(t, fmt.Sprint(i), "", `{}`)
					began := time.Now()
					require.NoError(t, <-told)
					assert.LessOrEqual(t, time.Since(began), 35*time.Second)
					_, last = b.updatesSince(t, last)
				}
			})
		})
	}
}

// nest makes writes of which each begins before the next one, and is committed after it. It returns how often they ran.
func (b *bundle) nest(t *testing.T, depth int) (runs int) {
	t.Helper()
	if depth == 0 {
		return 0
	}
	inner := 0
	b.write(t, []docstore.Edit{{ID: fmt.Sprint("nested", depth)}}, docstore.WriteOptions{Check: func(int, *docstore.Change, []docstore.Design) error {
		if runs++; runs == 1 {
			inner = b.nest(t, depth-1)
		}
		return nil
	}})
	return runs + inner
}

func (b *bundle) storedUpdates(t *testing.T) int {
	t.Helper()
	n, err := kv.TransactValue(t.Context(), b.kv, func(tx kv.Transaction) (int, error) { return b.store.StoredUpdates(tx) })
	require.NoError(t, err)
	return n
}

// TestRemoveUpdates: rows that writers at a time have left behind go, and deleted databases are forgotten, and nothing
// else is.
func TestRemoveUpdates(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		upkeep := func() {
			t.Helper()
			for more := true; more; {
				var err error
				more, err = b.store.RemoveUpdates(t.Context())
				require.NoError(t, err)
			}
		}
		count := func() int { return b.storedUpdates(t) }
		x := b.beside(t, "x")
		x.put(t, "a", "", `{}`)
		require.NoError(t, b.beside(t, "gone").db.Delete(t.Context()))
		want := []string{"created db", "created x", "updated x", "deleted gone", "updated db"}
		const left = docstore.TidyEvery - 4 // few enough that no write tidies
		b.nest(t, left)
		require.Greater(t, count(), len(want)+left/2)
		shown, _ := b.updates(t, docstore.UpdatesOptions{})
		require.Equal(t, want, shown, "rows of one page that are replaced are left out")
		upkeep()
		require.Greater(t, count(), len(want)+left/2, "transactions that do not see them may still run")
		after(docstore.JudgeAfter)
		upkeep()
		require.Equal(t, len(want), count())
		upkeep()
		shown, last := b.updates(t, docstore.UpdatesOptions{})
		require.Equal(t, want, shown)
		b.put(t, "once more", "", `{}`)
		require.Equal(t, len(want), count(), "a row that was judged goes with the next write")
		shown, _ = b.updatesSince(t, last)
		require.Equal(t, []string{"updated db"}, shown)
		b.check(t)

		after(docstore.DeletedLife - time.Hour)
		upkeep()
		require.Equal(t, len(want), count())
		after(2 * time.Hour)
		upkeep()
		shown, _ = b.updates(t, docstore.UpdatesOptions{})
		require.Equal(t, []string{"created db", "created x", "updated x", "updated db"}, shown)
		b.check(t)
		require.NoError(t, b.beside(t, "gone").db.Delete(t.Context()))
		b.check(t)
	})
}

// TestWritersTidyUp: what writers at a time leave behind goes with later writes, also without upkeep.
func TestWritersTidyUp(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		for i := range 2 * docstore.TidyEvery {
			b.put(t, fmt.Sprint("earlier", i), "", `{}`) // from here on the end of the stripe is read
		}
		runs := b.nest(t, 2*docstore.TidyEvery)
		left := b.storedUpdates(t)
		require.Greater(t, left, docstore.TidyEvery)
		for i := range docstore.TidyEvery {
			b.put(t, fmt.Sprint("later", i), "", `{}`)
		}
		if runs > 2*docstore.TidyEvery {
			return // on a slow store some outlived their transaction: what runs again leaves rows out of reach, which are for upkeep
		}
		require.LessOrEqual(t, b.storedUpdates(t), 1+docstore.TidyEvery, "the creation and the changes since a write tidied")
	})
}

// TestLatelyWritten: a process that has changed a database lately neither reads nor removes its former row. What it leaves
// goes with upkeep, and the last row goes with the next write, however late that is.
func TestLatelyWritten(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		const creation = 1
		put := func() { t.Helper(); b.put(t, rand.Text(), "", `{}`) }
		put()
		const kept = docstore.TidyEvery - 4 // few enough that no write tidies
		for range kept - 1 {
			put()
		}
		require.Equal(t, creation+kept, b.storedUpdates(t))
		shown, _ := b.updates(t, docstore.UpdatesOptions{})
		require.Equal(t, []string{"created db", "updated db"}, shown)

		after(docstore.FreshFor)
		put()
		require.Equal(t, creation+kept, b.storedUpdates(t), "the former row has gone")
		b.other(t, docstore.Options{}).put(t, rand.Text(), "", `{}`)
		require.Equal(t, creation+kept, b.storedUpdates(t), "a new process knows nothing of earlier writes")
		for _, pause := range []time.Duration{0, docstore.JudgeAfter} {
			after(pause)
			for more := true; more; {
				var err error
				more, err = b.store.RemoveUpdates(t.Context())
				require.NoError(t, err)
			}
		}
		require.Equal(t, creation+1, b.storedUpdates(t))
		after(time.Hour)
		put()
		require.Equal(t, creation+1, b.storedUpdates(t))
		b.check(t)
	})
}
