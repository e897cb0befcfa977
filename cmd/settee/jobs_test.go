package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asUser returns the environment of commands that ask the node as a user.
func (p *process) asUser(name, password string) []string {
	return []string{
		nodeVariable + "=" + p.plain(), "SETTEE_NODE_USER=" + name, "SETTEE_NODE_PASSWORD=" + password,
		"HOME=" + p.t.TempDir(), // without a netrc
	}
}

// jobsBy runs settee jobs as a user, requires an exit status, and returns what it printed.
func (p *process) jobsBy(t *testing.T, env []string, status int, args ...string) (stdout, stderr string) {
	t.Helper()
	out, errs, got := setteeWith(t, env, append([]string{"jobs"}, args...)...)
	require.Equal(t, status, got, "%v\n%s%s", args, out, errs)
	require.NotContains(t, out+errs, adminPassword)
	return out, errs
}

// consoleJobs starts a node with the jobs that the test of settee jobs needs: films (completes), twin (fails), guarded (its
// target refuses all), lost (crashes) and live (runs), and a job that ann posted, which crashes.
func consoleJobs(t *testing.T) *process {
	t.Helper()
	node := serveNode(t, "pebble:"+filepath.Join(t.TempDir(), "data"), "replicator/idle_timeout_sec=0", "replicator/min_backoff_penalty_sec=600")
	for _, name := range []string{"ann", "eve"} {
		node.ask(http.StatusCreated, http.MethodPut, "_users/org.couchdb.user:"+name, document(t, map[string]any{
			"name": name, "password": name, "roles": []string{}, "type": "user",
		}))
	}
	for _, db := range []string{"films", "guarded"} {
		node.ask(http.StatusCreated, http.MethodPut, db, "")
	}
	node.ask(http.StatusCreated, http.MethodPost, "films/_bulk_docs", `{"docs":[{"_id":"alien"},{"_id":"heat"}]}`)
	node.ask(http.StatusCreated, http.MethodPut, "guarded/_design/guard", document(t, map[string]any{
		"validate_doc_update": "function (doc) { throw {forbidden: 'no films'}; }",
	}))
	put := func(id, source, target string, more map[string]any) {
		doc := map[string]any{"source": node.url + source, "target": node.url + target}
		for name, value := range more {
			doc[name] = value
		}
		node.ask(http.StatusCreated, http.MethodPut, "_replicator/"+id, document(t, doc))
	}
	create := map[string]any{"create_target": true}
	continuous := map[string]any{"create_target": true, "continuous": true}
	put("films", "films", "copy", create)
	put("guarded", "films", "guarded", nil)
	put("live", "films", "live", continuous)
	put("lost", "missing", "nowhere", map[string]any{"continuous": true})
	status, answer := request(t, http.MethodPost, strings.Replace(withoutAdmin(node.url), "://", "://ann:ann@", 1)+"_replicate", document(t, map[string]any{
		"source": node.url + "hers", "target": node.url + "other", "continuous": true,
	}))
	require.Equal(t, http.StatusAccepted, status, answer)
	return node
}

// jobLines returns jobs that were printed with --json.
func jobLines(t *testing.T, text string) (list []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var job map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &job), line)
		list = append(list, job)
	}
	return list
}

// settee jobs against a node, by an administrator and two users.
func TestJobsOfANode(t *testing.T) {
	t.Parallel()
	node := consoleJobs(t)
	admin, ann, eve := node.asUser(adminName, adminPassword), node.asUser("ann", "ann"), node.asUser("eve", "eve")
	do := func(status int, args ...string) string {
		t.Helper()
		out, _ := node.jobsBy(t, admin, status, args...)
		return out
	}
	// until repeats a command until what it prints is true.
	until := func(env []string, says func(out string) bool, args ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			out, _ := node.jobsBy(t, env, 0, args...)
			return says(out)
		}, limit, 50*time.Millisecond, args)
	}
	has := func(texts ...string) func(string) bool {
		return func(out string) bool {
			for _, text := range texts {
				if !strings.Contains(out, text) {
					return false
				}
			}
			return true
		}
	}

	// Watching a job until it has ended.
	assert.Contains(t, do(0, "watch", "_replicator/films"), "completed")
	ended := jobLines(t, do(0, "watch", "films", "--json"))
	require.Len(t, ended, 1)
	assert.Equal(t, "completed", ended[0]["state"])
	do(0, "watch", "guarded")
	until(admin, has("crashing"), "show", "lost")

	// Lists and single jobs.
	out := do(0)
	assert.Regexp(t, `(?m)^STATE +JOB +SOURCE +TARGET +WRITTEN +LEFT +WHY$`, out)
	assert.Regexp(t, `(?m)^crashing +_replicator/lost .*source \S+: the database does not exist`, out)
	assert.NotContains(t, out, "_replicator/films", "it has ended")
	assert.Regexp(t, `(?m)^completed +_replicator/films `, do(0, "--state", "completed"))
	until(admin, func(out string) bool { return len(jobLines(t, out)) == 2 }, "list", "--state", "crashing", "--json")
	assert.Len(t, jobLines(t, do(0, "--state", "crashing", "--limit", "1", "--json")), 1)
	crashing := jobLines(t, do(0, "list", "--database", "_replicator", "--sort", "failing", "--json"))
	require.Len(t, crashing, 1)
	assert.Equal(t, "lost", crashing[0]["doc_id"])
	out, errs := node.jobsBy(t, admin, 0, "--search", "no such text", "--json")
	assert.Empty(t, out+errs)
	out, errs = node.jobsBy(t, admin, 0, "--search", "no such text")
	assert.Empty(t, out)
	assert.Equal(t, "there is no such job; --state completed,failed lists those that have ended\n", errs)
	_, errs = node.jobsBy(t, admin, 0, "--sort", "stuck")
	assert.Equal(t, "there is no such job\n", errs)
	_, errs = node.jobsBy(t, admin, exitFailed, "--mirror", "lost")
	assert.Contains(t, errs, `the job "lost" is no mirror`)
	out = do(0, "show", crashing[0]["job_id"].(string))
	assert.Regexp(t, `(?m)^Job +_replicator/lost$`, out)
	assert.Regexp(t, `(?m)^Failing runs +1; `, out)
	assert.Regexp(t, `(?m)^Next run +\d`, out)
	assert.Regexp(t, `(?m)crashed +db_not_found`, out)

	// Users see their own jobs.
	for who, want := range map[*[]string]int{&ann: 1, &eve: 0} {
		out, _ := node.jobsBy(t, *who, 0, "--json")
		assert.Len(t, jobLines(t, out), want)
		_, errs := node.jobsBy(t, *who, exitFailed, "show", "_replicator/lost")
		assert.NotContains(t, errs, "missing", "its source")
		_, errs = node.jobsBy(t, *who, exitFailed, "failures")
		assert.Contains(t, errs, "server admin")
		_, errs = node.jobsBy(t, *who, exitFailed, "pause", "_replicator")
		assert.NotContains(t, errs, "goroutine")
	}
	_, errs = node.jobsBy(t, node.asUser("ann", "wrong"), exitFailed)
	assert.Contains(t, errs, "see --help for where user and password come from")

	// What fails.
	out = do(exitFindings, "failures")
	assert.Contains(t, out, "_replicator/lost")
	assert.Contains(t, out, "/hers")
	assert.NotContains(t, out, "_replicator/live")
	out = do(exitFindings, "failures", "guarded")
	assert.Contains(t, out, "The target of _replicator/guarded has refused 2 revisions.")
	assert.Contains(t, out, "no films")
	refused := jobLines(t, do(exitFindings, "failures", "guarded", "--json"))
	require.Len(t, refused, 2)
	assert.ElementsMatch(t, []any{"alien", "heat"}, []any{refused[0]["id"], refused[1]["id"]})
	assert.Contains(t, do(0, "failures", "films"), "has refused 0 revisions.")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/twin", document(t, map[string]any{
		"source": node.url + "films", "target": node.url + "live", "create_target": true, "continuous": true,
	}))
	do(exitFindings, "watch", "twin")

	// Running again.
	assert.Contains(t, do(0, "run", "lost"), "lost: it runs as soon as there is a slot\n")
	until(admin, has("Failing runs  2; "), "show", "lost")

	// Somebody knows.
	_, errs = node.jobsBy(t, admin, exitUsage, "acknowledge", "lost", "--until", "yesterday")
	assert.Contains(t, errs, `--until is "yesterday": it must be a duration such as 24h`)
	assert.Contains(t, do(0, "acknowledge", "lost", "--note", "it moves", "--until", "24h"), "lost: acknowledged until 20")
	out = do(0, "show", "lost")
	assert.Regexp(t, `Acknowledged +.*, by admin until 20.*: it moves`, out)
	assert.Contains(t, out, "acknowledged; ")
	assert.NotContains(t, do(exitFindings, "failures"), "_replicator/lost")
	assert.Equal(t, "lost: its acknowledgement is taken back\n", do(0, "acknowledge", "lost", "--undo"))
	assert.Equal(t, "lost: it is not acknowledged\n", do(0, "acknowledge", "lost", "--undo"))
	assert.Contains(t, do(exitFindings, "failures"), "_replicator/lost")

	assert.Equal(t, "films: it has ended, and is replicated again\n", do(0, "run", "films"))
	do(0, "watch", "films")
	out, errs = node.jobsBy(t, admin, exitFailed, "run", "none", "lost")
	assert.Contains(t, errs, `settee: none: there is no job "none"`)
	assert.Contains(t, out, "lost: ", "the others are run")

	// Pausing a database.
	assert.Contains(t, do(0, "pause", "_replicator"), "_replicator: paused")
	assert.Contains(t, do(0, "pause", "_replicator"), "it is paused already")
	until(admin, has("its database has no shares"), "show", "live")
	assert.Contains(t, do(0, "resume", "_replicator"), "_replicator: resumed with 100 shares")
	assert.Contains(t, do(0, "resume", "_replicator", "--shares", "50"), "resumed with 50 shares")
	until(admin, func(out string) bool { return jobLines(t, out)[0]["state"] == "running" }, "show", "live", "--json")

	// Who has done that.
	changes, _, code := setteeWith(t, admin, "audit")
	assert.Zero(t, code)
	assert.Regexp(t, `(?m)^TIME +USER +ACTION +OF +VALUE$`, changes)
	assert.Regexp(t, `(?m)^\d.* admin +set +\[replicator.shares\] _replicator +100 -> 50$`, changes)
	changes, errs, code = setteeWith(t, admin, "audit", "lost", "--json")
	assert.Zero(t, code, errs)
	ran := jobLines(t, changes)
	require.NotEmpty(t, ran)
	assert.Equal(t, []any{"run", "lost"}, []any{ran[0]["action"], ran[0]["doc_id"]})
	_, _, code = setteeWith(t, ann, "audit")
	assert.Equal(t, exitFailed, code)

	// A list that is followed, while a job is deleted.
	lines, stop := node.watchJobs(t, admin, "--json", "--search", "missing")
	assert.Equal(t, "lost", (<-lines)["doc_id"])
	_, errs = node.jobsBy(t, admin, exitUsage, "delete", "lost")
	assert.Contains(t, errs, "--yes is needed")
	out, errs = node.jobsBy(t, admin, exitFailed, "delete", "none", "lost", "--yes")
	assert.Equal(t, "lost: deleted\n", out)
	assert.Contains(t, errs, "there is no job")
	for job := range lines {
		if job["gone"] == true {
			break
		}
	}
	assert.Equal(t, 128+int(syscall.SIGTERM), stop())
	status, _ := node.request(http.MethodGet, "_replicator/lost", "")
	assert.Equal(t, http.StatusNotFound, status)

	// Deleting by filters: eve selects nothing, and ann her own job.
	out, _ = node.jobsBy(t, eve, 0, "delete", "--state", "crashing", "--yes")
	assert.Empty(t, out)
	out, _ = node.jobsBy(t, ann, 0, "delete", "--state", "crashing", "--yes")
	assert.Regexp(t, `^[0-9a-f]{32}\+continuous: cancelled\n$`, out)
	out, _ = node.jobsBy(t, ann, 0, "--json")
	assert.Empty(t, out)

	// The overview without a terminal.
	out, errs, status = setteeWith(t, admin, "top")
	require.Zero(t, status, errs)
	assert.Contains(t, out, "2 of 4 jobs need attention.", "twin has failed, guarded has refused documents, and live runs")
	assert.Contains(t, out, "_replicator/twin")
}

// With --yes, settee jobs delete reads the list of the selected jobs once: to delete them, and not to count them before.
func TestDeleteReadsTheListOnce(t *testing.T) {
	t.Parallel()
	var lists atomic.Int64
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/_scheduler/jobs" {
			lists.Add(1)
		}
		fmt.Fprint(w, `{"total_rows":0,"offset":0,"jobs":[]}`)
	}))
	defer node.Close()
	out, errs, status := settee(t, "jobs", "delete", "--state", "crashing", "--yes", "--url", node.URL)
	assert.Zero(t, status, "%s%s", out, errs)
	assert.Equal(t, int64(1), lists.Load())
}

// watchJobs starts settee jobs watch. It returns the jobs that it prints, and a function that stops it with a signal and
// returns the exit status.
func (p *process) watchJobs(t *testing.T, env []string, args ...string) (lines <-chan map[string]any, stop func() int) {
	t.Helper()
	cmd := exec.Command(built(t), append([]string{"jobs", "watch"}, args...)...)
	cmd.Env = append(cmd.Environ(), env...)
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	jobs, read, done := make(chan map[string]any), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		defer close(jobs)
		for scanner := bufio.NewScanner(pipe); scanner.Scan(); {
			var job map[string]any
			if err := json.Unmarshal(scanner.Bytes(), &job); err != nil {
				job = map[string]any{"error": fmt.Sprint(err, ": ", scanner.Text())}
			}
			select {
			case jobs <- job:
			case <-done:
			}
		}
	}()
	ended := false
	stop = func() int {
		if !ended {
			ended = true
			close(done)
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-read         // Wait closes the pipe
			_ = cmd.Wait() // the status is enough
		}
		return cmd.ProcessState.ExitCode()
	}
	t.Cleanup(func() { stop() })
	return jobs, stop
}
