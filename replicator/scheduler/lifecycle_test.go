package scheduler_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/replicator"
	"settee/replicator/jobs"
)

func missing(*http.Request) (int, string) {
	return 404, `{"error":"not_found","reason":"Database does not exist."}`
}

// A job that crashes repeatedly waits as the rule says, with the settings of its node, until a run ends well.
func TestCrashesInARow(t *testing.T) {
	inLab(t, jobs.Options{UpdateDocs: true, MaxHistory: 5}, []string{"replicator/max_backoff_penalty_sec=300"}, func(l *lab) {
		l.peers.on("GET a.example/db", missing)
		id := l.put(repdb, "d", "")
		for count := 1; count <= 6; count++ {
			job := l.crashes(id, count)
			l.waitsForRetry(job, crashed)
			assert.Equal(l, "db_not_found: could not open http://a.example/db/", job.State.Error)
			state, reason := l.says(repdb, "d")
			assert.Equal(l, "error", state)
			assert.Equal(l, job.State.Error, reason)
			assert.LessOrEqual(l, len(job.State.History), 5)
			assert.Equal(l, replicator.EventCrashed, job.State.History[0].Type)
			assert.Equal(l, job.State.Error, job.State.History[0].Reason)
			assert.Equal(l, replicator.EventStarted, job.State.History[1].Type)
		}
		l.peers.on("GET a.example/db", nil)
		done := l.in(id, replicator.StateCompleted)
		assert.Zero(l, done.State.ErrorCount)
		state, reason := l.says(repdb, "d")
		assert.Equal(l, []any{"completed", nil}, []any{state, reason})
	})
}

// A continuous job that was posted waits and runs again like that of a document. One that a client waits for fails.
func TestPostedJobsThatCrash(t *testing.T) {
	inLab(t, jobs.Options{}, nil, func(l *lab) {
		l.peers.on("GET a.example/db", missing)
		job, err := l.post("me", `, "continuous": true`)
		require.NoError(l, err)
		for count := 1; count <= 3; count++ {
			job := l.crashes(job.ID, count)
			assert.Equal(l, "db_not_found: could not open http://a.example/db/", job.State.Error)
			l.waitsForRetry(job, crashed)
		}
		once, err := l.post("me", "")
		require.NoError(l, err)
		ended, err := l.jobs.Requests.Await(context.Background(), once.ID, once.Args.Life)
		require.NoError(l, err)
		assert.Equal(l, replicator.StateFailed, ended.Condition())

		l.peers.on("GET a.example/db", nil)
		l.in(job.ID, replicator.StateRunning)
		_, err = l.jobs.Requests.Cancel(context.Background(), job.ID, nil)
		require.NoError(l, err)
		_, err = l.jobs.Lists.Get(context.Background(), job.ID)
		require.ErrorIs(l, err, jobs.ErrNotFound)
	})
}

// If an endpoint refuses everything with 429, the job's run ends and the job waits, even if there was no Retry-After
// and even if the job is transient. Other jobs of the node leave the endpoint alone meanwhile.
func TestEndpointsThatRefuseEverythingAreLeftAlone(t *testing.T) {
	inLab(t, jobs.Options{}, nil, func(l *lab) {
		var asked atomic.Int32
		l.peers.on("GET a.example/db", func(*http.Request) (int, string) {
			asked.Add(1)
			return 429, `{"error":"too_many_requests","reason":"later"}`
		})
		job, err := l.post("me", "")
		require.NoError(l, err)
		crashed := l.crashes(job.ID, 1)
		assert.Contains(l, crashed.State.Error, "max_backoff: source: GET http://a.example/db: 429 too_many_requests: later: backed off: ")
		assert.GreaterOrEqual(l, l.scheduled(job.ID).Sub(crashed.State.LastUpdated), 24*time.Second)
		assert.LessOrEqual(l, l.scheduled(job.ID).Sub(crashed.State.LastUpdated), 26*time.Second)
		l.crashes(job.ID, 2)
		assert.Greater(l, asked.Load(), int32(10))
		assert.Less(l, asked.Load(), int32(150))
		l.peers.on("GET a.example/db", nil)
		l.in(job.ID, replicator.StateCompleted)
	})
}

// Two jobs of a node share the rate limit that one of them has met.
func TestJobsOfANodeShareWhatTheyKnowOfEndpoints(t *testing.T) {
	inLab(t, jobs.Options{}, nil, func(l *lab) {
		var asked atomic.Int32
		l.peers.on("GET a.example/db", func(*http.Request) (int, string) {
			if asked.Add(1) > 25 {
				return 0, ""
			}
			return 429, `{"error":"too_many_requests","reason":"later"}`
		})
		var logins atomic.Int32
		l.peers.on("POST a.example/_session", func(*http.Request) (int, string) {
			logins.Add(1)
			return 200, `{"ok":true}`
		})
		var ids []string
		for i := range 5 {
			ids = append(ids, l.put(repdb, fmt.Sprint(i),
				`,"source":"http://me:s3cret@a.example/db","use_checkpoints":false,"doc_ids":["`+fmt.Sprint(i)+`"]`))
		}
		for _, id := range ids {
			l.in(id, replicator.StateCompleted)
		}
		assert.EqualValues(l, 1, logins.Load())
		assert.EqualValues(l, 25+len(ids), asked.Load())
	})
}

// Only a run that is well for longer than health_threshold resets the count of crashes. Waiting for an answer does not,
// even if the run was stopped or its node is dropped later.
func TestHealth(t *testing.T) {
	const threshold = 120 * time.Second
	inLab(t, jobs.Options{}, []string{"replicator/connection_timeout=600000", "replicator/max_backoff_penalty_sec=300"}, func(l *lab) {
		var lasts atomic.Int64
		l.peers.on("GET a.example/db", func(r *http.Request) (int, string) {
			pause(r, time.Duration(lasts.Load()))
			return missing(r)
		})
		lasts.Store(int64(time.Second))
		id := l.put(repdb, "d", `, "continuous": true`)
		for i, run := range []struct {
			lasts time.Duration
			count int // after the run
		}{
			{time.Second, 1}, {time.Second, 2}, {threshold - time.Second, 3}, {threshold + time.Second, 4}, {time.Second, 5}, {time.Second, 6},
		} {
			lasts.Store(int64(run.lasts))
			events := 2 * (i + 1)
			job := l.until(id, func(j *jobs.Job) bool {
				return j.Condition() == replicator.StateCrashing && len(j.State.History) == min(events+1, 10) && j.State.ErrorCount == run.count
			})
			assert.Equal(l, run.count, job.State.ErrorCount, i)
		}

		// A job that is rotated out or shut down after a short run keeps its errors.
		l.peers.on("GET a.example/db", nil)
		job := l.in(id, replicator.StateRunning)
		assert.Equal(l, 6, job.State.ErrorCount)
		l.end()
		// The node may have been taking the job when it stopped. The job layer queues it again.
		job = l.until(id, func(j *jobs.Job) bool { return j.Condition() == replicator.StatePending })
		assert.Equal(l, 6, job.State.ErrorCount)
		assert.Empty(l, job.State.Error)
		assert.Equal(l, replicator.EventStopped, job.State.History[0].Type)

		// A healthy job has no errors as soon as it is healthy.
		l.start()
		job = l.in(id, replicator.StateRunning)
		assert.Equal(l, 6, job.State.ErrorCount)
		began := time.Now()
		l.until(id, func(j *jobs.Job) bool { return j.State.ErrorCount == 0 })
		assert.GreaterOrEqual(l, time.Since(began), threshold-time.Second)
		assert.LessOrEqual(l, time.Since(began), threshold+21*time.Second, "a run without changes reports every 20 s")
		assert.Equal(l, replicator.StateRunning, l.get(id).Condition())
		l.end()
		assert.Zero(l, l.get(id).State.ErrorCount)
		l.start()
	})
}

// If turns are shorter than the repetitions of a request, a job whose source does not answer still crashes, backs off,
// and gives the reason.
func TestTurnsOfJobsThatDoNotGetOn(t *testing.T) {
	inLab(t, jobs.Options{}, []string{"replicator/retries_per_request=5", "replicator/max_jobs=1"}, func(l *lab) {
		l.peers.on("GET a.example/db", func(r *http.Request) (int, string) {
			pause(r, time.Hour)
			return missing(r)
		})
		for _, id := range []string{l.put(repdb, "one", `, "continuous": true`), l.put(repdb, "two", `, "continuous": true, "doc_ids": ["x"]`)} {
			job := l.until(id, func(j *jobs.Job) bool {
				return j.Condition() == replicator.StateCrashing && j.State.ErrorCount >= 2 // more if the other one was first
			})
			assert.Contains(l, job.State.Error, "http_request_failed: source: GET http://a.example/db: ")
			assert.Equal(l, replicator.FaultConnectTimeout, job.State.Fault.Code, "the lab has no connections")
			assert.Equal(l, replicator.SideSource, job.State.Fault.Side)
			assert.Equal(l, replicator.EventCrashed, job.State.History[0].Type)
			l.waitsForRetry(job, crashed)
		}
		l.peers.on("GET a.example/db", nil)
	})
}

// A server that takes requests and never answers is found within 15 minutes, although runs crash and begin anew: the mark, the list
// and the metric have the same time from the first run on, until a run goes on.
func TestServersThatNeverAnswerAreFound(t *testing.T) {
	inLab(t, jobs.Options{}, []string{"replicator/retries_per_request=5", "replicator/connection_timeout=10000"}, func(l *lab) {
		l.peers.on("POST b.example/db/_revs_diff", func(r *http.Request) (int, string) {
			pause(r, time.Hour)
			return missing(r)
		})
		l.peers.on("GET a.example/db/_changes", func(r *http.Request) (int, string) {
			return 200, `{"results":[{"seq":"1","id":"x","changes":[{"rev":"1-a"}]}],"last_seq":"1","pending":0}`
		})
		began := time.Now()
		id := l.put(repdb, "one", "")
		stuck := func() time.Time {
			job := l.get(id)
			waits, err := l.jobs.Lists.Waits(t.Context(), time.Now())
			require.NoError(l, err)
			list, err := l.jobs.Lists.List(t.Context(), jobs.Filter{}, jobs.ListOptions{Limit: 1, Order: jobs.ByStuck})
			require.NoError(l, err)
			c := replicator.Explain(job.Facts(time.Now(), nil))
			at := slices.IndexFunc(c.Marks, func(m replicator.Mark) bool { return m.Type == replicator.MarkStuck })
			if job.State.StuckSince.IsZero() {
				require.Equal(l, []any{0, 0, -1}, []any{waits.StuckJobs, len(list.Jobs), at})
				return time.Time{}
			}
			require.Equal(l, []any{1, 1}, []any{waits.StuckJobs, len(list.Jobs)})
			require.Equal(l, []time.Time{job.State.StuckSince, job.State.StuckSince}, []time.Time{waits.Stuck.UTC(), c.Marks[at].Since})
			return job.State.StuckSince
		}
		since := l.until(id, func(*jobs.Job) bool { return !stuck().IsZero() }).State.StuckSince
		assert.WithinDuration(l, began, since, 5*time.Second)
		assert.WithinDuration(l, began.Add(2*time.Minute), time.Now(), 15*time.Second)
		crashes := 0
		for time.Since(began) < 13*time.Minute {
			time.Sleep(10 * time.Second)
			assert.WithinDuration(l, since, stuck(), 10*time.Second, "and a few seconds for slots")
			crashes = max(crashes, l.get(id).State.ErrorCount)
		}
		assert.GreaterOrEqual(l, crashes, 2)
		assert.Greater(l, time.Since(stuck()), 12*time.Minute, "the alert needs 10, and 2 more")

		l.peers.on("POST b.example/db/_revs_diff", func(r *http.Request) (int, string) { return 200, "{}" })
		job := l.until(id, func(*jobs.Job) bool { return stuck().IsZero() })
		assert.Nil(l, job.State.Fault)
	})
}

// A run that is stopped because its database is paused has not failed, whatever its endpoints do.
func TestPauseIsNoFailure(t *testing.T) {
	inLab(t, jobs.Options{}, []string{"replicator/retries_per_request=5"}, func(l *lab) {
		l.peers.on("GET a.example/db", func(r *http.Request) (int, string) {
			pause(r, time.Hour)
			return missing(r)
		})
		id := l.put(repdb, "one", `, "continuous": true`)
		l.until(id, func(j *jobs.Job) bool {
			a := j.State.Activity
			return a != nil && len(a.Waiting) > 0 && time.Since(a.Waiting[0].Since) > time.Minute
		})
		l.set("replicator.shares/_replicator=0")
		job := l.in(id, replicator.StatePending)
		assert.Zero(l, job.State.ErrorCount)
		assert.Equal(l, replicator.EndPaused, job.State.History[0].Code)
		assert.Equal(l, replicator.EventStopped, job.State.History[0].Type)
		l.peers.on("GET a.example/db", nil)
	})
}

// A filter whose code cannot be read is an ordinary error: a document's job waits, and a transient job fails, unless
// the source asked for a pause.
func TestFilterThatCannotBeRead(t *testing.T) {
	inLab(t, jobs.Options{UpdateDocs: true}, nil, func(l *lab) {
		id := l.put(repdb, "d", `, "filter": "f/t"`)
		for _, members := range []string{`, "filter": "f/t"`, `, "filter": "f/t", "continuous": true`} {
			posted, err := l.post("joe", members)
			require.NoError(l, err)
			failed, err := l.jobs.Requests.Await(context.Background(), posted.ID, posted.Args.Life)
			require.NoError(l, err)
			assert.Equal(l, replicator.StateFailed, failed.Condition())
			code, reason := failed.State.ErrorBody()
			assert.Equal(l, "filter_fetch_error", code)
			assert.Equal(l, "Couldn't open document `_design/f` from source database `http://a.example/db/`: not_found", reason)
		}
		for count := 1; count <= 3; count++ {
			job := l.crashes(id, count)
			assert.Equal(l, "filter_fetch_error", job.State.ErrorCode)
			assert.Empty(l, job.ReplicationID())
			l.waitsForRetry(job, crashed)
		}
		state, reason := l.says(repdb, "d")
		assert.Equal(l, "error", state)
		assert.Contains(l, reason, "filter_fetch_error: Couldn't open document `_design/f`")

		l.peers.on("GET a.example/db/_design/f", func(*http.Request) (int, string) {
			return 429, `{"error":"too_many_requests","reason":"later"}`
		})
		other, err := l.post("joe", `, "filter": "f/u"`)
		require.NoError(l, err)
		assert.Equal(l, "filter_fetch_error", l.crashes(other.ID, 1).State.ErrorCode)
		// Without the function it fails.
		l.peers.on("GET a.example/db/_design/f", func(*http.Request) (int, string) {
			return 200, `{"_id":"_design/f","_rev":"1-a","filters":{"t":"function() { return true; }"}}`
		})
		failed, err := l.jobs.Requests.Await(context.Background(), other.ID, other.Args.Life)
		require.NoError(l, err)
		code, why := failed.State.ErrorBody()
		assert.Equal(l, "filter_fetch_error", code)
		assert.Contains(l, why, "no filter function `u`")
		assert.NotEmpty(l, l.in(id, replicator.StateCompleted).ReplicationID())
	})
}

// A job that the current settings forbid fails when it is accepted, and its document says so.
func TestInvalidUnderTodaysSettings(t *testing.T) {
	inLab(t, jobs.Options{}, []string{"replicator/valid_endpoint_protocols=https"}, func(l *lab) {
		id := l.put(repdb, "d", `, "continuous": true`)
		job := l.in(id, replicator.StateFailed)
		assert.Equal(l, fdbjobs.Finished, job.Status)
		state, reason := l.says(repdb, "d")
		assert.Equal(l, "failed", state)
		assert.Contains(l, reason, "source")
		assert.Equal(l, job.State.Error, reason)

		// It starts again after the settings were corrected.
		l.end()
		l.start("replicator/valid_endpoint_protocols=http")
		l.put(repdb, "d", "")
		l.in(id, replicator.StateCompleted)
	})
}

// RFC 016, "Replication ID Collisions": the state of the second job.
func TestCollisions(t *testing.T) {
	inLab(t, jobs.Options{UpdateDocs: true}, nil, func(l *lab) {
		l.peers.on("GET a.example/db/_design/f", func(*http.Request) (int, string) {
			return 200, `{"_id":"_design/f","_rev":"1-a","filters":{"t":"function() { return true; }","u":"function() { return true; }"}}`
		})
		const live = `, "continuous": true`
		w1 := l.put(repdb, "w1", live)
		opened := func(j *jobs.Job) bool { return j.State.Opened } // against other users, a job holds its id only then
		name := l.until(w1, opened).ReplicationID()
		failed := func(database, id, want string) {
			l.Helper()
			job := l.in(l.put(database, id, live), replicator.StateFailed)
			state, reason := l.says(database, id)
			assert.Equal(l, "failed", state)
			assert.Equal(l, "Replication `"+name+"` specified by document `"+id+"` "+want, reason)
			assert.Equal(l, reason, job.State.Error)
		}
		failed(repdb, "w4", "already started, triggered by document `w1` from db `_replicator`")
		failed("other/_replicator", "w4", "already started, triggered by a document from another db")
		_, err := l.post("joe", live)
		var collision *jobs.Collision
		require.ErrorAs(l, err, &collision)

		// A removed job does not collide.
		l.remove(repdb, "w1")
		assert.Equal(l, name, l.in(l.put(repdb, "w4", live), replicator.StateRunning).ReplicationID())
		l.remove(repdb, "w4")

		// A transient job does not block for ever.
		theirs, err := l.post("joe", live)
		require.NoError(l, err)
		l.until(theirs.ID, opened)
		id := l.put("other/_replicator", "w5", live)
		for count := 1; count <= 2; count++ {
			// It may go at any time, so the wait does not depend on the count.
			l.waitsForRetry(l.crashes(id, count), replicator.Ending{Outcome: replicator.RunCrashed, Rival: replicator.PostedRival})
			state, reason := l.says("other/_replicator", "w5")
			assert.Equal(l, "error", state)
			assert.Equal(l, "Replication `"+name+"` specified by document `w5` already running as transient replication, "+
				"started via `_replicate` API endpoint", reason)
		}
		_, err = l.jobs.Requests.Cancel(context.Background(), theirs.ID, nil)
		require.NoError(l, err)
		l.until(id, func(j *jobs.Job) bool {
			state, reason := l.says("other/_replicator", "w5")
			return j.Condition() == replicator.StateRunning && state == "triggered" && reason == nil
		})

		// A transient job that computes its id in its run fails in the run.
		first, err := l.post("joe", live+`, "filter": "f/t"`)
		require.NoError(l, err)
		named := l.until(first.ID, opened).ReplicationID()
		second, err := l.post("ann", live+`, "filter": "f/u"`)
		require.NoError(l, err)
		ended, err := l.jobs.Requests.Await(context.Background(), second.ID, second.Args.Life)
		require.NoError(l, err)
		assert.Equal(l, replicator.StateFailed, ended.Condition())
		code, why := ended.State.ErrorBody()
		assert.Equal(l, jobs.CollisionCode, code)
		assert.Equal(l, "the replication "+named+" exists already", why)
	})
}

// A crashing job keeps its replication id, and the second job reports the collision even if its databases cannot be
// opened.
func TestCollisionOfJobsThatCannotOpenTheirDatabases(t *testing.T) {
	inLab(t, jobs.Options{}, nil, func(l *lab) {
		l.peers.on("GET a.example/db", missing)
		first := l.put(repdb, "first", "")
		name := l.crashes(first, 1).ReplicationID()
		second := l.put(repdb, "second", "")
		failed := l.in(second, replicator.StateFailed)
		assert.Equal(l, fdbjobs.Finished, failed.Status)
		state, reason := l.says(repdb, "second")
		assert.Equal(l, "failed", state)
		assert.Equal(l, "Replication `"+name+"` specified by document `second` already started, triggered by document `first` from db `_replicator`",
			reason)
		assert.Equal(l, replicator.StateCrashing, l.get(first).Condition())

		// After the first job is removed, the second one runs.
		l.remove(repdb, "first")
		third := l.put(repdb, "third", "")
		assert.Equal(l, name, l.crashes(third, 1).ReplicationID())

		// A filter's code determines the id as well, even if the target does not answer.
		l.peers.on("GET a.example/db", nil)
		l.peers.on("GET b.example/db", missing)
		l.peers.on("GET a.example/db/_design/f", func(*http.Request) (int, string) {
			return 200, `{"_id":"_design/f","_rev":"1-a","filters":{"t":"function() { return true; }","u":"function() { return true; }"}}`
		})
		first = l.put(repdb, "filtered", `, "filter": "f/t"`)
		name = l.crashes(first, 1).ReplicationID()
		assert.NotEmpty(l, name)
		failed = l.in(l.put(repdb, "same", `, "filter": "f/u"`), replicator.StateFailed)
		assert.Equal(l, "Replication `"+name+"` specified by document `same` already started, triggered by document `filtered` from db `_replicator`",
			failed.State.Error)
	})
}
