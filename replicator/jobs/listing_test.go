package jobs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/docstore"
	"settee/replicator"
	"settee/replicator/jobs"
)

// names returns what a page lists: the document ids, or the users of jobs without one.
func names(list jobs.List) []string {
	out := []string{}
	for _, job := range list.Jobs {
		if job.Args.DocID != nil {
			out = append(out, *job.Args.DocID)
		} else {
			out = append(out, "of "+*job.Args.User)
		}
	}
	slices.Sort(out)
	return out
}

// Lists are restricted by state, replicator database and user, and so is their total.
func TestListFilters(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.create("gone/_replicator")
		b.create("other/_replicator")
		ends := map[string]func(run *jobs.Run) error{
			"completed": func(run *jobs.Run) error { return run.Complete(b.Context(), nil) },
			"failed":    func(run *jobs.Run) error { return run.Fail(b.Context(), "", "no") },
			"crashing": func(run *jobs.Run) error {
				return run.Crash(b.Context(), time.Now().Add(time.Hour), 1, "", "no")
			},
			"running": func(*jobs.Run) error { return nil },
		}
		b.create(repdb)
		for _, name := range []string{"completed", "failed", "crashing", "running"} {
			b.put(repdb, name, "", fmt.Sprintf(`"doc_ids": ["%s"]`, name))
			require.NoError(b, ends[name](b.accept()))
		}
		b.put(repdb, "pending", "", `"doc_ids": ["p"]`)
		b.put("other/_replicator", "other", "", `"doc_ids": ["o"]`)
		b.put("gone/_replicator", "gone", "", `"doc_ids": ["g"]`)
		require.NoError(b, b.database("gone/_replicator").Delete(b.Context()))
		for _, user := range []string{"ann", "bob"} {
			_, err := b.store.Requests.Replicate(b.Context(), b.definition(`"continuous": true, "doc_ids": ["`+user+`"]`), &user)
			require.NoError(b, err)
		}
		ann, long := "ann", strings.Repeat("x", fdbjobs.MaxNameSize)
		for _, c := range []struct {
			filter jobs.Filter
			want   []string
		}{
			{jobs.Filter{}, []string{"crashing", "of ann", "of bob", "other", "pending", "running"}},
			{jobs.Filter{States: []replicator.State{}}, []string{}},
			{jobs.Filter{States: []replicator.State{"completed", "failed"}}, []string{"completed", "failed"}},
			{jobs.Filter{States: []replicator.State{"crashing", "running"}, Database: repdb}, []string{"crashing", "running"}},
			{jobs.Filter{Database: repdb}, []string{"crashing", "pending", "running"}},
			{jobs.Filter{Transient: true}, []string{"of ann", "of bob"}},
			{jobs.Filter{User: &ann}, []string{"of ann"}},
			{jobs.Filter{User: &ann, Transient: true, States: []replicator.State{"running"}}, []string{}},
			{jobs.Filter{User: &long}, []string{}},
		} {
			list, err := b.store.Lists.List(b.Context(), c.filter, jobs.ListOptions{Limit: 100})
			require.NoError(b, err)
			assert.Equal(b, c.want, names(list), "%+v", c.filter)
			assert.EqualValues(b, len(c.want), list.Total, "%+v", c.filter)
			assert.Nil(b, list.Next)
		}
		for _, name := range []string{"gone/_replicator", "No!"} {
			_, err := b.store.Lists.List(b.Context(), jobs.Filter{Database: name}, jobs.ListOptions{})
			require.ErrorIs(b, err, docstore.ErrDatabaseNotFound)
		}
	})
}

// A search finds texts in what lists show, page by page, and looks at a bounded number of jobs for
// each page.
func TestListSearch(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	b := setup(t)
	b.create(repdb)
	b.put(repdb, "Needle", "", "")
	user := "ann"
	const many = jobs.MaxScanned + 10
	for i := range many {
		_, err := b.store.Requests.Replicate(b.Context(), b.definition(fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i)), &user)
		require.NoError(b, err)
	}
	search := func(query string, opts jobs.ListOptions) jobs.List {
		t.Helper()
		opts.Query = query
		list, err := b.store.Lists.List(b.Context(), jobs.Filter{}, opts)
		require.NoError(b, err)
		return list
	}
	for _, query := range []string{"needle", "NEEDLE", "edl"} {
		found := search(query, jobs.ListOptions{Limit: 10})
		assert.Equal(b, []string{"Needle"}, names(found))
		assert.Equal(b, jobs.MaxScanned, found.Scanned)
		require.NotNil(b, found.Next)
		rest := search(query, jobs.ListOptions{Limit: 10, After: *found.Next})
		assert.Empty(b, rest.Jobs)
		assert.Equal(b, 11, rest.Scanned)
		assert.Nil(b, rest.Next)
	}
	assert.Empty(b, search("secret", jobs.ListOptions{Limit: 10}).Jobs, "a password is not found")

	// Pages of matches continue after the last one of each.
	seen, after, full := map[string]bool{}, fdbjobs.Position{}, 0
	for n := 0; ; n++ {
		page := search("a.EXAMPLE", jobs.ListOptions{Limit: 70, After: after})
		for _, job := range page.Jobs {
			assert.False(b, seen[job.ID])
			seen[job.ID] = true
		}
		if page.Next == nil {
			break
		}
		if len(page.Jobs) == 70 {
			assert.Equal(b, 70, page.Scanned, "the index has the host")
			full++
		}
		after = *page.Next
		require.Less(b, n, many)
	}
	assert.Len(b, seen, many+1)
	assert.Equal(b, (many+1)/70, full)

	// An id is found at once.
	last := b.jobID(repdb, "Needle")
	for _, id := range []string{last, b.get(last).ReplicationID()} {
		found := search(id, jobs.ListOptions{Limit: 10})
		assert.Equal(b, []string{"Needle"}, names(found))
		assert.Equal(b, 1, found.Scanned)
		assert.Nil(b, found.Next)
	}
	ended, err := b.store.Lists.List(b.Context(), jobs.Filter{Transient: true}, jobs.ListOptions{Limit: 10, Query: last})
	require.NoError(b, err)
	assert.Empty(b, ended.Jobs, "the list does not have it")
}

// Lists have the parked jobs among those that are pending, or alone, or leave them out.
func TestListParked(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.create(repdb)
		b.put(repdb, "parked", "", `"continuous": true`)
		job := b.park()
		require.NotZero(b, job.Parked())
		b.put(repdb, "pending", "", `"continuous": true, "doc_ids": ["p"]`)
		b.put(repdb, "running", "", `"continuous": true, "doc_ids": ["r"]`)
		require.NoError(b, b.accept().Fail(b.Context(), "", "no")) // one of the two
		failed := b.list(jobs.Filter{States: []replicator.State{replicator.StateFailed}}, nil)
		pending := b.list(jobs.Filter{States: []replicator.State{replicator.StatePending}}, new(false))
		require.Len(b, append(failed, pending...), 2)
		for _, c := range []struct {
			states []replicator.State
			parked *bool
			want   []string
		}{
			{nil, nil, append([]string{"parked"}, pending...)},
			{nil, new(true), []string{"parked"}},
			{nil, new(false), pending},
			{[]replicator.State{replicator.StatePending}, new(true), []string{"parked"}},
			{[]replicator.State{replicator.StateRunning, replicator.StateFailed}, new(true), []string{}},
			{[]replicator.State{replicator.StateFailed}, new(false), failed},
		} {
			for _, database := range []string{"", repdb} {
				assert.Equal(b, c.want, b.list(jobs.Filter{States: c.states, Database: database}, c.parked), "%+v", c)
			}
			if c.states != nil {
				list, err := b.store.Lists.ListDocuments(b.Context(), repdb, c.states, jobs.ListOptions{Limit: 10, Parked: c.parked})
				require.NoError(b, err)
				assert.Equal(b, c.want, names(list), "%+v", c)
				assert.EqualValues(b, 3, list.Total, "as in CouchDB it is the number of all")
			}
		}
		list, err := b.store.Lists.List(b.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 10, Query: job.ID, Parked: new(false)})
		require.NoError(b, err)
		assert.Empty(b, list.Jobs)
		list, err = b.store.Lists.List(b.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 10, Query: job.ID, Parked: new(true)})
		require.NoError(b, err)
		assert.Equal(b, []string{"parked"}, names(list))
	})
}

// list returns the names of the jobs that a filter selects, and checks their number.
func (b *bundle) list(f jobs.Filter, parked *bool) []string {
	b.Helper()
	list, err := b.store.Lists.List(b.Context(), f, jobs.ListOptions{Limit: 100, Parked: parked})
	require.NoError(b, err)
	assert.EqualValues(b, len(list.Jobs), list.Total, "%+v", f)
	return names(list)
}
