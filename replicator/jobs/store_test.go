package jobs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/pebblekv"
	"settee/replicator"
	"settee/replicator/jobs"
)

func TestServerUUIDIsMadeOnce(t *testing.T) {
	t.Parallel()
	for _, lossy := range []bool{false, true} {
		store := newStore(enginetest.Memory(t))
		store.on.Store(lossy)
		uuids := make([]string, 20)
		var wg sync.WaitGroup
		for i := range uuids {
			wg.Go(func() {
				layer := fdbjobs.Open(store, []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations()})
				defer layer.Close()
				if s, err := jobs.Open(t.Context(), store, layer, jobs.Options{}); assert.NoError(t, err) {
					uuids[i] = s.ServerUUID
				}
			})
		}
		wg.Wait()
		require.Regexp(t, "^[0-9a-f]{32}$", uuids[0])
		require.Len(t, slices.Compact(uuids), 1)
	}
}

func TestServerUUIDOfOptionsIsNotStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(given string) string {
		db, err := pebblekv.Open(dir, pebblekv.Options{})
		require.NoError(t, err)
		defer db.Close()
		layer := fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations()})
		defer layer.Close()
		s, err := jobs.Open(t.Context(), db, layer, jobs.Options{UUID: given})
		require.NoError(t, err)
		return s.ServerUUID
	}
	made := open("")
	require.Equal(t, "given", open("given"))
	require.Equal(t, made, open(""))
}

func TestList(t *testing.T) {
	onEngines(t, func(b *bundle) {
		empty, total, err := b.store.ListFrom(b.Context(), 0, 10)
		require.NoError(b, err)
		require.Empty(b, empty)
		require.Zero(b, total)

		const n = 37
		var want []string
		for i := range n {
			want = append(want, b.replicate(fmt.Sprintf(`"doc_ids": ["%d"]`, i)).ID)
		}
		for range 5 { // running jobs stay in the list, by id
			b.accept()
		}
		for range 2 { // ended jobs do not
			run := b.accept()
			require.NoError(b, run.Complete(b.Context(), nil))
			want = slices.DeleteFunc(want, func(id string) bool { return id == run.Job().ID })
		}
		slices.Sort(want)

		for _, page := range []struct{ skip, limit int }{
			{0, 0}, {0, 1}, {0, 10}, {0, 35}, {0, jobs.MaxLimit}, {1, 10}, {10, 20}, {34, 5}, {35, 5}, {36, 5}, {math.MaxInt, 1},
		} {
			found, total, err := b.store.ListFrom(b.Context(), page.skip, page.limit)
			require.NoError(b, err)
			require.EqualValues(b, len(want), total)
			var got []string
			for _, job := range found {
				got = append(got, job.ID)
			}
			begin := min(page.skip, len(want))
			expected := want[begin:min(begin+page.limit, len(want))]
			require.Equal(b, expected, append([]string{}, got...), "%+v", page)
		}
		for _, page := range []struct{ skip, limit int }{{-1, 1}, {0, -1}, {0, jobs.MaxLimit + 1}} {
			_, _, err := b.store.ListFrom(b.Context(), page.skip, page.limit)
			require.ErrorContains(b, err, "out of range")
		}
	})
}

// A page may begin further on than one transaction skips.
func TestListSkipsMany(t *testing.T) {
	testkit.SkipRace(t)
	t.Parallel()
	b := setupOn(t, enginetest.Memory(t))
	const n = 2*jobs.SkipAtOnce + 3
	for i := range n {
		b.replicate(fmt.Sprintf(`"doc_ids": ["%d"]`, i))
	}
	all, err := b.store.Lists.List(b.Context(), jobs.Filter{}, jobs.ListOptions{Skip: jobs.SkipAtOnce, Limit: jobs.MaxLimit})
	require.NoError(b, err)
	rest, total, err := b.store.ListFrom(b.Context(), 2*jobs.SkipAtOnce-1, 10)
	require.NoError(b, err)
	require.EqualValues(b, n, total)
	require.Len(b, rest, 4)
	require.Equal(b, all.Jobs[jobs.MaxLimit-1].ID, rest[0].ID)
	require.Equal(b, fdbjobs.Position{Owner: "user:", ID: rest[0].ID}, *all.Next)
}

func TestRunning(t *testing.T) {
	onEngines(t, func(b *bundle) {
		running := func() []string {
			ids := []string{}
			for job, err := range b.store.Lists.Running(b.Context()) {
				require.NoError(b, err)
				require.Equal(b, replicator.StateRunning, job.Condition())
				require.Nil(b, job.Args.Replication.DocIDs, "large members are left out")
				ids = append(ids, job.ID)
			}
			return ids
		}
		require.Empty(b, running())
		const n = 25 // several transactions
		runs := map[string]*jobs.Run{}
		for i := range n + 5 {
			b.replicate(fmt.Sprintf(`"doc_ids": ["%d"]`, i))
		}
		for i := range n {
			run := b.accept()
			runs[run.Job().ID] = run
			if i == 9 { // the most that one transaction reads
				require.Equal(b, slices.Sorted(maps.Keys(runs)), running())
			}
		}
		want := slices.Sorted(maps.Keys(runs))
		require.Equal(b, want, running())
		for _, err := range b.store.Lists.Running(b.Context()) {
			require.NoError(b, err)
			break
		}
		require.NoError(b, runs[want[0]].Complete(b.Context(), nil))
		require.NoError(b, runs[want[1]].Stop(b.Context(), "", "", nil))
		require.Equal(b, want[2:], running())
	})
}

func TestListLeavesOutLargeMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	large := strings.Repeat("x", 3_000_000)
	job := b.replicate(`"doc_ids": ["` + large + `"], "continuous": true`)
	found, _, err := b.store.ListFrom(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, job.ReplicationID(), found[0].ReplicationID())
	require.Nil(t, found[0].Args.Replication.DocIDs)
	require.True(t, found[0].Args.Replication.Continuous)
	require.Equal(t, "http://a.example/db/", found[0].Args.Replication.Source.String())
	require.Equal(t, []string{large}, b.get(job.ID).Args.Replication.DocIDs, "the job is whole")
}

func TestClosedStore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := b.replicate("")
	b.layer.Close()
	_, err := b.store.Requests.Await(t.Context(), job.ID, job.Args.Life)
	require.ErrorIs(t, err, fdbjobs.ErrClosed)
	_, err = accept(t.Context(), b.store)
	require.ErrorIs(t, err, fdbjobs.ErrClosed)
}

func TestStoreThatFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := b.replicate("")
	run := b.accept()
	before := *run.Job().State
	b.db.broken.Store(true)
	nothing := func(*replicator.JobState) {}
	for name, call := range map[string]func() error{
		"Open": func() error {
			_, err := jobs.Open(t.Context(), b.db, b.layer, jobs.Options{})
			return err
		},
		"Replicate": func() error {
			_, err := b.store.Requests.Replicate(t.Context(), b.definition(`"continuous": true`), nil)
			return err
		},
		"Await":  func() error { _, err := b.store.Requests.Await(t.Context(), job.ID, job.Args.Life); return err },
		"Cancel": func() error { _, err := b.store.Requests.Cancel(t.Context(), job.ID, nil); return err },
		"Get":    func() error { _, err := b.store.Lists.Get(t.Context(), job.ID); return err },
		"List":   func() error { _, _, err := b.store.ListFrom(t.Context(), 0, 1); return err },
		"Running": func() error {
			var failed error
			for _, err := range b.store.Lists.Running(t.Context()) {
				failed = err
			}
			return failed
		},
		"Accept":   func() error { _, err := accept(t.Context(), b.store); return err },
		"Update":   func() error { return run.Update(t.Context(), func(s *replicator.JobState) { s.Stats.DocsRead = 1 }) },
		"Identify": func() error { return run.Identify(t.Context(), id('a')) },
		"Complete": func() error { return run.Complete(t.Context(), nothing) },
		"Stop":     func() error { return run.Stop(t.Context(), "", "", nothing) },
		"Lost":     func() error { return run.Lost(t.Context()) },
	} {
		require.ErrorIs(t, call(), errBroken, name)
	}
	require.Equal(t, before, *run.Job().State, "what was not stored is not kept")
	b.db.broken.Store(false)
	require.NoError(t, run.Complete(t.Context(), nil))
}

func TestMalformedJobIsAnError(t *testing.T) {
	t.Parallel()
	for args, state := range map[string]string{`{"replication": {}}`: `{"state": 5}`, `{"replication": 5}`: `{}`, `{}`: `{}`} {
		b := setup(t)
		require.NoError(t, b.db.Transact(t.Context(), func(tx kv.Transaction) error {
			return b.store.Jobs.Add(tx, fdbjobs.Spec{
				ID: "x", Owner: "user:", Label: "transient", Args: json.RawMessage(args), State: json.RawMessage(state),
				Listed: json.RawMessage(args),
			})
		}))
		_, err := b.store.Lists.Get(t.Context(), "x")
		require.ErrorContains(t, err, `replication job "x"`)
		_, _, err = b.store.ListFrom(t.Context(), 0, 1)
		require.ErrorContains(t, err, `replication job "x"`)
	}
}
