package replication

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/replicator"
	"settee/replicator/causes"
	"settee/replicator/jobs"
)

// Watches of one host whose questions are late for one reason are one problem.
func TestLateProblems(t *testing.T) {
	t.Parallel()
	late := func(server string, why jobs.NoFeed, since time.Duration, n int) jobs.LateWatch {
		return jobs.LateWatch{Server: server, Late: jobs.Late{Since: noon.Add(-since), Jobs: n, NoFeed: why}}
	}
	found := lateProblems([]jobs.LateWatch{
		late("http://a:5984/", jobs.FeedRefused, time.Minute, 4000), late("http://b/", jobs.FeedMissing, time.Second, 7),
		late("http://a:5984/prefix/", jobs.FeedRefused, time.Hour, 5000), late("http://a:5984/", jobs.FeedFails, time.Second, 6),
	})
	text, err := json.Marshal(found)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"endpoint": "a:5984", "side": "source", "kind": "late", "jobs": 9000, "since": "2026-01-02T11:00:00Z", "first": [],
			"cause": "changes are found late: no login of its jobs may read its feed of updates", "remedy": "watch_login",
			"advice": "Give its watch the login of a server administrator: in [replicator.watches], or in the source of a job."},
		{"endpoint": "b", "side": "source", "kind": "late", "jobs": 7, "since": "2026-01-02T11:59:59Z", "first": [],
			"cause": "changes are found late: it has no feed of updates", "remedy": "feed",
			"advice": "If it is a CouchDB, create its database _global_changes. Otherwise raise [replicator] max_questions_per_sec."},
		{"endpoint": "a:5984", "side": "source", "kind": "late", "jobs": 6, "since": "2026-01-02T11:59:59Z", "first": [],
			"cause": "changes are found late: it does not answer, or its feed of updates fails", "remedy": "server",
			"advice": "Is the server up, and is the port right?"}]`, string(text))
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// jobIn returns a job of http://s/a to http://t/b in a state.
func jobIn(t *testing.T, id string, state replicator.JobState) *jobs.Job {
	t.Helper()
	request, err := replicator.ParseRequest([]byte(`{"source": "http://s/a", "target": "http://t/b", "continuous": true}`), replicator.ParseOptions{})
	require.NoError(t, err)
	status := fdbjobs.Pending
	switch {
	case state.State == replicator.StateRunning:
		status = fdbjobs.Running
	case state.State.Terminal():
		status = fdbjobs.Finished
	}
	return &jobs.Job{ID: id, Status: status, Args: &replicator.JobArgs{Replication: request.Replication}, State: &state}
}

// Jobs with one cause are one problem, and each job is in one.
func TestProblems(t *testing.T) {
	t.Parallel()
	crashing := func(id, text string, since time.Duration) *jobs.Job {
		return jobIn(t, id, replicator.JobState{State: replicator.StateCrashing, Error: text, CrashingSince: noon.Add(-since)})
	}
	refused := replicator.Stats{DocCounts: replicator.DocCounts{DocWriteFailures: 1}}
	again := jobIn(t, "c", replicator.JobState{
		State: replicator.StateRunning, CrashingSince: noon.Add(-time.Hour), StuckSince: noon, Stats: refused,
		History: replicator.History{{Type: replicator.EventStarted}, {Type: replicator.EventCrashed, Reason: "x: target: PUT http://h/3: 500 full"}},
	})
	stuck := jobIn(t, "s", replicator.JobState{State: replicator.StateRunning, StuckSince: noon.Add(-time.Minute), Activity: &replicator.Activity{
		Doing: replicator.DoingRetrying, Waiting: []replicator.Wait{{Endpoint: "target", Error: "connection refused"}},
	}})
	found, attention := grouped([]*jobs.Job{
		crashing("z", "x: could not resolve http://n/", 2*time.Hour), crashing("a", "x: target: GET http://h/1: 500 full", time.Minute),
		crashing("b", "x: target: PUT http://h/2: 500 full", time.Second), again,
		jobIn(t, "f", replicator.JobState{State: replicator.StateFailed, Error: "db_not_found: could not open http://t/b/",
			History: replicator.History{{Timestamp: noon, Type: "failed"}}}),
		stuck, again, jobIn(t, "r", replicator.JobState{State: replicator.StatePending, Stats: refused}),
		jobIn(t, "e", replicator.JobState{State: replicator.StateCompleted, Stats: refused}),
		jobIn(t, "w", replicator.JobState{State: replicator.StateRunning}),
	})
	type row struct {
		endpoint, side, cause, kind string
		jobs                        int
		since, first                string
		remedy                      causes.Remedy
	}
	var rows []row
	for _, p := range found {
		since := ""
		if p.Since != nil {
			since = *p.Since
		}
		require.Len(t, p.First, p.Jobs)
		rows = append(rows, row{*p.Endpoint, p.Side, p.Cause, p.Kind, p.Jobs, since, p.First[0].JobID, p.Remedy})
	}
	assert.Equal(t, []row{
		{"h", "target", "500 full", "crashing", 3, "2026-01-02T11:00:00Z", "a", causes.Unknown},
		{"n", "", "x: could not resolve the host", "crashing", 1, "2026-01-02T10:00:00Z", "z", causes.Host},
		{"t", "target", "connection refused", "stuck", 1, "2026-01-02T11:59:00Z", "s", causes.Server},
		{"t", "target", "db_not_found: could not open the database", "failed", 1, "2026-01-02T12:00:00Z", "f", causes.Database},
		{"t", "target", causes.Refuses, "refused", 1, "", "r", causes.Documents},
	}, rows)
	assert.Equal(t, 7, attention)
}
