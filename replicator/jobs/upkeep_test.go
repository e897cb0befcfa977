package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/jobs"
)

// upkeep runs all tasks once.
func (b *bundle) upkeep() {
	b.Helper()
	for _, task := range b.store.Upkeep.Tasks() {
		require.NoError(b, task.Run(b.Context(), nil), task.Name)
	}
}

// stored returns the number of jobs in the job layer, including those of deleted databases.
func (b *bundle) stored() int64 {
	b.Helper()
	n, err := kv.TransactValue(b.Context(), b.db, func(tx kv.Transaction) (int64, error) {
		return jobs.CountIn(tx, b.store.Jobs, jobs.Everywhere(fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished))
	})
	require.NoError(b, err)
	return n
}

// Deleting a database hides the jobs of its documents in every state, before any is removed.
func TestDeletedDatabase(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		finished := map[string]func(*jobs.Run) error{
			"update":   func(r *jobs.Run) error { return r.Update(b.Context(), nothing) },
			"identify": func(r *jobs.Run) error { return r.Identify(b.Context(), id('a')) },
			"complete": func(r *jobs.Run) error { return r.Complete(b.Context(), nil) },
			"fail":     func(r *jobs.Run) error { return r.Fail(b.Context(), replicator.TextFault("", "x")) },
		}
		for name := range finished {
			b.put(repdb, name, "", fmt.Sprintf(`"doc_ids": [%q]`, name))
		}
		runs := map[string]*jobs.Run{}
		for range finished {
			run := b.accept()
			runs[*run.Job().Args.DocID] = run
		}
		for i := range 5 {
			b.put(repdb, fmt.Sprint(i), "", fmt.Sprintf(`"doc_ids": ["%d"]`, i))
		}
		require.NoError(b, b.accept().Complete(b.Context(), nil))
		accepted, err := accept(b.Context(), b.store) // and not started
		require.NoError(b, err)
		shown := b.get(accepted.Job().ID).ReplicationID()

		old := b.database(repdb)
		require.NoError(b, old.Delete(b.Context()))
		assert.Zero(b, b.total())
		for name := range finished {
			b.gone(replicator.PersistentJobID(old.Instance(), name))
		}
		b.gone(shown)
		require.ErrorIs(b, accepted.Start(b.Context(), "node", "pid"), fdbjobs.ErrHalt)
		for name, call := range finished {
			require.ErrorIs(b, call(runs[name]), fdbjobs.ErrHalt, name)
			require.ErrorIs(b, context.Cause(runs[name].Context()), fdbjobs.ErrHalt, name)
			require.ErrorIs(b, runs[name].Stop(b.Context(), "", "", nil), fdbjobs.ErrHalt, name)
		}
		assert.EqualValues(b, 9-len(finished), b.stored(), "halted runs have removed their jobs")

		// A new database of the same name has its own documents and jobs, and the replication ids
		// of the old jobs are free.
		b.create(repdb)
		b.put(repdb, "0", "", `"doc_ids": ["4"]`)
		assert.Equal(b, 1, b.total())
		run := b.accept()
		assert.Equal(b, b.jobID(repdb, "0"), run.Job().ID, "what is dropped is not run")
		name := parsedID(run.Job().Args.ReplicationID)
		require.NoError(b, run.Identify(b.Context(), name))

		b.upkeep()
		assert.EqualValues(b, 1, b.stored())
		assert.Equal(b, map[string]string{name.String(): run.Job().ID}, b.reservations())
		assert.Empty(b, b.deletions())
		require.NoError(b, run.Complete(b.Context(), nil))
		assert.Equal(b, "completed", b.document(repdb, "0")["_replication_state"])

		// Other databases have no jobs to cancel.
		require.NoError(b, b.create("x").Delete(b.Context()))
		assert.Empty(b, b.deletions())
	})
}

// Accept drops jobs of deleted databases that upkeep has not removed yet.
func TestAcceptDropsTheJobsOfDeletedDatabases(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		for i := range 10 {
			b.put(repdb, fmt.Sprint(i), "", fmt.Sprintf(`"doc_ids": ["%d"]`, i))
		}
		require.NoError(b, b.database(repdb).Delete(b.Context()))
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error)
		go func() {
			_, err := accept(ctx, b.store)
			ended <- err
		}()
		require.Eventually(b, func() bool { return b.stored() == 0 }, time.Minute, time.Millisecond)
		assert.Empty(b, b.reservations())
		cancel()
		require.ErrorIs(b, <-ended, context.Canceled)
	})
}

// The deletion wakes upkeep, which stops the running jobs.
func TestUpkeepAfterDeletion(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		b.create(repdb)
		const many = 450
		for i := range many {
			b.put(repdb, fmt.Sprintf("%03d", i), "", fmt.Sprintf(`"doc_ids": ["%d"]`, i))
		}
		run := b.accept()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- upkeep.Run(ctx, b.db, b.layer, b.store.Upkeep.Tasks(), func(string, error) {}) }()
		synctest.Wait() // the tasks are idle
		began := time.Now()
		lost := make(chan error)
		go func() { lost <- run.Lost(t.Context()) }()
		require.NoError(t, b.database(repdb).Delete(t.Context()))
		require.ErrorIs(t, <-lost, fdbjobs.ErrHalt)
		require.Less(t, time.Since(began), time.Second)
		time.Sleep(time.Second) // of the bubble's clock
		synctest.Wait()         // tasks may be due at this very moment
		require.Zero(t, b.stored())
		require.Empty(t, b.deletions())
		require.Empty(t, b.reservations())
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

// A list skips the jobs of deleted databases anywhere in it.
func TestListWithoutDeletedDatabases(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		b.db.on.Store(false) // faults make no difference here
		require.NoError(b, b.database(repdb).Delete(b.Context()))
		var kept, deleted, transient []string
		for i := range 8 {
			first := len(kept)
			name := fmt.Sprintf("a%d/_replicator", i)
			db := b.create(name)
			for j := range 3 + 5*(i%4) {
				b.put(name, fmt.Sprint(j), "", fmt.Sprintf(`"doc_ids": ["%d/%d"]`, i, j))
				if id := replicator.PersistentJobID(db.Instance(), fmt.Sprint(j)); i%2 == 0 {
					kept = append(kept, id)
				} else {
					deleted = append(deleted, id)
				}
			}
			slices.Sort(kept[first:]) // 10 comes before 2
		}
		for i := range 5 {
			transient = append(transient, b.replicate(fmt.Sprintf(`"doc_ids": ["%d"]`, i)).ID)
		}
		for i := range 8 {
			if i%2 == 1 {
				require.NoError(b, b.database(fmt.Sprintf("a%d/_replicator", i)).Delete(b.Context()))
			}
		}
		slices.Sort(transient)
		kept = append(kept, transient...) // the owner of transient jobs comes after databases
		compare := func() {
			b.Helper()
			for skip := range len(kept) + 2 {
				for _, limit := range []int{0, 1, 7, len(kept), jobs.MaxLimit} {
					found, total, err := b.store.ListFrom(b.Context(), skip, limit)
					require.NoError(b, err)
					require.EqualValues(b, len(kept), total)
					got := []string{}
					for _, job := range found {
						got = append(got, job.ID)
					}
					begin := min(skip, len(kept))
					require.Equal(b, kept[begin:min(begin+limit, len(kept))], got, "skip %d, limit %d", skip, limit)
				}
			}
		}
		compare()
		for _, id := range deleted {
			b.gone(id)
		}
		b.upkeep()
		assert.EqualValues(b, len(kept), b.stored())
		compare()
	})
}

// Ended transient jobs are kept for a time, and then removed completely.
func TestTransientJobsExpire(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t, jobs.Options{TransientMaxAge: time.Hour})
		b.create(repdb)
		b.put(repdb, "d", "", "")
		require.NoError(t, b.accept().Complete(t.Context(), nil))
		completed, failed, running := b.replicate(`"doc_ids": ["1"]`), b.replicate(`"doc_ids": ["2"]`), b.replicate(`"doc_ids": ["3"]`)
		require.NoError(t, b.accept().Complete(t.Context(), nil))
		require.NoError(t, b.accept().Fail(t.Context(), replicator.TextFault("", "no")))
		b.accept()
		b.replicate(`"doc_ids": ["2"]`)
		require.Equal(t, 1, b.ends())
		require.NoError(t, b.accept().Fail(t.Context(), replicator.TextFault("", "no again")))

		time.Sleep(time.Hour - time.Second) // of the bubble's clock
		b.upkeep()
		for _, job := range []*jobs.Job{completed, failed} {
			require.Equal(t, job.ID, b.get(job.ReplicationID()).ID)
		}
		time.Sleep(time.Second)
		b.upkeep()
		for _, job := range []*jobs.Job{completed, failed} {
			b.gone(job.ID)
			b.gone(job.ReplicationID())
		}
		b.get(running.ID)
		b.get(b.jobID(repdb, "d"))
		require.Len(t, b.reservations(), 2)
		require.Zero(t, b.ends())
	})
}

// Jobs too large for one transaction are removed in several.
func TestUpkeepOfLargeJobs(t *testing.T) {
	testkit.SkipRace(t)
	onEngines(t, func(b *bundle) {
		for name, id := range map[string]string{"x/_replicator": strings.Repeat("x", 1800), "y/_replicator": strings.Repeat("\x00", 900)} {
			b.create(name)
			for i := range 205 {
				b.put(name, fmt.Sprintf("%04d", i)+id, "", fmt.Sprintf(`"doc_ids": ["%d"]`, i))
			}
			require.NoError(b, b.database(name).Delete(b.Context()))
		}
		b.upkeep()
		require.Zero(b, b.stored())
		require.Empty(b, b.deletions())
	})
}

// Jobs are removed from a store that takes long for each read. A transaction that reads them one by one would pass its
// five seconds, and be repeated for ever.
func TestUpkeepOfASlowStore(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		store := enginetest.Control(enginetest.Memory(t))
		b := setupOn(t, store)
		for delay, jobs := range map[time.Duration]int{30 * time.Millisecond: 400, 700 * time.Millisecond: 20} {
			store.Delay.Store(0)
			b.create(repdb)
			for i := range jobs {
				b.put(repdb, fmt.Sprint(i), "", fmt.Sprintf(`"doc_ids": ["%d"]`, i))
			}
			require.NoError(t, b.database(repdb).Delete(t.Context()))
			store.Delay.Store(int64(delay))
			began := time.Now()
			b.upkeep()
			require.Less(t, time.Since(began), 5*time.Minute, delay)
			require.Zero(t, b.stored())
		}
	})
}

// ends returns the number of ends of jobs that were added again.
func (b *bundle) ends() (n int) {
	b.Helper()
	b.each("records", func(key tuple.Tuple, _ []byte) {
		if key[1] == "life" {
			n++
		}
	})
	return n
}
