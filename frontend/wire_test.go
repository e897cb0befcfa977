package frontend_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The exchanges are one session: each goes on with what those before it left.
func TestRecordedExchanges(t *testing.T) {
	t.Parallel()
	n := start(t)
	all := map[int]exchange{}
	for _, number := range []int{1, 2, 3, 4, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 81, 82, 83, 84} {
		all[number] = recorded(t, number)
	}

	got := n.send(all[1])
	n.requireSame(all[1], got, sameHead)
	want := slices.DeleteFunc(keys(t, all[1].answer.body), func(key string) bool { return key == ".git_sha" })
	require.Equal(t, append(want, ".vendor.version"), keys(t, got.body))
	require.JSONEq(t, `{"couchdb": "Welcome", "version": "3.5.3", "uuid": "0123456789abcdef0123456789abcdef",
		"features": ["scheduler"], "vendor": {"name": "settee", "version": "1.2.3"}}`, got.body)
	for _, number := range []int{2, 3, 4} {
		n.requireSame(all[number], n.send(all[number]), sameText)
	}

	// What is recorded of the results is what a replication node would say here.
	for _, number := range []int{65, 66, 67} {
		waiting := n.posting(all[number].body)
		n.complete(n.accept(), all[number].answer.body)
		n.requireSame(all[number], <-waiting, sameText)
	}
	for _, number := range []int{68, 69, 70, 71} {
		waiting := n.posting(all[number].body)
		said := all[number].answer.json(t)
		require.NoError(t, n.accept().Fail(t.Context(), said["error"].(string), said["reason"].(string)))
		n.requireSame(all[number], <-waiting, sameText)
	}

	// A bad request is not a failure of the server.
	refused(t, n.send(all[72]), http.StatusBadRequest, "bad_request",
		"parameter `source` is missing: it must be the URL of a database, or an object with its `url`")
	for _, number := range []int{73, 74, 75} {
		n.requireSame(all[number], n.send(all[number]), sameText)
	}
	got = n.send(all[76])
	refused(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "Only POST allowed")
	require.Equal(t, "POST", got.header.Get("Allow"))
	n.requireSame(all[76], n.post(""), sameText)

	started := n.send(all[77])
	n.requireSame(all[77], started, sameKeys)
	require.Regexp(t, `^\{"ok":true,"_local_id":"[0-9a-f]{32}\+continuous"\}\n$`, started.body)
	n.accept()
	n.requireListing(all[78])
	job := all[79]
	job.target = "/_scheduler/jobs/" + strings.Replace(started.localID(t), "+", "%2B", 1)
	n.requireListing(job)

	cancelled := n.send(all[81])
	n.requireSame(all[81], cancelled, sameHead)
	require.Equal(t, started.body, cancelled.body)
	for _, number := range []int{82, 83, 84} {
		n.requireSame(all[number], n.send(all[number]), sameText)
	}
}

// requireListing sends a recorded request for a list of jobs, or for a job, and requires the recorded keys, with state,
// job_id and condition after them. The job of CouchDB had no info yet.
func (n *node) requireListing(e exchange) {
	n.Helper()
	t, want, got := n.T, e.answer, n.send(e)
	n.requireSame(e, got, sameHead)
	withoutInfo := slices.DeleteFunc(keys(t, got.body), func(key string) bool {
		return strings.Contains(key, ".info.") || strings.Contains(key, ".condition.")
	})
	var expected []string
	for _, key := range keys(t, want.body) {
		expected = append(expected, key)
		if prefix, last := strings.CutSuffix(key, ".start_time"); last {
			expected = append(expected, prefix+".state", prefix+".job_id", prefix+".condition")
		}
	}
	if expected[0] == ".database" {
		expected = append(expected, ".runs") // of one job
	}
	require.Equal(t, expected, withoutInfo)

	job := got.json(t)
	if rows, ok := job["jobs"].([]any); ok {
		require.EqualValues(t, 1, job["total_rows"])
		require.EqualValues(t, 0, job["offset"])
		job = rows[0].(map[string]any)
	}
	require.Equal(t, adminName, job["user"])
	for _, name := range []string{"database", "doc_id"} {
		require.Nil(t, job[name], name)
	}
	require.Equal(t, "http://couch.example:5984/wire/", job["source"])
	require.Equal(t, "http://couch.example:5984/wirecopy/", job["target"])
	require.Equal(t, "<0.1.0>", job["pid"])
	require.Equal(t, "node1", job["node"])
	require.Equal(t, "running", job["state"])
	_, err := time.Parse("2006-01-02T15:04:05Z", job["start_time"].(string))
	require.NoError(t, err)
	for i, what := range []string{"started", "added"} {
		event := job["history"].([]any)[i].(map[string]any)
		require.Equal(t, what, event["type"])
		_, err := time.Parse("2006-01-02T15:04:05Z", event["timestamp"].(string))
		require.NoError(t, err)
	}
}
