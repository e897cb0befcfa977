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
	"settee/pkg/kv"
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
			"failed":    func(run *jobs.Run) error { return run.Fail(b.Context(), replicator.TextFault("", "no")) },
			"crashing": func(run *jobs.Run) error {
				return run.Crash(b.Context(), time.Now().Add(time.Hour), 1, replicator.TextFault("", "no"))
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
		ann, long, longerThanKeys := "ann", strings.Repeat("x", fdbjobs.MaxNameSize), strings.Repeat("x", kv.MaxKeySize)
		for _, c := range []struct {
			filter jobs.Filter
			want   []string
		}{
			{jobs.Filter{}, []string{"crashing", "of ann", "of bob", "other", "pending", "running"}},
			{jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{}}}, []string{}},
			{jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{"completed", "failed"}}}, []string{"completed", "failed"}},
			{jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{"crashing", "running"}}, Database: repdb}, []string{"crashing", "running"}},
			{jobs.Filter{Database: repdb}, []string{"crashing", "pending", "running"}},
			{jobs.Filter{Transient: true}, []string{"of ann", "of bob"}},
			{jobs.Filter{User: &ann}, []string{"of ann"}},
			{jobs.Filter{User: &ann, Transient: true, States: jobs.States{Shown: []replicator.ShownState{"running"}}}, []string{}},
			{jobs.Filter{User: &long}, []string{}},
			{jobs.Filter{User: &longerThanKeys}, []string{}},
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

// Lists select and count jobs by the state that people are told. All jobs of a paused database that wait are paused, whatever
// they would wait for.
func TestListStates(t *testing.T) {
	onEngines(t, func(b *bundle) {
		const other = "other/_replicator"
		tomorrow := time.Now().Add(24 * time.Hour)
		want := map[string][]replicator.ShownState{} // by document, and in the database other while that is paused
		add := func(database, name, members string) {
			want[name] = []replicator.ShownState{replicator.ShownState(name), replicator.ShownPaused}
			b.put(database, name, "", fmt.Sprintf(`"doc_ids": ["%s of %s"]%s`, name, database, members))
		}
		for _, database := range []string{repdb, other} {
			b.create(database)
			add(database, "parked", `, "continuous": true`)
			b.park()
			add(database, "crashing", "")
			require.NoError(b, b.accept().Crash(b.Context(), tomorrow, 1, replicator.TextFault("", "no")))
			add(database, "failed", "")
			require.NoError(b, b.accept().Fail(b.Context(), replicator.TextFault("", "no")))
			add(database, "completed", "")
			require.NoError(b, b.accept().Complete(b.Context(), nil))
			add(database, "scheduled", `, "every": "24h"`)
			require.NoError(b, b.accept().Complete(b.Context(), nil))
			add(database, "running", "")
			b.accept()
		}
		for _, database := range []string{repdb, other} {
			add(database, "paused", pausedMember)
			add(database, "pending", "")
		}
		for _, state := range []string{"running", "failed", "completed"} {
			want[state][1] = want[state][0]
		}
		for _, paused := range []bool{false, true, false} {
			weight := 1.0
			if paused {
				weight = 0
			}
			require.NoError(b, b.store.Shares.SetWeights(b.Context(), map[string]float64{other: weight}))
			b.check()
			counts, err := b.store.Lists.Counts(b.Context())
			require.NoError(b, err)
			for _, state := range replicator.ShownStates {
				here, there := []string{}, []string{}
				for name, states := range want {
					if states[0] == state {
						here = append(here, name)
					}
					if !paused && states[0] == state || paused && states[1] == state {
						there = append(there, name)
					}
				}
				all := append(slices.Clone(there), here...)
				slices.Sort(all)
				assert.EqualValues(b, len(all), counts.Jobs[state], state)
				only := []replicator.ShownState{state}
				assert.Equal(b, all, b.list(jobs.Filter{States: jobs.States{Shown: only}}))
				slices.Sort(here)
				assert.Equal(b, here, b.list(jobs.Filter{States: jobs.States{Shown: only}, Database: repdb}))
				slices.Sort(there)
				assert.Equal(b, there, b.list(jobs.Filter{States: jobs.States{Shown: only}, Database: other}))
				for skip := range len(all) + 1 {
					page, err := b.store.Lists.List(b.Context(), jobs.Filter{States: jobs.States{Shown: only}}, jobs.ListOptions{Skip: skip, Limit: 1})
					require.NoError(b, err)
					assert.Len(b, page.Jobs, min(1, len(all)-skip))
				}
				documents, err := b.store.Lists.List(b.Context(), jobs.Filter{Documents: true, States: jobs.States{Shown: only}}, jobs.ListOptions{Limit: 100})
				require.NoError(b, err)
				assert.Equal(b, all, names(documents))
				assert.EqualValues(b, 16, documents.Total, "as in CouchDB it is the number of all")
				for _, job := range documents.Jobs {
					assert.Equal(b, state, replicator.Explain(job.Facts(time.Now(), nil)).State)
				}
			}
			for query, of := range map[string]string{b.jobID(repdb, "parked"): "parked", b.jobID(other, "crashing"): "crashing"} {
				for _, state := range replicator.ShownStates {
					list, err := b.store.Lists.List(b.Context(), jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{state}}}, jobs.ListOptions{Limit: 10, Query: query})
					require.NoError(b, err)
					is := want[of][0]
					if paused && of == "crashing" {
						is = replicator.ShownPaused
					}
					assert.Len(b, list.Jobs, map[bool]int{true: 1}[state == is], "%s %s", of, state)
				}
			}
			page := func(opts jobs.ListOptions, states ...replicator.ShownState) (ids []string, list jobs.List) {
				list, err := b.store.Lists.List(b.Context(), jobs.Filter{States: jobs.States{Shown: states}}, opts)
				require.NoError(b, err)
				for _, job := range list.Jobs {
					ids = append(ids, job.ID)
				}
				return ids, list
			}
			var byState []string
			for _, state := range []replicator.ShownState{"failed", "crashing", "pending", "running", "paused", "scheduled", "parked", "completed"} {
				ids, _ := page(jobs.ListOptions{Limit: 100}, state)
				byState = append(byState, ids...)
			}
			for first := range len(byState) + 1 {
				opts := jobs.ListOptions{Skip: first, Limit: 3, Order: jobs.ByState}
				found := byState[:first:first]
				for more := true; more; opts.Skip = 0 {
					ids, list := page(opts, replicator.ShownStates...)
					assert.EqualValues(b, len(byState), list.Total)
					found, more = append(found, ids...), list.Next != nil
					if more {
						opts.After = *list.Next
					}
				}
				assert.Equal(b, byState, found)
			}
			trouble := map[bool][]string{true: {"crashing"}, false: {"crashing", "crashing"}}
			list, err := b.store.Lists.List(b.Context(), jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{"crashing"}}}, jobs.ListOptions{Limit: 10, Order: jobs.ByCrash})
			require.NoError(b, err)
			assert.Equal(b, trouble[paused], names(list))
		}
	})
}

// list returns the names of the jobs that a filter selects, and checks their number.
func (b *bundle) list(f jobs.Filter) []string {
	b.Helper()
	list, err := b.store.Lists.List(b.Context(), f, jobs.ListOptions{Limit: 100})
	require.NoError(b, err)
	assert.EqualValues(b, len(list.Jobs), list.Total, "%+v", f)
	return names(list)
}
