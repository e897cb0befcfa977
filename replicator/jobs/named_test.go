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
	"settee/replicator"
	"settee/replicator/jobs"
)

// named returns the index by name: "kind name" of each row, without doubles.
func (b *bundle) named() []string {
	b.Helper()
	found := map[string]bool{}
	for _, e := range b.entries("named") {
		found[fmt.Sprint(e.Key[0], " ", e.Key[1])] = true
	}
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
		left := b.entries("named")
		require.Len(b, left, 3)
		for _, e := range left {
			assert.Equal(b, posted.ID, e.ID)
		}
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

// A search shows first the jobs that the index finds, and then the rest.
func TestSearchByName(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := setupOn(t, db)
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
				if c.first > 0 {
					assert.Equal(b, min(limit, c.first), first, "%s, %d a page", query, limit)
				}
			}
		}

		user := "ann"
		list, err := b.store.Lists.List(b.Context(), jobs.Filter{User: &user}, jobs.ListOptions{Limit: 10, Query: "orders"})
		require.NoError(b, err)
		assert.Empty(b, list.Jobs)
		list, err = b.store.Lists.List(b.Context(), jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{replicator.ShownFailed}}}, jobs.ListOptions{Limit: 10, Query: "orders"})
		require.NoError(b, err)
		assert.Empty(b, list.Jobs)
		b.check()
	})
}

// TestNamesRandom runs two processes with all faults of commits: they write, edit and remove jobs. A search always finds what a
// look at all jobs finds, and the check finds no row wrong.
func TestNamesRandom(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	seeds.Each(t, 0, 2, func(t *testing.T, seed uint64) {
		w := newNamesWorld(t, seed)
		for range 3 {
			w.work(20)
			w.compare()
		}
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
	w := &namesWorld{bundle: setupOn(t, db), random: rand.New(rand.NewPCG(seed, 2))}
	for i := range uint64(2) {
		w.processes = append(w.processes, setupOn(t, faultkv.Wrap(db, faultkv.Options{Seed: seed<<8 | i, Rates: faultkv.Rates{
			faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.1,
		}})))
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

// work lets processes write and remove jobs.
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
				_, err = p.store.Requests.Cancel(w.Context(), list.Jobs[0].ID, nil)
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
		var collision *jobs.Collision
		if !errors.As(err, &collision) && !errors.Is(err, docstore.ErrNotFound) {
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
		p := w.processes[w.random.IntN(2)]
		found, _ := p.search(query, cmp.Or(w.random.IntN(5), 100))
		require.Equal(w, w.scan(query), found, query)
	}
	w.check()
}
