package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// A mirror compares both servers as often as its document says, and when somebody asks. The result is shown and counted.
func TestMirrorVerifies(t *testing.T) {
	t.Parallel()
	a, b, node := serveNode(t, "mem:"), serveNode(t, "mem:"), serveNode(t, "mem:")
	a.create("films", "first", "second")
	a.create("songs", "first")
	node.put("m", mirrorDocument(a, b, `{"verify":"24h"}`))
	var began time.Time
	verified := func() (v replicator.MirrorVerified) { // the next one
		t.Helper()
		require.Eventually(t, func() bool {
			var m struct {
				Info struct {
					Mirror struct{ Verified *replicator.MirrorVerified }
				}
			}
			require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, "_scheduler/docs/_replicator/m", "")), &m))
			if m.Info.Mirror.Verified == nil || !m.Info.Mirror.Verified.Began.After(began) {
				return false
			}
			v = *m.Info.Mirror.Verified
			return true
		}, limit, 10*time.Millisecond)
		began = v.Began
		return v
	}
	first := verified()
	assert.EqualValues(t, 2, first.Databases)
	assert.EqualValues(t, 3, first.Revisions)
	assert.True(t, first.Equal())
	assert.Zero(t, node.metric(`settee_mirror_unproved_databases{mirror="_replicator/m"}`))
	assert.Zero(t, node.metric(`settee_mirror_verify_overdue_seconds{mirror="_replicator/m"}`))

	b.ask(http.StatusOK, http.MethodPut, "songs/_security", `{"admins":{"names":["eve"]}}`)
	verify := "_scheduler/jobs/" + url.QueryEscape(node.mirror("m").JobID) + "/_verify"
	time.Sleep(time.Until(began.Add(time.Second))) // they have whole seconds
	node.ask(http.StatusAccepted, http.MethodPost, verify, "")
	second := verified()
	assert.EqualValues(t, 1, second.Different)
	require.Len(t, second.First, 1)
	assert.Equal(t, "songs", second.First[0].Database)
	assert.Equal(t, "the _security objects differ", second.First[0].Reason)
	assert.InDelta(t, 1, node.metric(`settee_mirror_unproved_databases{mirror="_replicator/m"}`), 0)
	out, _, status := setteeWith(t, []string{nodeVariable + "=" + node.url}, "jobs", "show", "m")
	require.Zero(t, status)
	assert.Regexp(t, `Verified +.* ago: 1 of 2 databases different, 0 failed; "songs": the _security objects differ`, out)

	node.ask(http.StatusNotFound, http.MethodPost, "_scheduler/jobs/none/_verify", "")
	child := a.url // both ends of any other replication are compared
	node.create("copy")
	node.put("c", document(t, map[string]any{"source": child + "films", "target": node.url + "copy", "continuous": true}))
	node.ask(http.StatusAccepted, http.MethodPost, "_scheduler/jobs/"+url.QueryEscape(node.mirror("c").JobID)+"/_verify", "")
	node.ask(http.StatusForbidden, http.MethodPut, "_replicator/bad", mirrorDocument(a, b, `{"verify":"1s"}`))
}
