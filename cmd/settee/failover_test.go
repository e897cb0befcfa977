package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/cmd/settee/internal/console"
	"settee/cmd/settee/internal/remote"
	"settee/replicator"
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
	require.Equal(t, exitFindings, status, out)
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

// A comparison says that a mirror without a feed has not looked since a database was created, and names the replicator databases that
// are left out. So does the mirror, and its lag is never 0.
func TestVerifySaysWhatAMirrorCannotHave(t *testing.T) {
	t.Parallel()
	a, b, node := serveNode(t, "mem:"), serveNode(t, "mem:"), serveNode(t, "mem:")
	source := newGate(t, strings.TrimSuffix(a.url, "/"))
	source.refuse.Store(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/_db_updates") })
	a.create("films", "first")
	a.create("team/_replicator")
	node.put("m", fmt.Sprintf(`{"source":%q,"target":%q,"continuous":true,"mirror":{}}`, source.url, b.url))
	var info struct {
		Info struct {
			Mirror struct {
				By          string    `json:"by"`
				Unseen      time.Time `json:"unseen_since"`
				Replicators []string  `json:"replicators_left_out"`
				LeftOut     int       `json:"left_out"`
			}
		}
	}
	node.awaitMirror("m", 1)
	require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, "_scheduler/docs/_replicator/m", "")), &info))
	assert.Equal(t, "list", info.Info.Mirror.By)
	assert.Equal(t, []string{"team/_replicator"}, info.Info.Mirror.Replicators)
	assert.Zero(t, info.Info.Mirror.LeftOut, "they are no failures")
	assert.WithinDuration(t, time.Now(), info.Info.Mirror.Unseen, time.Minute)
	assert.Positive(t, node.metric(`settee_mirror_lag_seconds{mirror="_replicator/m"}`))

	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // instance_start_time has whole seconds
	a.create("songs")
	env := []string{nodeVariable + "=" + node.url}
	out, errs, status := setteeWith(t, env, "failover", "--check", "m")
	require.Equal(t, exitFindings, status, errs)
	assert.Regexp(t, `missing on the target: the database "songs", created at 20\S+Z: the mirror has not looked since 20\S+Z\n`, out)
	assert.Contains(t, out, `left out: the replicator database "team/_replicator" (see --replicators)`)
	out, errs, status = settee(t, "verify", "--mirror", a.url, b.url)
	require.Equal(t, exitFindings, status, errs)
	assert.Regexp(t, `missing on the target: the database "songs", created at 20\S+Z: a mirror without a feed looks`, out)
	out, _, _ = settee(t, "verify", "--mirror", "--json", a.url, b.url)
	assert.Equal(t, 1, strings.Count(out, `"left_out":"replicator"`), out)
	assert.Contains(t, out, `{"database":"songs","only":"source","created":"20`)
	out, _, status = setteeWith(t, env, "jobs", "show", "m")
	require.Zero(t, status)
	assert.Regexp(t, `Left out +team/_replicator, because the target would run their replications, too\n`, out)
	assert.Regexp(t, `Unseen +changes since `, out)
}

// Nothing is changed before somebody has said that the writers have stopped, or while the mirror's node does not answer.
func TestFailoverThatChangesNothing(t *testing.T) {
	t.Parallel()
	var asked []string
	node, err := remote.Connect("the node", "http://node.example", transport(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.Method)
		return nil, errors.New("unreachable")
	}))
	require.NoError(t, err)
	var out strings.Builder
	f := &failover{
		foreground: foreground{cmd: newFailover(), replication: &replicator.Replication{
			Source: replicator.Endpoint{URL: "http://a.example/"}, Target: replicator.Endpoint{URL: "http://b.example/"},
		}},
		failoverFlags: new(failoverFlags), node: &console.Node{Server: node}, name: "standby",
	}
	f.cmd.SetIn(strings.NewReader("y\n"))
	f.cmd.SetOut(&out)
	require.ErrorContains(t, f.turn(t.Context()), "--yes is needed")
	assert.Empty(t, out.String()+strings.Join(asked, ""))
	f.yes = true
	require.ErrorContains(t, f.turn(t.Context()), "unreachable")
	assert.Contains(t, out.String(), "Nothing was changed. To go back, start the writers at http://a.example/")
	assert.NotContains(t, asked, http.MethodPut)
}

// transport answers requests.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
