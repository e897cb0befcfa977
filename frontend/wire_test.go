package frontend_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
	"settee/replicator"
)

// The exchanges are one session: each goes on with what those before it left.
func TestRecordedExchanges(t *testing.T) {
	t.Parallel()
	n := start(t)
	all := map[int]webtest.Exchange{}
	for _, number := range []int{1, 2, 3, 4, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 81, 82, 83, 84} {
		all[number] = webtest.Recorded(t, number)
	}

	got := n.Send(all[1])
	n.RequireSame(all[1], got, webtest.SameHead)
	want := slices.DeleteFunc(webtest.Keys(t, all[1].Answer.Body), func(key string) bool { return key == ".git_sha" })
	require.Equal(t, append(want, ".vendor.version"), webtest.Keys(t, got.Body))
	require.JSONEq(t, `{"couchdb": "Welcome", "version": "3.5.3", "uuid": "0123456789abcdef0123456789abcdef",
		"features": ["scheduler"], "vendor": {"name": "settee", "version": "1.2.3"}}`, got.Body)
	for _, number := range []int{2, 3, 4} {
		n.RequireSame(all[number], n.Send(all[number]), webtest.SameText)
	}

	// What is recorded of the results is what a replication node would say here.
	for _, number := range []int{65, 66, 67} {
		waiting := n.posting(all[number].Body)
		n.complete(n.accept(), all[number].Answer.Body)
		n.RequireSame(all[number], <-waiting, webtest.SameText)
	}
	for _, number := range []int{68, 69, 70, 71} {
		waiting := n.posting(all[number].Body)
		said := all[number].Answer.JSON(t)
		require.NoError(t, n.accept().Fail(t.Context(), replicator.TextFault(said["error"].(string), said["reason"].(string))))
		n.RequireSame(all[number], <-waiting, webtest.SameText)
	}

	// A bad request is not a failure of the server.
	webtest.Refused(t, n.Send(all[72]), http.StatusBadRequest, "bad_request",
		"parameter `source` is missing: it must be the URL of a database, or an object with its `url`")
	for _, number := range []int{73, 74, 75} {
		n.RequireSame(all[number], n.Send(all[number]), webtest.SameText)
	}
	got = n.Send(all[76])
	webtest.Refused(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "Only POST allowed")
	require.Equal(t, "POST", got.Header.Get("Allow"))
	n.RequireSame(all[76], n.post(""), webtest.SameText)

	started := n.Send(all[77])
	n.RequireSame(all[77], started, webtest.SameKeys)
	require.Regexp(t, `^\{"ok":true,"_local_id":"[0-9a-f]{32}\+continuous"\}\n$`, started.Body)
	n.accept()
	n.requireListing(all[78])
	job := all[79]
	job.Target = "/_scheduler/jobs/" + strings.Replace(started.LocalID(t), "+", "%2B", 1)
	n.requireListing(job)

	cancelled := n.Send(all[81])
	n.RequireSame(all[81], cancelled, webtest.SameHead)
	require.Equal(t, started.Body, cancelled.Body)
	for _, number := range []int{82, 83, 84} {
		n.RequireSame(all[number], n.Send(all[number]), webtest.SameText)
	}
}

// requireListing sends a recorded request for a list of jobs, or for a job, and requires the recorded keys, with state,
// job_id and condition after them. The job of CouchDB had no info yet.
func (n *node) requireListing(e webtest.Exchange) {
	n.Helper()
	t, want, got := n.T, e.Answer, n.Send(e)
	n.RequireSame(e, got, webtest.SameHead)
	withoutInfo := slices.DeleteFunc(webtest.Keys(t, got.Body), func(key string) bool {
		return strings.Contains(key, ".info.") || strings.Contains(key, ".condition.")
	})
	var expected []string
	for _, key := range webtest.Keys(t, want.Body) {
		expected = append(expected, key)
		if prefix, last := strings.CutSuffix(key, ".start_time"); last {
			expected = append(expected, prefix+".state", prefix+".job_id", prefix+".condition")
		}
	}
	if expected[0] == ".database" {
		expected = append(expected, ".runs") // of one job
	}
	require.Equal(t, expected, withoutInfo)

	job := got.JSON(t)
	if rows, ok := job["jobs"].([]any); ok {
		require.EqualValues(t, 1, job["total_rows"])
		require.EqualValues(t, 0, job["offset"])
		job = rows[0].(map[string]any)
	}
	require.Equal(t, webtest.AdminName, job["user"])
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
