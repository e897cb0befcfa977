//go:build fdb && fire

package fire

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/seeds"
	"settee/pkg/nodes"
)

// nextLevel is the build tag of a settee that knows one level more than the base: see cmd/settee/nextlevel.go. Leave it out when
// this commit has such a level of its own.
const nextLevel = "nextlevel"

// between is the pause between two restarts.
const between = 500 * time.Millisecond

// TestRolling upgrades a cluster under the load of the fire test, node by node in random order: from the last release, the base, to
// the next one, back and forward again, and then it raises the level of the store to that release's, which the base does not know. One
// old node is frozen over the raise. At the end all rows have been converted. Only with all rounds all nodes go back, and
// otherwise one of each role: these restarts repeat what the upgrade has shown.
func TestRolling(t *testing.T) {
	var next string
	var frozen time.Time
	l := disturbed(t, func(c *cluster) string {
		next = c.buildIn("", nextLevel)
		return c.buildBase()
	}, func(l *observer) {
		r := &roll{observer: l, random: rand.New(rand.NewPCG(*seed, 40)), next: next, old: l.program}
		last := l.nodes[len(l.nodes)-1]
		endFeeds := r.followFeeds()
		r.restartAll(l.nodes, next)
		back := []*node{l.nodes[0], last}
		if seeds.All(t) {
			back = l.nodes
		}
		r.restartAll(back, r.old)
		r.restartAll(back[:len(back)-1], next)
		status, answer := r.raise()
		require.Equal(t, http.StatusConflict, status, "nodes of the base run: %s", answer)
		frozen = time.Now()
		r.raiseOverFrozen(last)
		r.refused(last)
		r.restart(last, next)
		r.awaitConversion()
		endFeeds()
		l.program = next
	}, func(w *work, _ *observer) { w.compareMirror() })
	assert.Empty(t, l.serverErrors())
	assert.Empty(t, l.requeued(frozen), "jobs that a node did not hand over when it stopped")
}

// roll replaces nodes.
type roll struct {
	*observer
	random    *rand.Rand
	next, old string  // paths of the settees
	held      *source // of the POSTs that wait at a frontend that stops
	waited    int     // the number of these
}

// restartAll restarts nodes in random order.
func (r *roll) restartAll(nodes []*node, program string) {
	for _, index := range r.random.Perm(len(nodes)) {
		r.restart(nodes[index], program)
	}
}

// buildBase builds the settee of the base, from the history of this repository. The base is the commit that gave the changelog the
// newest heading of a release, or in a shallow clone the oldest one if that is later.
func (c *cluster) buildBase() string {
	dir := c.TempDir()
	run := func(name string, args ...string) string {
		command := exec.CommandContext(c.Context(), name, args...)
		printed, err := command.CombinedOutput()
		require.NoError(c, err, "%s: %s", command, printed)
		return strings.TrimSpace(string(printed))
	}
	root := run("git", "rev-parse", "--show-toplevel")
	base := run("git", "-C", root, "log", "-1", "--format=%H", `-G^## \[[0-9]`, "--", "CHANGELOG.md")
	c.Logf("the base is %s", run("git", "-C", root, "log", "-1", "--oneline", base))
	run("git", "-C", root, "archive", "--output", filepath.Join(dir, "base.tar"), base)
	run("tar", "-x", "-C", dir, "-f", filepath.Join(dir, "base.tar"))
	return c.buildIn(dir)
}

// restart stops a node and starts it with a settee.
func (r *roll) restart(n *node, program string) {
	r.Helper()
	_, healthy := n.now()
	switch index := slices.Index(r.nodes, n); {
	case healthy && index < frontends:
		r.stopFrontend(index)
	case healthy:
		require.NoError(r, n.terminate())
	}
	n.program = program
	require.NoError(r, n.start())
	r.Logf("%s runs %s", n.name, map[string]string{r.next: "the next release", r.old: "the base"}[program])
	pause(r.Context(), between)
}

// requeued returns the lines of the logs before a time which say that jobs were queued again because no process kept them
// alive, without those around the times when the store did not answer promptly.
func (l *observer) requeued(before time.Time) (lines []string) {
	for _, path := range l.logged() {
		text, err := os.ReadFile(path)
		require.NoError(l, err)
		for line := range strings.Lines(string(text)) {
			var entry struct {
				Time    time.Time
				Message string
			}
			if json.Unmarshal([]byte(line), &entry) != nil || !strings.Contains(entry.Message, "that no node kept alive") || entry.Time.After(before) {
				continue
			}
			if !slices.ContainsFunc(l.slow, func(at time.Time) bool {
				return entry.Time.After(at.Add(-takeOver)) && entry.Time.Before(at.Add(takeOver))
			}) {
				lines = append(lines, filepath.Base(path)+": "+line)
			}
		}
	}
	return lines
}

// raise asks the last frontend to raise the level of the store. It runs the next release.
func (r *roll) raise() (status int, answer string) {
	status, answer, err := askAgain(r.Context(), patience, http.MethodPost, r.at(hosted, r.doors[frontends-1])+"_node/_local/_upgrade", "", anyAnswer)
	require.NoError(r, err)
	return status, answer
}

// awaitConversion waits until the rows from before the raise have been converted.
func (r *roll) awaitConversion() {
	began := time.Now()
	require.Eventually(r, func() bool {
		status, answer, err := askAgain(r.Context(), patience, http.MethodGet, r.at(hosted, r.doors[frontends-1])+"_node/_local/_upgrade", "", anyAnswer)
		require.NoError(r, err)
		require.Equal(r, http.StatusOK, status, answer)
		var is struct{ Converting bool }
		require.NoError(r, json.Unmarshal([]byte(answer), &is))
		return !is.Converting
	}, limit, 100*time.Millisecond)
	r.Logf("all rows had the form of the new level %.1f s after the last restart", time.Since(began).Seconds())
}

// raiseOverFrozen freezes a node of the base until it counts as dead, raises the level, and thaws the node. It must notice, and
// exit with the reason.
func (r *roll) raiseOverFrozen(n *node) {
	require.NoError(r, n.freeze())
	began := time.Now()
	require.Eventually(r, func() bool {
		status, answer := r.raise()
		if status == http.StatusConflict {
			return false
		}
		require.Equal(r, http.StatusOK, status, answer)
		var raised struct {
			Level  int64
			Raised bool
		}
		require.NoError(r, json.Unmarshal([]byte(answer), &raised))
		require.EqualValues(r, 2, raised.Level)
		return true
	}, limit, 500*time.Millisecond)
	r.Logf("the level was raised %.1f s after a node was frozen, which counts as dead after %s", time.Since(began).Seconds(), nodes.LiveFor)

	require.NoError(r, n.wake())
	process, _ := n.now()
	require.Eventually(r, process.Exited, limit, 10*time.Millisecond)
	r.saysWhy(n)
}

// refused starts a node of the base, which must exit.
func (r *roll) refused(n *node) {
	n.program = r.old
	require.ErrorIs(r, n.startOnce(), errExited)
	r.saysWhy(n)
}

// saysWhy checks that the latest log of a node names what to do about the level.
func (r *roll) saysWhy(n *node) {
	r.Helper()
	process, _ := n.now()
	text, err := os.ReadFile(filepath.Join(n.logs, r.nameOf(process.PID())+".log"))
	require.NoError(r, err)
	assert.Contains(r, string(text), "the store has level 2 (of version ")
	assert.Contains(r, string(text), "and this version knows only 1: start version ")
}

// keepSession logs in once, and asks who it is with the cookie until ctx ends.
func (w *work) keepSession(ctx context.Context) {
	login, err := json.Marshal(map[string]string{"name": adminName, "password": w.password})
	require.NoError(w, err)
	client := &http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	session := func(method string, body string, cookie *http.Cookie) (*http.Response, error) {
		request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, "http://"+w.peers[hosted].Host+"/_session", strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		if cookie != nil {
			request.AddCookie(cookie)
		}
		return client.Do(request)
	}
	var cookie *http.Cookie
	for ; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
		method, body := http.MethodGet, ""
		if cookie == nil {
			method, body = http.MethodPost, string(login)
		}
		answer, err := session(method, body, cookie)
		if err != nil {
			continue // a frontend that has just gone
		}
		var who struct {
			Name        string
			UserContext struct{ Name string } `json:"userCtx"`
		}
		err = errors.Join(json.NewDecoder(answer.Body).Decode(&who), answer.Body.Close())
		switch {
		case answer.StatusCode == http.StatusServiceUnavailable:
		case err != nil || answer.StatusCode != http.StatusOK:
			w.wrongAnswer("%s _session: %d, %v", method, answer.StatusCode, err)
		case cookie == nil:
			cookie = answer.Cookies()[0]
		case who.UserContext.Name != adminName:
			w.wrongAnswer("_session with a cookie: %+v", who)
		}
		for _, c := range answer.Cookies() { // a new one, shortly before the end of the old one
			cookie = c
		}
	}
}
