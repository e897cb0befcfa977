package jobs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/replicator"
	"settee/replicator/jobs"
)

const sourceServer, sourceDatabase = "http://a.example/", "db"

// atSource is where the jobs of definitionText get their changes from.
func atSource() replicator.Parked {
	return replicator.Parked{Server: sourceServer, Database: sourceDatabase, UpdateSeq: `"7-x"`}
}

// park parks a job that is accepted.
func (b *bundle) park() *jobs.Job {
	b.Helper()
	run := b.accept()
	require.NoError(b, run.Parking(b.Context(), atSource()))
	woken, err := run.Park(b.Context(), nil)
	require.NoError(b, err)
	require.False(b, woken)
	return b.get(run.Job().ID)
}

func (b *bundle) parkedRows() []jobs.ParkedRow {
	b.Helper()
	found, err := b.store.Watches.ParkedOf(b.Context(), sourceServer, jobs.ParkedRow{}, 100)
	require.NoError(b, err)
	return found
}

func (b *bundle) wake(databases ...string) int {
	b.Helper()
	n, err := b.store.Watches.Wake(b.Context(), sourceServer, databases)
	require.NoError(b, err)
	return n
}

// A job that parks is pending for about a day, until its source changes. Its next run clears the row.
func TestParkAndWake(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.db.on.Store(true)
		added := b.replicate(`"continuous": true`)
		job := b.park()
		assert.Equal(b, added.ID, job.ID)
		assert.Equal(b, replicator.StatePending, job.Condition())
		assert.WithinDuration(b, time.Now(), job.Parked(), time.Minute)
		assert.Zero(b, job.NextRun())
		assert.Equal(b, []string{"stopped", "started", "added"}, eventTypes(job))
		rows := b.parkedRows()
		require.Len(b, rows, 1)
		assert.WithinDuration(b, time.Now().Add(5*time.Second), rows[0].Ask, time.Minute)
		rows[0].Ask = time.Time{}
		assert.Equal(b, []jobs.ParkedRow{{Server: sourceServer, Database: sourceDatabase, JobID: job.ID, UpdateSeq: `"7-x"`}}, rows)

		assert.Zero(b, b.wake("other", sourceDatabase+"/x"))
		assert.Equal(b, 1, b.wake("other", sourceDatabase, sourceDatabase))
		assert.Zero(b, b.get(job.ID).Parked())
		assert.True(b, b.parkedRows()[0].Woken)
		assert.Zero(b, b.parkedRows()[0].Ask)
		assert.Zero(b, b.wake(sourceDatabase), "it is due")
		run := b.accept()
		assert.Empty(b, b.parkedRows())
		assert.Nil(b, run.Job().State.Parked)
		assert.Equal(b, fdbjobs.Running, b.get(job.ID).Status)
	})
}

// A commit whose result is unknown counts, also if it took so long that fewer jobs are woken at once then.
func TestWakesOfSlowCommitsCount(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		for i := range 3 {
			b.replicate(fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i))
			b.park()
		}
		b.db.on.Store(true)
		b.db.takes.Store(int64(3 * time.Second))
		require.Equal(t, 3, b.wake(sourceDatabase))
		b.db.takes.Store(0)
		require.Zero(t, b.wake(sourceDatabase))
	})
}

// A change between Parking and Park queues the job at once, and so does a Park without a row.
func TestWokenBeforeParked(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.db.on.Store(true)
		job := b.replicate(`"continuous": true`)
		for name, before := range map[string]func(*jobs.Run) error{
			"woken": func(r *jobs.Run) error {
				err := r.Parking(b.Context(), atSource())
				assert.Zero(b, b.wake(sourceDatabase), "it runs")
				return err
			},
			"without Parking": func(*jobs.Run) error { return nil },
			"taken back": func(r *jobs.Run) error {
				return errors.Join(r.Parking(b.Context(), atSource()), r.Parking(b.Context(), replicator.Parked{}))
			},
		} {
			run := b.accept()
			require.NoError(b, before(run), name)
			woken, err := run.Park(b.Context(), func(s *replicator.JobState) { s.Stats.DocsRead++ })
			require.NoError(b, err, name)
			assert.True(b, woken, name)
			assert.Zero(b, b.get(job.ID).Parked(), name)
			counts, err := b.store.Lists.Counts(b.Context())
			require.NoError(b, err)
			assert.Zero(b, counts.Jobs[replicator.ShownParked], name)
			assert.WithinDuration(b, time.Now(), counts.Due, time.Minute)
		}
		run := b.accept() // at once
		assert.EqualValues(b, 3, run.Job().State.Stats.DocsRead)
		require.NoError(b, run.Parking(b.Context(), atSource()))
		b.wake(sourceDatabase)
		require.NoError(b, run.Parking(b.Context(), atSource()), "once more, after it has copied the change")
		woken, err := run.Park(b.Context(), nil)
		require.NoError(b, err)
		assert.False(b, woken)
	})
}

// The row of a parked job goes with everything that ends its wait, and with the job.
func TestParkedRowGoes(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.create(repdb)
		later := time.Now().Add(time.Hour)
		for name, end := range map[string]func(*jobs.Run) error{
			"stop":    func(r *jobs.Run) error { return r.Stop(b.Context(), "", "", nil) },
			"crash":   func(r *jobs.Run) error { return r.Crash(b.Context(), later, 1, replicator.TextFault("", "x")) },
			"restart": func(r *jobs.Run) error { return r.Restart(b.Context(), "x") },
			"fail":    func(r *jobs.Run) error { return r.Fail(b.Context(), replicator.TextFault("", "x")) },
		} {
			for _, from := range []string{"parked", "about to park"} {
				rev := b.put(repdb, "x", "", `"continuous": true`)
				if from == "parked" {
					b.park()
					require.Len(b, b.parkedRows(), 1, name)
					require.Equal(b, 1, b.wake(sourceDatabase), name)
				}
				run := b.accept()
				assert.Empty(b, b.parkedRows(), name)
				if from != "parked" {
					require.NoError(b, run.Parking(b.Context(), atSource()), name)
				}
				require.NoError(b, end(run), name)
				assert.Empty(b, b.parkedRows(), "%s, %s", name, from)
				if name == "fail" {
					rev = b.document(repdb, "x")["_rev"].(string)
				}
				b.remove(repdb, "x", rev)
			}
		}
		for name, end := range map[string]func(rev string){
			"redefined": func(rev string) { b.remove(repdb, "x", b.put(repdb, "x", rev, `"continuous": true, "doc_ids": ["1"]`)) },
			"deleted":   func(rev string) { b.remove(repdb, "x", rev) },
			"run now": func(rev string) {
				before, err := b.store.Requests.RunNow(b.Context(), b.jobID(repdb, "x"))
				require.NoError(b, err)
				assert.NotZero(b, before.Parked())
				assert.Empty(b, b.parkedRows())
				assert.Zero(b, b.get(b.jobID(repdb, "x")).Parked())
				b.remove(repdb, "x", rev)
			},
		} {
			rev := b.put(repdb, "x", "", `"continuous": true`)
			b.park()
			require.Len(b, b.parkedRows(), 1)
			end(rev)
			assert.Empty(b, b.parkedRows(), name)
		}

		job := b.replicate(`"continuous": true`)
		b.park()
		b.replicate(`"continuous": true, "worker_batch_size": 7`)
		assert.Empty(b, b.parkedRows(), "a request with other options")
		assert.Zero(b, b.get(job.ID).Parked())
		b.park()
		b.cancel(job.ID)
		assert.Empty(b, b.parkedRows(), "cancelled")
	})
}

// The rows of a deleted database go with its jobs.
func TestParkedJobsOfDeletedDatabase(t *testing.T) {
	onLossyEngines(t, func(b *bundle) {
		for i := range 3 {
			b.put(repdb, fmt.Sprint(i), "", fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i))
			b.park()
		}
		require.NoError(b, b.database(repdb).Delete(b.Context()))
		require.Equal(b, 3, b.wake(sourceDatabase), "they do no harm until upkeep removes them")
		b.upkeep()
		assert.Empty(b, b.parkedRows())
		assert.Zero(b, b.stored())
	})
}

// A run that dies after Parking leaves its row to the next run.
func TestRowOfDeadRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := setup(t)
		job := b.replicate(`"continuous": true`)
		run := b.accept()
		require.NoError(t, run.Parking(t.Context(), atSource()))
		requeued := make(chan []string, 1)
		defer b.monitor(func(ids []string) { requeued <- ids })()
		assert.Equal(t, []string{job.ID}, <-requeued)
		assert.Zero(t, b.get(job.ID).Parked())
		assert.Len(t, b.parkedRows(), 1)
		b.accept()
		assert.Empty(t, b.parkedRows())
	})
}

// Parked jobs are pending in lists, and counted apart from the other pending jobs.
func TestParkedCounts(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.create(repdb)
		b.put(repdb, "x", "", `"continuous": true`)
		b.park()
		b.replicate(`"continuous": true, "doc_ids": ["y"]`)
		b.park()
		b.replicate(`"doc_ids": ["z"]`)
		counts, err := b.store.Lists.Counts(b.Context())
		require.NoError(b, err)
		assert.EqualValues(b, 2, counts.Jobs[replicator.ShownParked])
		assert.EqualValues(b, 1, counts.Jobs[replicator.ShownPending])
		shares, err := b.store.Shares.List(b.Context())
		require.NoError(b, err)
		require.Len(b, shares, 2)
		assert.EqualValues(b, 1, shares[0].Jobs[replicator.ShownParked])
		assert.EqualValues(b, 0, shares[0].Jobs[replicator.ShownPending])
		assert.EqualValues(b, 1, shares[1].Jobs[replicator.ShownParked])
		assert.EqualValues(b, 1, shares[1].Jobs[replicator.ShownPending])
		list, err := b.store.Lists.List(b.Context(), jobs.Filter{States: jobs.States{Shown: []replicator.ShownState{replicator.ShownPending, replicator.ShownParked}}}, jobs.ListOptions{Limit: 10})
		require.NoError(b, err)
		assert.EqualValues(b, 3, list.Total)
		parked := 0
		for _, job := range list.Jobs {
			if !job.Parked().IsZero() {
				parked++
			}
		}
		assert.Equal(b, 2, parked)
		assert.WithinDuration(b, time.Now(), counts.Due, time.Minute)
	})
}

// One call wakes any number of jobs and databases, in bounded transactions.
func TestWakeMany(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.db.on.Store(true)
		const ofOne, others = 130, 120
		var databases []string
		var adding, parking errgroup.Group // side by side, because each makes commits of its own
		adding.SetLimit(20)
		parking.SetLimit(20)
		for i := range ofOne + others {
			definition := b.definition(fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i))
			adding.Go(func() error {
				_, err := b.store.Requests.Replicate(b.Context(), definition, nil)
				return err
			})
		}
		require.NoError(b, adding.Wait())
		for done := 0; done < ofOne+others; {
			runs, err := b.store.Runs.Accept(b.Context(), 50, nil)
			require.NoError(b, err)
			for _, run := range runs {
				at := atSource()
				if done++; done > ofOne {
					at.Database = fmt.Sprint("db", done)
					databases = append(databases, at.Database)
				}
				parking.Go(func() error {
					if err := run.Parking(b.Context(), at); err != nil {
						return err
					}
					woken, err := run.Park(b.Context(), nil)
					assert.False(b, woken)
					return err
				})
			}
		}
		require.NoError(b, parking.Wait())
		assert.Equal(b, 20, b.wake(databases[:20]...))
		assert.Equal(b, ofOne+others-20, b.wake(append(databases, sourceDatabase, "none")...))
		counts, err := b.store.Lists.Counts(b.Context())
		require.NoError(b, err)
		assert.Zero(b, counts.Jobs[replicator.ShownParked])
		var all []jobs.ParkedRow
		for {
			var after jobs.ParkedRow
			if len(all) > 0 {
				after = all[len(all)-1]
			}
			page, err := b.store.Watches.ParkedOf(b.Context(), sourceServer, after, 40)
			require.NoError(b, err)
			if all = append(all, page...); len(page) < 40 {
				break
			}
		}
		assert.Len(b, all, ofOne+others)
		for _, row := range all {
			assert.True(b, row.Woken)
		}
	})
}

// Questions are due in order. A row that is woken or not to be asked has none.
func TestAsks(t *testing.T) {
	onEngines(t, func(b *bundle) {
		b.db.on.Store(true)
		ctx, now := b.Context(), time.Unix(1_000_000, 0)
		var ids []string
		for i := range 4 {
			b.replicate(fmt.Sprintf(`"continuous": true, "doc_ids": ["%d"]`, i))
			ids = append(ids, b.park().ID)
		}
		when := map[string]time.Time{ids[0]: now.Add(3 * time.Second), ids[1]: now.Add(time.Second), ids[2]: {}, ids[3]: now.Add(time.Minute)}
		require.NoError(b, b.store.Watches.Ask(ctx, b.parkedRows(), func(r jobs.ParkedRow) time.Time { return when[r.JobID] }))
		asks := func(by time.Time, limit int) (due []string, next time.Time) {
			rows, next, err := b.store.Watches.Asks(ctx, sourceServer, by, limit)
			require.NoError(b, err)
			for _, row := range rows {
				assert.Equal(b, when[row.JobID], row.Ask)
				assert.Equal(b, `"7-x"`, row.UpdateSeq)
				due = append(due, row.JobID)
			}
			return due, next
		}
		for _, c := range []struct {
			by    time.Time
			limit int
			due   []string
			next  time.Time
		}{
			{now, 10, nil, when[ids[1]]},
			{when[ids[1]], 10, []string{ids[1]}, when[ids[0]]},
			{now.Add(time.Hour), 1, []string{ids[1]}, when[ids[0]]},
			{now.Add(time.Hour), 3, []string{ids[1], ids[0], ids[3]}, time.Time{}},
			{now.Add(-time.Hour), 2, []string{ids[1], ids[0]}, when[ids[1]]}, // the clock was put back
		} {
			due, next := asks(c.by, c.limit)
			assert.Equal(b, c.due, due)
			assert.Equal(b, c.next, next)
		}
		after := func(after jobs.ParkedRow, by time.Time, limit int) (due []string) {
			rows, err := b.store.Watches.AskedAfter(ctx, sourceServer, after, by, limit)
			require.NoError(b, err)
			for _, row := range rows {
				assert.Equal(b, when[row.JobID], row.Ask)
				due = append(due, row.JobID)
			}
			return due
		}
		assert.Equal(b, []string{ids[1], ids[0]}, after(jobs.ParkedRow{Ask: now}, when[ids[0]], 10))
		assert.Equal(b, []string{ids[1]}, after(jobs.ParkedRow{Ask: now}, when[ids[0]], 1))
		assert.Equal(b, []string{ids[0], ids[3]}, after(jobs.ParkedRow{Ask: when[ids[1]], JobID: ids[1]}, now.Add(time.Hour), 10))
		before := b.parkedRows()
		b.cancel(ids[0])
		require.Equal(b, 3, b.wake(sourceDatabase))
		require.NoError(b, b.store.Watches.Ask(ctx, before, func(jobs.ParkedRow) time.Time { return now }))
		due, next := asks(now.Add(time.Hour), 10)
		assert.Empty(b, due)
		assert.Zero(b, next)
	})
}

// A server is watched while it has rows, and its watch hears of new ones.
func TestUnwatch(t *testing.T) {
	onEngines(t, func(b *bundle) {
		ctx := b.Context()
		unwatch := func() (ended bool) {
			require.NoError(b, b.db.Transact(ctx, func(tx kv.Transaction) (err error) {
				ended, err = b.store.Watches.Unwatch(tx, sourceServer)
				return err
			}))
			return ended
		}
		watch := func() *fdbjobs.Held {
			held, err := b.store.Watches.Queue.Accept(ctx, fdbjobs.AcceptOptions{Wait: -1})
			require.NoError(b, err)
			if len(held) == 0 {
				return nil
			}
			assert.Equal(b, sourceServer, held[0].Job().ID)
			return held[0]
		}
		assert.Nil(b, watch())
		first := b.replicate(`"continuous": true`)
		b.park()
		held := watch()
		require.NotNil(b, held)
		assert.False(b, unwatch())

		parks, err := b.store.Watches.AwaitParked(ctx, sourceServer)
		require.NoError(b, err)
		second := b.replicate(`"continuous": true, "doc_ids": ["2"]`)
		b.park()
		require.NoError(b, parks.Wait(ctx))
		assert.Nil(b, watch(), "there is one")

		b.cancel(first.ID)
		assert.False(b, unwatch())
		b.cancel(second.ID)
		assert.True(b, unwatch())
		assert.True(b, unwatch(), "again, as after an unknown result")
		held.Expires = time.Now()
		require.NoError(b, held.Finish(ctx, nil, nil))
		b.replicate(`"continuous": true`)
		b.park()
		assert.NotNil(b, watch(), "another one")
	})
}

// A source whose names do not fit into keys cannot be waited for. The job stays as it is.
func TestCannotPark(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.replicate(`"continuous": true`)
	run := b.accept()
	for name, change := range map[string]func(*replicator.Parked){
		"URL of the server":    func(at *replicator.Parked) { at.Server = strings.Repeat("x", 2_001) },
		"name of the database": func(at *replicator.Parked) { at.Database = strings.Repeat("x", 1_001) },
		"update_seq":           func(at *replicator.Parked) { at.UpdateSeq = strings.Repeat("x", 20_001) },
		"no server":            func(at *replicator.Parked) { at.Server = "" },
		"no database":          func(at *replicator.Parked) { at.Database = "" },
	} {
		at := atSource()
		change(&at)
		err := run.Parking(b.Context(), at)
		require.ErrorIs(t, err, jobs.ErrCannotPark, name)
		require.ErrorContains(t, err, name)
	}
	longest := replicator.Parked{
		Server: strings.Repeat("x", 2_000), Database: strings.Repeat("\x00", 1_000), UpdateSeq: strings.Repeat("x", 20_000),
	}
	require.NoError(t, run.Parking(b.Context(), longest))
	_, err := run.Park(b.Context(), nil)
	require.NoError(t, err)
}

// A write whose result the run does not know may have left a row, also if the job's database is deleted then.
func TestUnsureRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(repdb)
	b.put(repdb, "x", "", `"continuous": true`)
	run := b.accept()
	b.db.mute.Store(true)
	require.ErrorIs(t, run.Parking(b.Context(), atSource()), kv.ErrCommitUnknown)
	b.db.mute.Store(false)
	require.Len(t, b.parkedRows(), 1)
	require.NoError(t, b.database(repdb).Delete(b.Context()))
	require.ErrorIs(t, run.Update(b.Context(), nothing), fdbjobs.ErrHalt)
	require.ErrorIs(t, run.Stop(b.Context(), "", "", nil), fdbjobs.ErrHalt)
	assert.Empty(t, b.parkedRows())
}

// Parking, waking and the end of a watch conflict with each other: the later commit has seen the earlier one.
func TestParkingConflicts(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		control := enginetest.Control(db)
		b := setupOn(t, control)
		ctx := t.Context()
		unwatch := func() (ended bool) {
			assert.NoError(t, b.db.Transact(ctx, func(tx kv.Transaction) (err error) {
				ended, err = b.store.Watches.Unwatch(tx, sourceServer)
				return err
			}))
			return ended
		}
		watched := func() bool { return len(b.rows("watched")) > 0 }
		b.replicate(`"continuous": true`)
		run := b.accept()
		require.NoError(t, run.Parking(ctx, atSource()))
		require.NoError(t, run.Parking(ctx, replicator.Parked{}))
		require.True(t, watched())

		control.BeforeCommit(func() { assert.NoError(t, run.Parking(ctx, atSource())) })
		assert.False(t, unwatch(), "a job parks meanwhile")
		assert.True(t, watched())

		require.NoError(t, run.Parking(ctx, replicator.Parked{}))
		control.BeforeCommit(func() { assert.True(t, unwatch()) })
		require.NoError(t, run.Parking(ctx, atSource()), "the watch ends meanwhile")
		assert.True(t, watched())

		control.BeforeCommit(func() { assert.Zero(t, b.wake(sourceDatabase)) })
		woken, err := run.Park(ctx, nil)
		require.NoError(t, err)
		assert.True(t, woken, "its source changes meanwhile")

		run = b.accept()
		require.NoError(t, run.Parking(ctx, atSource()))
		control.BeforeCommit(func() {
			woken, err := run.Park(ctx, nil)
			if assert.NoError(t, err) {
				assert.False(t, woken)
			}
		})
		assert.Equal(t, 1, b.wake(sourceDatabase), "it parks meanwhile")

		run, err = accept(ctx, b.store)
		require.NoError(t, err)
		require.NoError(t, run.Stop(ctx, "", "", nil)) // without a start
		run, err = accept(ctx, b.store)
		require.NoError(t, err)
		require.NoError(t, run.Parking(ctx, atSource()))
		rows := b.parkedRows()
		control.BeforeCommit(func() {
			assert.NoError(t, b.store.Watches.Ask(ctx, rows, func(jobs.ParkedRow) time.Time { return time.Now().Add(time.Hour) }))
		})
		require.NoError(t, run.Start(ctx, "node", "pid"), "its question is put off meanwhile")
		assert.Empty(t, b.rows("asks"))
	})
}
