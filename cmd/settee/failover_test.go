package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mirror is turned round as soon as the standby has everything, `_security` included, and back again. A check changes nothing.
func TestFailover(t *testing.T) {
	t.Parallel()
	a, b, node := serveNode(t, "mem:"), serveNode(t, "mem:"), serveNode(t, "mem:")
	failover := func(args ...string) (out string, status int) {
		out, errs, status := setteeWith(t, []string{nodeVariable + "=" + node.url}, append([]string{"failover", "standby"}, args...)...)
		require.NotContains(t, out+errs, adminPassword)
		return out + errs, status
	}
	a.create("films", "first")
	a.create("songs")
	node.put("standby", mirrorDocument(a, b, `{}`))
	node.awaitMirror("standby", 2)
	rev := node.revOf("standby")
	out, status := failover("--check")
	require.Zero(t, status, out)
	assert.Contains(t, out, "2 databases, 2 up to date\nequal: 2 databases compared")

	// Nothing has told the mirror of this.
	const changed = `{"admins":{"names":["ann"]},"members":{"names":["ann"]}}`
	a.ask(http.StatusOK, http.MethodPut, "films/_security", changed)
	out, status = failover("--check", "--wait", "0s")
	require.Equal(t, exitDifferent, status, out)
	assert.Contains(t, out, `"films": different _security`)
	out, status = failover()
	require.Equal(t, exitUsage, status, out)
	assert.Contains(t, out, "--yes is needed")
	require.Equal(t, rev, node.revOf("standby"))

	out, status = failover("--yes", "--wait", "0s")
	require.Zero(t, status, out)
	for _, says := range []string{
		"1 of 4", "2 of 4", `"films": different _security`, "Not equal", "equal: 2 databases", "3 of 4", "To go back, stop them and run settee failover standby again",
		"4 of 4", b.plain() + "/ is mirrored to " + a.plain() + "/, and everything is there",
	} {
		at := strings.Index(out, says)
		require.NotEqual(t, -1, at, "%q is missing, or at another place:\n%s", says, out)
		out = out[at:]
	}
	for _, server := range []*process{a, b} {
		assert.JSONEq(t, changed, server.ask(http.StatusOK, http.MethodGet, "films/_security", ""))
	}
	b.ask(http.StatusCreated, http.MethodPut, "songs/first", `{}`)
	require.Eventually(t, exists(t, a.url+"songs/first"), limit, 10*time.Millisecond)

	out, status = failover("--yes", "--wait", "0s")
	require.Zero(t, status, out)
	a.ask(http.StatusCreated, http.MethodPut, "songs/second", `{}`)
	require.Eventually(t, exists(t, b.url+"songs/second"), limit, 10*time.Millisecond)

	node.put("standby", mirrorDocument(a, b, `{"prefix":"p-"}`))
	out, status = failover("--check")
	require.Equal(t, exitFailed, status)
	assert.Contains(t, out, "has a prefix")
}
