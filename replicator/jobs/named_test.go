package jobs_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/seeds"
	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/levels"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/jobs"
)

// setupLevel makes a bundle that is a process of the release with a level, on a store that has the first level if it is new.
func setupLevel(t testing.TB, db kv.Database, own int64) *bundle {
	t.Helper()
	b := &bundle{TB: t, db: newStore(db)}
	var err error
	b.levels, err = levels.Open(t.Context(), b.db, levels.Options{Key: []byte("level"), Own: own, Conversions: []int64{jobs.NamesLevel}})
	require.NoError(t, err)
	b.layer = fdbjobs.Open(b.levels, []byte("jobs"), fdbjobs.Options{})
	t.Cleanup(b.layer.Close)
	b.reopen(jobs.Options{})
	return b
}

// raise raises the level of the store.
func (b *bundle) raise() {
	b.Helper()
	_, err := b.levels.Raise(b.Context(), func(kv.Transaction) error { return nil })
	require.NoError(b, err)
}

// convert indexes the jobs from before the raise, some in each transaction. It stops with an error after so many of these.
func (b *bundle) convert(atOnce, transactions int) error {
	return b.levels.Convert(b.Context(), levels.Conversion{Level: jobs.NamesLevel, Step: func(tx kv.Transaction, from []byte) ([]byte, error) {
		if transactions--; transactions < 0 {
			return nil, errStopped
		}
		return b.store.IndexSome(tx, from, atOnce)
	}})
}

var errStopped = errors.New("the process stops")

// named returns the index by name: "kind name" of each row, without doubles.
func (b *bundle) named() []string {
	b.Helper()
	found := map[string]bool{}
	b.each("named", func(key tuple.Tuple, _ []byte) { found[fmt.Sprint(key[0], " ", key[1])] = true })
	return slices.Sorted(maps.Keys(found))
}

// search returns the ids of the jobs of all pages of a search in order, and how many of them the first page has.
func (b *bundle) search(query string, limit int) (all []string, first int) {
	b.Helper()
	for after, pages := (fdbjobs.Position{}), 0; ; pages++ {
		page, err := b.store.Lists.List(b.Context(), jobs.Filter{}, jobs.ListOptions{Limit: limit, Query: query, After: after})
		require.NoError(b, err)
		for _, job := range page.Jobs {
			all = append(all, job.ID)
		}
		if pages == 0 {
			first = len(all)
		}
		if page.Next == nil {
			slices.Sort(all)
			return all, first
		}
		require.NotEqual(b, after, *page.Next)
		after = *page.Next
	}
}

// scan returns what a search in all jobs, one after the other, finds.
func (b *bundle) scan(query string) (found []string) {
	b.Helper()
	all, _, err := b.store.ListFrom(b.Context(), 0, jobs.MaxLimit)
	require.NoError(b, err)
	for _, job := range all {
		if jobs.Matches(job, query) {
			found = append(found, job.ID)
		}
	}
	slices.Sort(found)
	return found
}

func between(source, target string) []byte {
	return fmt.Appendf(nil, `{"source": %q, "target": %q, "continuous": true}`, source, target)
}

// The rows of a job follow its definition, and go with the job in each way in which it can go.
func TestNames(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		rev, err := b.write(repdb, "a", "", between("http://adm:secret@A.example:5984/db", "https://b.example/x/y%2Fz/"))
		require.NoError(b, err)
		assert.Equal(b, []string{"database db", "database y/z", "host a.example", "host b.example"}, b.named())
		rev, err = b.write(repdb, "a", rev, between("http://a.example/db", "http://a.example/db"))
		require.NoError(b, err)
		assert.Equal(b, []string{"database db", "host a.example"}, b.named())
		b.accept()
		rev, err = b.write(repdb, "a", rev, between("http://[::1]:1/db", "http://a.example/"+strings.Repeat("X", 300)))
		require.NoError(b, err)
		assert.Equal(b, []string{"database db", "database " + strings.Repeat("x", 255), "host ::1", "host a.example"}, b.named())
		rev, err = b.write(repdb, "a", rev, between("http://a.example/%ff", "http://a.example/"+strings.Repeat("%C3%A4", 200)))
		require.NoError(b, err)
		assert.Equal(b, []string{"database " + strings.Repeat("ä", 127), "database \uFFFD", "host a.example"}, b.named())
		b.remove(repdb, "a", rev)
		assert.Empty(b, b.named())

		posted := b.replicate("")
		require.NoError(b, b.accept().Complete(b.Context(), nil))
		assert.Equal(b, []string{"database db", "host a.example", "host b.example"}, b.named(), "of a job that has ended")
		b.cancel(b.replicate(`"continuous": true`).ID)
		b.put(repdb, "b", "", "")
		require.NoError(b, b.database(repdb).Delete(b.Context()))
		b.reopen(jobs.Options{TransientMaxAge: time.Hour})
		b.upkeep()
		require.Equal(b, 3, b.each("named", func(key tuple.Tuple, _ []byte) { assert.Equal(b, posted.ID, key[2]) }))
	})
}

// A job that has expired is no longer in the index.
func TestNamesOfExpiredJob(t *testing.T) {
	t.Parallel()
	testkit.RunBubble(t, "", func(t *testing.T) {
		b := setup(t, jobs.Options{TransientMaxAge: time.Second})
		b.replicate("")
		require.NoError(b, b.accept().Complete(b.Context(), nil))
		require.NotEmpty(b, b.named())
		time.Sleep(jobs.LeastMaxAge + 2*time.Second)
		b.upkeep()
		assert.Empty(b, b.named())
	})
}

// A search shows first the jobs that the index finds, and then the rest. Without the index it finds the same jobs.
func TestSearchByName(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := setupLevel(t, db, jobs.NamesLevel)
		b.create(repdb)
		write := func(id, source, target string) string {
			_, err := b.write(repdb, id, "", between(source, target))
			require.NoError(b, err)
			return b.jobID(repdb, id)
		}
		var every []string
		for i := range 7 {
			every = append(every, write(fmt.Sprint("d", i), fmt.Sprintf("http://east%d.example/orders%d", i, i), "http://west.example/orders"))
		}
		mine := write("orders", "http://north.example/bills", "http://north.example/my-orders")
		odd := write("odd", "http://north.example/a%2Fb", "http://north.example/c")
		check := func(indexed bool) {
			for query, c := range map[string]struct {
				want  []string
				first int // in the index
			}{
				"orders": {append(slices.Clone(every), mine), 7}, "ORDERS3": {every[3:4], 1}, "east": {every, 7}, "West.Example": {every, 7},
				"north": {[]string{mine, odd}, 2}, "a/b": {[]string{odd}, 1}, "my": {[]string{mine}, 1}, "y-ord": {[]string{mine}, 0},
				"nothing": {nil, 0}, "rders4": {every[4:5], 0}, "http://west": {every, 0},
			} {
				for _, limit := range []int{1, 3, 7, 100} {
					all, first := b.search(query, limit)
					slices.Sort(c.want)
					assert.Equal(b, c.want, all, "%s, %d a page", query, limit)
					if indexed && c.first > 0 {
						assert.Equal(b, min(limit, c.first), first, "%s, %d a page", query, limit)
					}
				}
			}
		}
		check(false)
		b.raise()
		check(false)
		require.ErrorIs(b, b.convert(4, 1), errStopped)
		check(false)
		require.NoError(b, b.convert(4, 9))
		check(true)

		user := "ann"
		list, err := b.store.Lists.List(b.Context(), jobs.Filter{User: &user}, jobs.ListOptions{Limit: 10, Query: "orders"})
		require.NoError(b, err)
		assert.Empty(b, list.Jobs)
		list, err = b.store.Lists.List(b.Context(), jobs.Filter{States: []replicator.State{replicator.StateFailed}}, jobs.ListOptions{Limit: 10, Query: "orders"})
		require.NoError(b, err)
		assert.Empty(b, list.Jobs)
		b.check()
	})
}

// A search that has begun before the index had all jobs goes on without it, and finds each job once.
func TestSearchOverConversion(t *testing.T) {
	t.Parallel()
	b := setupLevel(t, enginetest.Memory(t), jobs.NamesLevel)
	b.create(repdb)
	for i := range 5 {
		b.put(repdb, fmt.Sprint(i), "", `"continuous": true`)
	}
	page, err := b.store.Lists.List(b.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 2, Query: "a.example"})
	require.NoError(b, err)
	require.Equal(b, []string{"0", "1"}, names(page))
	b.raise()
	require.NoError(b, b.convert(100, 1))
	page, err = b.store.Lists.List(b.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 10, Query: "a.example", After: *page.Next})
	require.NoError(b, err)
	assert.Equal(b, []string{"2", "3", "4"}, names(page))
	assert.Nil(b, page.Next)
}

// Before the raise the write of a job adds no rows to the index. After it each write does, also while the conversion has not
// come to the job.
func TestNamesAndLevels(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := setupLevel(t, db, jobs.NamesLevel)
		b.create(repdb)
		revs := map[string]string{}
		for _, id := range []string{"changed", "kept", "removed"} {
			var err error
			revs[id], err = b.write(repdb, id, "", between("http://"+id+".example/db", "http://target.example/db"))
			require.NoError(b, err)
		}
		b.replicate("")
		assert.Empty(b, b.named())
		b.raise()
		_, err := b.write(repdb, "changed", revs["changed"], between("http://other.example/db", "http://target.example/db"))
		require.NoError(b, err)
		b.remove(repdb, "removed", revs["removed"])
		b.put(repdb, "new", "", "")
		assert.Equal(b, []string{"database db", "host a.example", "host b.example", "host other.example"}, b.named())
		b.check()
		require.NoError(b, b.convert(2, 9))
		assert.Equal(b, []string{"database db", "host a.example", "host b.example", "host kept.example", "host other.example", "host target.example"}, b.named())
		b.check()
	})
}

// A job that is written or removed while a transaction indexes it has the names that it has then.
func TestNamesDuringConversion(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := setupLevel(t, db, jobs.NamesLevel)
		b.create(repdb)
		changed, err := b.write(repdb, "changed", "", between("http://a.example/db", "http://b.example/db"))
		require.NoError(b, err)
		removed, err := b.write(repdb, "removed", "", between("http://c.example/db", "http://d.example/db"))
		require.NoError(b, err)
		b.raise()
		runs := 0
		require.NoError(b, b.levels.Convert(b.Context(), levels.Conversion{Level: jobs.NamesLevel, Step: func(tx kv.Transaction, from []byte) ([]byte, error) {
			next, err := b.store.Upkeep.IndexNames(tx, from)
			if runs++; err != nil || runs > 1 {
				return next, err
			}
			b.remove(repdb, "removed", removed)
			_, err = b.write(repdb, "changed", changed, between("http://e.example/db", "http://f.example/db"))
			return next, err
		}}))
		assert.Equal(b, 2, runs)
		assert.Equal(b, []string{"database db", "host e.example", "host f.example"}, b.named())
		b.check()
	})
}

// The rows of the index in a store of a lower level, and jobs without rows before the conversion has ended.
func TestCheckNamesByLevel(t *testing.T) {
	t.Parallel()
	b := setupLevel(t, enginetest.Memory(t), jobs.NamesLevel)
	job := b.replicate("")
	key := tuple.NewSubspace("replicator").Pack("named", "host", "a.example", job.ID)
	require.NoError(b, b.db.Transact(b.Context(), func(tx kv.Transaction) error {
		tx.Set(key, nil)
		return nil
	}))
	faults := func(repair bool) (said []string) {
		c := checkerOf(b, repair, &said)
		require.NoError(b, jobs.Check(b.Context(), c, b.layer, b.levels))
		return said
	}
	require.Len(b, faults(true), 1)
	require.Empty(b, faults(false))
	b.raise()
	require.Empty(b, faults(false), "the job is not converted")
	require.NoError(b, b.convert(100, 1))
	require.Empty(b, faults(false))
	require.NoError(b, b.db.Transact(b.Context(), func(tx kv.Transaction) error {
		tx.Clear(key)
		return nil
	}))
	require.Len(b, faults(true), 1)
	require.Empty(b, faults(false))
}

// TestNamesRandom runs processes of the release before the index and of this one, with all faults of commits: they write,
// edit and remove jobs before the raise, while the jobs are converted, and after it. A search always finds what a look at all jobs
// finds, and the check finds no row wrong.
func TestNamesRandom(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	seeds.Each(t, 0, 2, func(t *testing.T, seed uint64) {
		w := newNamesWorld(t, seed)
		w.work(20)
		w.compare()
		w.processes[1+w.random.IntN(2)].raise()
		for done := false; !done; {
			w.work(2)
			// Both convert, and one of them writes at the same time.
			ended := make(chan error)
			for _, p := range w.processes[1:] {
				go func() { ended <- p.convert(2, 2) }()
			}
			w.work(3)
			first, second := <-ended, <-ended
			done = first == nil && second == nil
			for _, err := range []error{first, second} {
				if err != nil {
					require.ErrorIs(t, err, errStopped)
				}
			}
			w.compare()
		}
		w.work(20)
		w.compare()
		require.NotEmpty(t, w.named(), "not even rows")
	})
}

type namesWorld struct {
	*bundle   // without faults
	processes []*bundle
	random    *rand.Rand
}

func newNamesWorld(t *testing.T, seed uint64) *namesWorld {
	db := struct{ kv.Database }{enginetest.Memory(t)}
	w := &namesWorld{bundle: setupLevel(t, db, jobs.NamesLevel), random: rand.New(rand.NewPCG(seed, 2))}
	for i, own := range []int64{jobs.NamesLevel - 1, jobs.NamesLevel, jobs.NamesLevel} {
		w.processes = append(w.processes, setupLevel(t, faultkv.Wrap(db, faultkv.Options{Seed: seed<<8 | uint64(i), Rates: faultkv.Rates{
			faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.1,
		}}), own))
	}
	w.create(repdb)
	return w
}

var (
	worldHosts = []string{"east.example", "EAST.example:5984", "west.example", "eastern.example"}
	worldNames = []string{"orders", "Orders-2024", "bills", "a%2Forders", "east"}
)

func (w *namesWorld) endpoint() string {
	return "http://" + worldHosts[w.random.IntN(len(worldHosts))] + "/" + worldNames[w.random.IntN(len(worldNames))]
}

// work lets processes write and remove jobs. Those of the earlier release can no longer after the raise.
func (w *namesWorld) work(steps int) {
	for range steps {
		p := w.processes[w.random.IntN(len(w.processes))]
		source, target := w.endpoint(), w.endpoint()
		var err error
		switch id := fmt.Sprint("d", w.random.IntN(9)); w.random.IntN(5) {
		case 0:
			var removed *docstore.Document
			if removed, err = w.database(repdb).Get(w.Context(), id, docstore.GetOptions{}); err == nil {
				err = p.edit(docstore.Edit{ID: id, Rev: removed.Rev, Deleted: true})
			}
		case 1:
			request, bad := replicator.ParseRequest(between(source, target), replicator.ParseOptions{})
			require.NoError(w, bad)
			_, err = p.store.Requests.Replicate(w.Context(), request.Replication, nil)
		case 2:
			var list jobs.List
			if list, err = w.store.Lists.List(w.Context(), jobs.Filter{Transient: true}, jobs.ListOptions{Limit: 1}); err == nil && len(list.Jobs) > 0 {
				_, err = p.store.Requests.Cancel(w.Context(), list.Jobs[0].ID)
			}
		default:
			edit := docstore.Edit{ID: id, Body: docjson.Must(between(source, target))}
			before, bad := w.database(repdb).Get(w.Context(), id, docstore.GetOptions{})
			if err = bad; err == nil {
				edit.Rev = before.Rev
			}
			if err == nil || errors.Is(err, docstore.ErrNotFound) {
				err = p.edit(edit)
			}
		}
		var unknown *levels.UnknownLevelError
		var collision *jobs.Collision
		if !errors.As(err, &unknown) && !errors.As(err, &collision) && !errors.Is(err, docstore.ErrNotFound) {
			require.NoError(w, err)
		}
	}
}

func (b *bundle) edit(edit docstore.Edit) error {
	db, err := b.docs.Database(b.Context(), repdb)
	if err == nil {
		_, err = db.Put(b.Context(), edit)
	}
	return err
}

// compare compares searches with scans, and checks all rows.
func (w *namesWorld) compare() {
	w.Helper()
	for _, query := range []string{"east", "EAST.", "orders", "rders", "a/o", "a%2fo", "bills", "nothing", "http://west.example/b", "d3"} {
		p := w.processes[1+w.random.IntN(2)]
		found, _ := p.search(query, cmp.Or(w.random.IntN(5), 100))
		require.Equal(w, w.scan(query), found, query)
	}
	w.check()
}
