package docstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
)

// TestRandomUpdates lets processes write to, create and delete databases at random, on a store with faults, while others
// follow the updates and run upkeep. A follower reads the changes of a database only when an update names it. In the end
// it has all of them.
func TestRandomUpdates(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	for name, c := range map[string]struct {
		rates faultkv.Rates
		quiet time.Duration // after which a follower has all
	}{
		"without faults":  {nil, 2 * docstore.LookInterval},
		"unknown commits": {unknownRates(), 20 * time.Second}, // less than a reader waits who does not trust its watch
		"all faults":      {allRates(), 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seeds.Each(t, 0, 2, func(t *testing.T, seed uint64) {
				synctest.Test(t, func(t *testing.T) {
					db := enginetest.Memory(t)
					var stores []kv.Database
					for i := range uint64(3) {
						stores = append(stores, faultkv.Wrap(db, faultkv.Options{Seed: seed<<8 | i, Rates: c.rates}))
					}
					newUpdatesWorld(t, seed, db, stores...).run(func(func() bool) { after(c.quiet) })
				})
			})
		})
	}
}

func unknownRates() faultkv.Rates {
	return faultkv.Rates{
		faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.15, faultkv.UnknownNotCommitted: 0.05, faultkv.TooOld: 0.01, faultkv.Delay: 0.1,
	}
}

func allRates() faultkv.Rates {
	all := unknownRates()
	maps.Copy(all, faultkv.Rates{faultkv.LostWatch: 0.1, faultkv.LateWatch: 0.1, faultkv.SpuriousWatch: 0.1})
	return all
}

// TestUpdatesAreChanges is TestRandomUpdates on each engine, in real time. Followers that lose no watch must have all
// before they would look without one. The others read once more.
func TestUpdatesAreChanges(t *testing.T) {
	testkit.SkipShort(t)
	for name, c := range map[string]struct {
		rates faultkv.Rates
		loses bool
	}{"without faults": {nil, false}, "unknown commits": {unknownRates(), false}, "all faults": {allRates(), true}} {
		t.Run(name, func(t *testing.T) {
			enginetest.Each(t, func(t *testing.T, db kv.Database) {
				var stores []kv.Database
				for i := range uint64(3) {
					stores = append(stores, faultkv.Wrap(db, faultkv.Options{Seed: i, Rates: c.rates}))
				}
				settle := func(followed func() bool) {
					require.Eventually(t, followed, 25*time.Second, 10*time.Millisecond)
				}
				if c.loses {
					settle = nil
				}
				newUpdatesWorld(t, 1, db, stores...).run(settle)
			})
		})
	}
}

const (
	updatesDatabases = 6
	updatesWriters   = 6
	updatesSteps     = 40
	updatesFollowers = 3
)

type updatesWorld struct {
	t         *testing.T
	store     *bundle           // without faults
	processes []*docstore.Store // with faults

	mu     sync.Mutex // guards random
	random *rand.Rand
}

func newUpdatesWorld(t *testing.T, seed uint64, db kv.Database, stores ...kv.Database) *updatesWorld {
	w := &updatesWorld{t: t, store: newBundle(t, db, docstore.Options{}), random: rand.New(rand.NewPCG(seed, 2))}
	for _, store := range stores {
		process := docstore.Open(store, prefix, docstore.Options{})
		t.Cleanup(process.Close)
		w.processes = append(w.processes, process)
	}
	return w
}

func (w *updatesWorld) intN(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *updatesWorld) process() *docstore.Store { return w.processes[w.intN(len(w.processes))] }

// run calls settle after the last write, with a function that reports whether all followers have read the last update.
// Then each follower must have all changes. If settle is nil, each follower reads once more: how soon it is told is no
// matter then.
func (w *updatesWorld) run(settle func(followed func() bool)) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var writing, others sync.WaitGroup
	for i := range updatesWriters {
		writing.Go(func() { w.writer(i) })
	}
	followers := make([]*updatesFollower, updatesFollowers)
	for i := range followers {
		followers[i] = &updatesFollower{world: w, copies: map[string]*copied{}}
		others.Go(func() { followers[i].run(ctx) })
	}
	others.Go(func() { w.upkeep(ctx) })
	writing.Wait()
	end, err := w.store.store.LastUpdate(w.t.Context())
	require.NoError(w.t, err)
	if settle != nil {
		settle(func() bool {
			return !slices.ContainsFunc(followers, func(f *updatesFollower) bool { return f.reached().Compare(end) < 0 })
		})
	}
	cancel()
	others.Wait()
	truth := w.truth()
	for _, f := range followers {
		if settle == nil {
			f.read(w.store.store, docstore.UpdatesOptions{Since: f.at})
		}
		require.GreaterOrEqual(w.t, f.reached().Compare(end), 0)
		require.Equal(w.t, truth, f.contents())
	}
	w.finalRows(truth)
}

// writer changes databases in any way.
func (w *updatesWorld) writer(number int) {
	ctx := w.t.Context()
	for step := range updatesSteps {
		pause(time.Duration(w.intN(int(3 * time.Millisecond))))
		store, name := w.process(), fmt.Sprint("n", w.intN(updatesDatabases))
		db, err := store.Database(ctx, name)
		switch {
		case errors.Is(err, docstore.ErrDatabaseNotFound):
			if _, err = store.Create(ctx, name); errors.Is(err, docstore.ErrDatabaseExists) {
				err = nil
			}
		case err == nil && w.intN(25) == 0:
			err = db.Delete(ctx)
		case err == nil:
			edits := make([]docstore.Edit, 1+w.intN(4))
			for i := range edits {
				edits[i] = docstore.Edit{ID: fmt.Sprint(number, " ", step, " ", i)}
			}
			_, err = db.Write(ctx, edits, docstore.WriteOptions{})
		}
		if err != nil && !errors.Is(err, docstore.ErrDatabaseNotFound) {
			w.t.Error(err)
			return
		}
	}
}

func (w *updatesWorld) upkeep(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := w.process().RemoveUpdates(w.t.Context()); err != nil {
			w.t.Error(err)
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// truth returns the last sequence of each document of each database.
func (w *updatesWorld) truth() map[string]map[string]string {
	all := map[string]map[string]string{}
	for name, err := range w.store.store.Databases(w.t.Context(), docstore.ListOptions{}) {
		require.NoError(w.t, err)
		db, err := w.store.store.Database(w.t.Context(), name)
		require.NoError(w.t, err)
		all[name] = map[string]string{}
		for row, err := range db.Changes(docstore.ChangesOptions{}).All(w.t.Context()) {
			require.NoError(w.t, err)
			all[name][row.ID] = row.Revs[0].String()
		}
	}
	return all
}

// finalRows checks that, after upkeep, each database has one row for its creation, and one for its last change at the
// commit of that change, or one for its deletion.
func (w *updatesWorld) finalRows(truth map[string]map[string]string) {
	type key struct {
		name string
		kind docstore.UpdateType
	}
	rows, last := map[key]string{}, docstore.Sequence{}
	for row, err := range w.store.store.Updates(docstore.UpdatesOptions{}).All(w.t.Context()) {
		require.NoError(w.t, err)
		require.GreaterOrEqual(w.t, row.Sequence.Compare(last), 0)
		last = row.Sequence
		rows[key{row.Database, row.Type}] = commit(row.Sequence)
	}
	for name, docs := range truth {
		assert.Contains(w.t, rows, key{name, docstore.Created})
		assert.NotContains(w.t, rows, key{name, docstore.Deleted})
		if len(docs) > 0 {
			db, err := w.store.store.Database(w.t.Context(), name)
			require.NoError(w.t, err)
			info, err := db.Info(w.t.Context())
			require.NoError(w.t, err)
			assert.Equal(w.t, commit(info.UpdateSeq), rows[key{name, docstore.Updated}], name)
		}
	}
	for of := range rows {
		if _, lives := truth[of.name]; !lives {
			assert.Contains(w.t, rows, key{of.name, docstore.Deleted})
			assert.NotContains(w.t, rows, key{of.name, docstore.Created})
		}
	}
}

// commit returns the part of a sequence that the changes and updates of one commit have in common.
func commit(seq docstore.Sequence) string {
	text := seq.String()
	return text[len(text)-24 : len(text)-4]
}

// copied is what a follower has of a database.
type copied struct {
	instance string
	since    docstore.Sequence
	docs     map[string]string
}

// updatesFollower copies databases, and looks only at those that updates name.
type updatesFollower struct {
	world  *updatesWorld
	copies map[string]*copied
	mu     sync.Mutex // held to change at
	at     docstore.Sequence
}

func (f *updatesFollower) reached() docstore.Sequence {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

func (f *updatesFollower) run(ctx context.Context) {
	for {
		store := f.world.process()
		if err := store.WaitUpdate(ctx, f.at); err != nil {
			assert.ErrorIs(f.world.t, err, context.Canceled)
			return
		}
		f.read(store, docstore.UpdatesOptions{Since: f.at, Limit: f.world.intN(4)})
	}
}

func (f *updatesFollower) read(store *docstore.Store, opts docstore.UpdatesOptions) {
	pass := store.Updates(opts)
	for row, err := range pass.All(f.world.t.Context()) {
		if err == nil {
			assert.Positive(f.world.t, row.Sequence.Compare(opts.Since))
			err = f.look(store, row)
		}
		if err != nil {
			f.world.t.Error(err)
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = pass.Last()
}

// look copies the changes of a database.
func (f *updatesFollower) look(store *docstore.Store, row docstore.UpdateRow) error {
	ctx := f.world.t.Context()
	db, err := store.Database(ctx, row.Database)
	if errors.Is(err, docstore.ErrDatabaseNotFound) {
		delete(f.copies, row.Database)
		return nil
	}
	if err != nil {
		return err
	}
	of := f.copies[row.Database]
	if of == nil || of.instance != db.Instance() {
		of = &copied{instance: db.Instance(), docs: map[string]string{}}
		f.copies[row.Database] = of
	}
	pass := db.Changes(docstore.ChangesOptions{Since: of.since})
	for change, err := range pass.All(ctx) {
		if errors.Is(err, docstore.ErrDatabaseNotFound) {
			delete(f.copies, row.Database)
			return nil
		}
		if err != nil {
			return err
		}
		of.docs[change.ID] = change.Revs[0].String()
	}
	of.since = pass.Last()
	return nil
}

func (f *updatesFollower) contents() map[string]map[string]string {
	all := map[string]map[string]string{}
	for name, of := range f.copies {
		all[name] = of.docs
	}
	return all
}
