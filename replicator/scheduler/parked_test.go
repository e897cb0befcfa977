package scheduler_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/jobs"
)

// live adds a continuous replication with a source server of its own.
func (l *lab) live(n int) string {
	return l.put(repdb, fmt.Sprint(n), fmt.Sprintf(`,"continuous":true,"source":"http://a%d.example/db","target":"http://b%d.example/db"`, n, n))
}

func (l *lab) wake(n int) {
	l.Helper()
	woken, err := l.jobs.Watches.Wake(context.Background(), fmt.Sprintf("http://a%d.example/", n), []string{"db"})
	require.NoError(l, err)
	require.Equal(l, 1, woken)
}

func parked(job *jobs.Job) bool { return !job.Parked().IsZero() }

// Idle runs park at once when due jobs wait, and a parked job runs at once when its source has changed.
func TestParkedJobs(t *testing.T) {
	inLab(t, jobs.Options{}, []string{"replicator/max_jobs=2", "replicator/interval_sec=3600"}, func(l *lab) {
		began := time.Now()
		var ids []string
		for n := range 10 {
			ids = append(ids, l.live(n))
		}
		idle := func() (parkedJobs, running []int) {
			for n, id := range ids {
				switch job := l.get(id); {
				case parked(job):
					parkedJobs = append(parkedJobs, n)
				case job.Condition() == replicator.StateRunning:
					running = append(running, n)
				}
			}
			return parkedJobs, running
		}
		var waiting, running []int
		l.until(ids[0], func(*jobs.Job) bool {
			waiting, running = idle()
			return len(waiting) == 8 && len(running) == 2
		})
		assert.Less(l, time.Since(began), 10*time.Second)
		for _, n := range waiting {
			job := l.get(ids[n])
			assert.Equal(l, fdbjobs.Pending, job.Status)
			assert.Equal(l, replicator.StatePending, job.Condition())
			assert.Empty(l, job.State.Error)
			assert.Greater(l, time.Until(l.scheduled(ids[n])), 12*time.Hour)
		}

		for _, n := range waiting {
			l.wake(n)
			l.until(ids[n], func(j *jobs.Job) bool { return j.Condition() == replicator.StateRunning && !parked(j) })
		}
		l.until(ids[0], func(*jobs.Job) bool {
			waiting, running = idle()
			return len(waiting) == 8 && len(running) == 2
		})
		assert.Less(l, time.Since(began), time.Minute)
	})
}

// A job that parks has no errors left, however short its run was. One that crashes is never parked.
func TestParkedJobsHaveNoErrors(t *testing.T) {
	inLab(t, jobs.Options{}, []string{"replicator/idle_timeout_sec=10"}, func(l *lab) {
		l.peers.on("GET a0.example/db", missing)
		id := l.live(0)
		l.crashes(id, 2)
		l.peers.on("GET a0.example/db", nil)
		job := l.until(id, parked)
		assert.Zero(l, job.State.ErrorCount)
		assert.Zero(l, job.State.CrashingSince)

		l.peers.on("GET b0.example/db", missing)
		l.wake(0)
		assert.Equal(l, "db_not_found", l.crashes(id, 1).State.ErrorCode)
		l.peers.on("GET b0.example/db", nil)
		l.until(id, parked)
	})
}

// A run whose look fails goes on, and is asked again later.
func TestLooksThatFail(t *testing.T) {
	inLab(t, jobs.Options{}, []string{"replicator/idle_timeout_sec=60"}, func(l *lab) {
		id := l.live(0)
		l.until(id, func(job *jobs.Job) bool { // it has opened its databases
			return job.State.Activity != nil && job.State.Activity.Doing == replicator.DoingWaiting
		})
		refused := 0
		l.peers.on("GET a0.example/db", func(*http.Request) (int, string) {
			refused++
			return 403, `{"error":"forbidden","reason":"not now"}`
		})
		began := time.Now()
		l.until(id, func(*jobs.Job) bool { return time.Since(began) > 10*time.Minute })
		assert.Equal(l, replicator.StateRunning, l.get(id).Condition())
		assert.Greater(l, refused, 1)
		assert.Less(l, refused, 12)
		l.peers.on("GET a0.example/db", nil)
		l.until(id, parked)
	})
}

// With real databases: more jobs than slots, and each change arrives, also that of a job that is parked.
func TestMoreLiveJobsThanSlots(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		const count = 6
		n := newCluster(t).start("a", "replicator/max_jobs=2", "replicator/interval_sec=3600")
		var ids, sources, targets []string
		for i := range count {
			sources, targets = append(sources, peer.DB(t, fmt.Sprint("parksource", i))), append(targets, peer.DB(t, fmt.Sprint("parktarget", i)))
			put(t, sources[i]+"/first", `{"n":1}`)
			ids = append(ids, n.replicate(`{"source":%q,"target":%q,"continuous":true}`, sources[i], targets[i]).ID)
		}
		waiting := func() (count int) {
			for _, id := range ids {
				if job, err := n.jobs.Lists.Get(t.Context(), id); err == nil && parked(job) {
					count++
				}
			}
			return count
		}
		require.Eventually(t, func() bool { return waiting() == count-2 }, limit, 10*time.Millisecond)
		for i := range count {
			require.Eventually(t, func() bool { return exists(targets[i] + "/first") }, limit, 10*time.Millisecond, i) // two still run
		}
		for i := range count {
			put(t, sources[i]+"/second", `{"n":2}`)
			// Without a watch, the test tells what changes.
			job, err := n.jobs.Lists.Get(t.Context(), ids[i])
			require.NoError(t, err)
			server, database, ok := job.Args.Replication.Source.Server()
			require.True(t, ok)
			require.Eventually(t, func() bool {
				_, err := n.jobs.Watches.Wake(t.Context(), server, []string{database})
				return err == nil && exists(targets[i]+"/second")
			}, limit, 10*time.Millisecond)
		}
		require.Eventually(t, func() bool { return waiting() == count-2 }, limit, 10*time.Millisecond)
		assert.Zero(t, n.server.Counts().Crashes)
		assert.Zero(t, n.server.Counts().Stops)
	})
}
