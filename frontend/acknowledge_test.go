package frontend_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// A job, or all jobs of a problem, can be acknowledged, and that can be taken back.
func TestAcknowledge(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Do(http.MethodPut, "/_replicator", "").Is(t, http.StatusCreated)
	refuse := func(code replicator.FaultCode) *replicator.Fault {
		return replicator.FaultAt(code, replicator.SideSource, replicator.Endpoint{URL: "http://a.example:5984/db"}, replicator.RequestOpen, "no")
	}
	for _, id := range []string{"a", "b", "c"} {
		n.Do(http.MethodPut, "/_replicator/"+id, definition(`"doc_ids": ["`+id+`"]`)).Is(t, http.StatusCreated)
		run := n.accept()
		code := replicator.FaultConnectRefused
		if id == "c" {
			code = replicator.FaultUnauthorized
		}
		require.NoError(t, run.Crash(t.Context(), time.Now().Add(time.Hour), 1, refuse(code)))
	}
	attention := func() float64 {
		t.Helper()
		return n.Get("/_scheduler/problems").Is(t, http.StatusOK).JSON(t)["attention"].(float64)
	}
	acknowledgedAs := func(answer map[string]any) map[string]any {
		t.Helper()
		ack, _ := answer["condition"].(map[string]any)["acknowledged"].(map[string]any)
		return ack
	}
	job := "/_scheduler/jobs/" + url.PathEscape(n.tells("_replicator", "a").all["job_id"].(string))
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	require.InDelta(t, 3, attention(), 0)
	for body, reason := range map[string]string{
		`{"note": 1}`: "`note` must be a string",
		fmt.Sprintf(`{"note": %q}`, strings.Repeat("x", 501)): "`note` has 501 bytes; the most is 500",
		`{"until": "tomorrow"}`:                               "`until` must be a time such as 2026-12-01T00:00:00Z",
		`{"until": "2020-12-01T00:00:00Z"}`:                   "`until` must be in the future",
		`{"notes": "x"}`:                                      "`notes` is not a member of this request",
		`[]`:                                                  "Request body must be a JSON object",
	} {
		require.Equal(t, reason, n.Do(http.MethodPost, job+"/_acknowledge", body).Is(t, http.StatusBadRequest).JSON(t)["reason"])
	}
	answer := n.Do(http.MethodPost, job+"/_acknowledge", `{"note": "a.example moves", "until": "`+until+`"}`).Is(t, http.StatusOK).JSON(t)
	ack := acknowledgedAs(answer)
	require.Equal(t, []any{"failing", "connect_refused", "a.example moves", until}, []any{ack["kind"], ack["code"], ack["note"], ack["until"]})
	told := n.tells("_replicator", "a").is(t, "crashing", "backoff", answer["condition"].(map[string]any)["fault"].(map[string]any)["text"].(string))
	require.Equal(t, map[string]float64{"failing": 1, "acknowledged": 0}, told.Marks)
	require.Equal(t, answer["condition"], told.all["condition"])
	require.InDelta(t, 2, attention(), 0)
	require.Nil(t, acknowledgedAs(n.Do(http.MethodDelete, job+"/_acknowledge", "").Is(t, http.StatusOK).JSON(t)))
	require.InDelta(t, 3, attention(), 0)

	const problem = `"kind": "failing", "side": "source", "host": "a.example:5984"`
	for body, reason := range map[string]string{
		`{}`:                                 "`kind` is missing: name the problem with the members that `_scheduler/problems` has of it",
		`{"kind": "late"}`:                   "`kind` is late: this is of a server, and not of jobs, and cannot be acknowledged",
		`{` + problem + `, "code": 7}`:       "`code` must be a string",
		`{` + problem + `, "jobs": 7}`:       "`jobs` is not a member of this request",
		`{` + problem + `, "until": "2020"}`: "`until` must be a time such as 2026-12-01T00:00:00Z",
	} {
		require.Equal(t, reason, n.Do(http.MethodPost, "/_scheduler/problems/_acknowledge", body).Is(t, http.StatusBadRequest).JSON(t)["reason"])
	}
	n.Do(http.MethodPost, "/_scheduler/problems/_acknowledge", `{`+problem+`, "code": "stalled"}`).Is(t, http.StatusNotFound)
	all := n.Do(http.MethodPost, "/_scheduler/problems/_acknowledge", `{`+problem+`, "code": "connect_refused", "note": "x"}`).Is(t, http.StatusOK).JSON(t)
	require.InDelta(t, 2, all["jobs"], 0)
	require.InDelta(t, 1, attention(), 0)
	require.Contains(t, n.tells("_replicator", "b").Marks, "acknowledged")
	n.Do(http.MethodPost, "/_scheduler/problems/_acknowledge", `{`+problem+`, "code": "connect_refused"}`).Is(t, http.StatusNotFound)
}
