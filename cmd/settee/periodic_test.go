package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A document with `every` copies again and again, until it is deleted.
func TestPeriodic(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	const definition = `{"source":%q,"target":%q%s}`
	body := func(more string) string { return fmt.Sprintf(definition, node.url+"films", node.url+"copy", more) }
	for member, field := range map[string]string{
		`,"every":"often"`: "every", `,"schedule":"0 25 * * *"`: "schedule", `,"every":"1h","continuous":true`: "continuous",
		`,"schedule":"0 3 * * *","timezone":"Mars/Phobos"`: "timezone",
	} {
		answer := node.ask(http.StatusForbidden, http.MethodPut, "_replicator/wrong", body(member))
		assert.Contains(t, answer, `"forbidden"`)
		assert.Contains(t, answer, "`"+field+"`")
	}
	assert.Contains(t, node.ask(http.StatusBadRequest, http.MethodPost, "_replicate", body(`,"every":"1h"`)), "`every`")

	for _, name := range []string{"films", "copy"} {
		node.ask(http.StatusCreated, http.MethodPut, name, "")
	}
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/nightly", body(`,"doc_ids":["x"],"schedule":"0 3 29 2 *","timezone":"Europe/Berlin"`))
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/often", body(`,"every":"1s"`))
	since := "0"
	for n := range 3 {
		node.ask(http.StatusCreated, http.MethodPut, fmt.Sprintf("films/%d", n), "{}")
		var changes struct {
			Results []struct{ ID string }
			LastSeq string `json:"last_seq"`
		}
		answer := node.ask(http.StatusOK, http.MethodGet, "copy/_changes?feed=longpoll&since="+since, "")
		require.NoError(t, json.Unmarshal([]byte(answer), &changes))
		require.Len(t, changes.Results, 1)
		require.Equal(t, fmt.Sprint(n), changes.Results[0].ID)
		since = changes.LastSeq
	}

	type listed struct {
		State     string
		StartTime *time.Time `json:"start_time"`
		Condition struct{ Until *time.Time }
		Info      *struct {
			DocsWritten int             `json:"docs_written"`
			LastRun     json.RawMessage `json:"last_run"`
		}
	}
	read := func(path string) (doc listed) {
		require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, path, "")), &doc))
		return doc
	}
	var often listed
	require.Eventually(t, func() bool {
		often = read("_scheduler/docs/_replicator/often")
		return often.State == "pending" && often.Info.DocsWritten == 3
	}, limit, 10*time.Millisecond)
	require.NotNil(t, often.Condition.Until)
	assert.GreaterOrEqual(t, often.Condition.Until.Sub(*often.StartTime), time.Second)
	assert.NotEmpty(t, often.Info.LastRun)
	answer := node.ask(http.StatusOK, http.MethodGet, "_replicator/often", "")
	assert.NotContains(t, answer, "_replication_state")

	nightly := read("_scheduler/docs/_replicator/nightly")
	assert.Equal(t, "pending", nightly.State)
	assert.Nil(t, nightly.Info)
	require.NotNil(t, nightly.Condition.Until)
	assert.Equal(t, "02-29 02:00", nightly.Condition.Until.Format("01-02 15:04"), "in UTC")
	var jobs struct{ Jobs []listed }
	require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs", "")), &jobs))
	assert.Len(t, jobs.Jobs, 2)

	var doc struct {
		Rev string `json:"_rev"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &doc))
	node.ask(http.StatusOK, http.MethodDelete, "_replicator/often?rev="+doc.Rev, "")
	node.ask(http.StatusNotFound, http.MethodGet, "_scheduler/docs/_replicator/often", "")
	assert.Zero(t, node.end(syscall.SIGTERM))
}
