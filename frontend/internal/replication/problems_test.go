package replication

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// Watches of one host whose questions are late for one reason are one problem.
func TestLateProblems(t *testing.T) {
	t.Parallel()
	late := func(host string, why replicator.FaultCode, since time.Duration, n int64) jobs.Problem {
		return jobs.Problem{Jobs: n, Attention: replicator.Attention{
			Kind: replicator.NeedsEarlier, Code: why, Side: replicator.SideSource, Host: host, Since: noon.Add(-since),
		}}
	}
	found := lateProblems([]jobs.Problem{
		late("a:5984", replicator.FaultFeedRefused, time.Minute, 4000), late("b", replicator.FaultFeedMissing, time.Second, 7),
		late("a:5984", replicator.FaultFeedRefused, time.Hour, 5000), late("a:5984", replicator.FaultFeedFails, time.Second, 6),
	})
	text, err := json.Marshal(found)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"kind": "late", "code": "feed_refused", "side": "source", "host": "a:5984", "jobs": 9000, "since": "2026-01-02T11:00:00Z", "first": [],
			"message": "source a:5984: changes are found late: no login of its jobs may read its feed of updates", "advice": {"code": "watch_login",
			"text": "Give its watch the login of a server administrator: in [replicator.watches], or in the source of a job."}},
		{"kind": "late", "code": "feed_missing", "side": "source", "host": "b", "jobs": 7, "since": "2026-01-02T11:59:59Z", "first": [],
			"message": "source b: changes are found late: it has no feed of updates", "advice": {"code": "feed",
			"text": "If it is a CouchDB, create its database _global_changes. Otherwise raise [replicator] max_questions_per_sec."}},
		{"kind": "late", "code": "feed_fails", "side": "source", "host": "a:5984", "jobs": 6, "since": "2026-01-02T11:59:59Z", "first": [],
			"message": "source a:5984: changes are found late: it does not answer, or its feed of updates fails", "advice": {"code": "server",
			"text": "Is the server up, and is the port right?"}}]`, string(text))
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
