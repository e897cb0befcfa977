package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// holdRequest begins a request with an endless body, and returns when the node reads it.
func (p *process) holdRequest() {
	p.t.Helper()
	u, err := url.Parse(p.url)
	require.NoError(p.t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = conn.Close() })
	r, err := http.NewRequest(http.MethodPut, p.url+"db/doc", nil)
	require.NoError(p.t, err)
	password, _ := u.User.Password()
	r.SetBasicAuth(u.User.Username(), password)
	_, err = fmt.Fprintf(conn, "PUT /db/doc HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n", r.Header.Get("Authorization"))
	require.NoError(p.t, err)
	answer := make([]byte, len("HTTP/1.1 100 Continue"))
	_, err = io.ReadFull(conn, answer)
	require.NoError(p.t, err)
	require.Equal(p.t, "HTTP/1.1 100 Continue", string(answer))
}

// A node that was told to stop waits for its requests, unless it is told again.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "settee/grace_period_sec=3600")
	status, answer := node.request(http.MethodPut, "db", "")
	require.Equal(t, http.StatusCreated, status, answer)
	node.holdRequest()
	require.NoError(t, node.cmd.Process.Signal(syscall.SIGTERM))
	node.says("settee is shutting down")
	var exit *exec.ExitError
	require.NoError(t, node.cmd.Process.Signal(syscall.SIGTERM))
	require.ErrorAs(t, node.cmd.Wait(), &exit)
	ended, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	assert.True(t, ended.Signaled(), "it ended by itself")
	assert.Equal(t, syscall.SIGTERM, ended.Signal())
}

// A frontend that was told to stop goes on answering for drain_sec, or until it is told again. Its /_up fails, and each
// connection ends with its next answer. Its jobs go back to the queue at once. Then it answers the requests that wait, and
// ends.
func TestDrain(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "settee/drain_sec=3600")
	node.ask(http.StatusCreated, http.MethodPut, "source", "")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/job", fmt.Sprintf(
		`{"source": %q, "target": %q, "create_target": true, "continuous": true}`, node.url+"source", node.url+"target"))
	state := func() string {
		var job struct{ State string }
		require.NoError(t, json.Unmarshal([]byte(node.ask(http.StatusOK, http.MethodGet, "_scheduler/docs/_replicator/job", "")), &job))
		return job.State
	}
	require.Eventually(t, func() bool { return state() == "running" }, limit, 10*time.Millisecond)
	type answer struct {
		status int
		header http.Header
		body   string
	}
	waits := func(method, path, body string) <-chan answer {
		answers := make(chan answer, 1)
		r, err := http.NewRequestWithContext(t.Context(), method, node.url+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		go func() {
			defer close(answers)
			answered, err := http.DefaultClient.Do(r)
			if !assert.NoError(t, err) {
				return
			}
			text, err := io.ReadAll(answered.Body)
			assert.NoError(t, errors.Join(err, answered.Body.Close()))
			answers <- answer{answered.StatusCode, answered.Header, string(text)}
		}()
		return answers
	}
	feed := waits(http.MethodGet, "source/_changes?feed=longpoll&since=now", "")

	require.NoError(t, node.cmd.Process.Signal(syscall.SIGTERM))
	node.says("settee is shutting down")
	answered, err := http.Get(node.url + "_up")
	require.NoError(t, err)
	require.NoError(t, answered.Body.Close())
	require.Equal(t, http.StatusNotFound, answered.StatusCode)
	require.True(t, answered.Close, "the connection ends")
	require.Eventually(t, func() bool { return state() == "pending" }, limit, 10*time.Millisecond)
	node.ask(http.StatusCreated, http.MethodPut, "source/a", "{}")
	require.Contains(t, (<-feed).body, `"id":"a"`)

	answered, err = http.Get(node.url + "source/_changes?feed=continuous")
	require.NoError(t, err)
	defer func() { require.NoError(t, answered.Body.Close()) }()
	rows := bufio.NewReader(answered.Body)
	row, err := rows.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, row, `"id":"a"`)
	replication := waits(http.MethodPost, "_replicate", fmt.Sprintf(`{"source": %q, "target": %q}`, node.url+"source", node.url+"target"))
	require.Eventually(t, func() bool {
		return strings.Contains(node.ask(http.StatusOK, http.MethodGet, "_scheduler/jobs", ""), `"total_rows":2`)
	}, limit, 10*time.Millisecond)
	require.Zero(t, node.end(syscall.SIGTERM))
	rest, err := io.ReadAll(rows)
	require.NoError(t, err)
	require.Contains(t, strings.TrimSpace(string(rest)), `{"last_seq":"1-`)
	ended := <-replication
	require.Equal(t, http.StatusServiceUnavailable, ended.status)
	require.NotEmpty(t, ended.header.Get("Retry-After"))
	require.Contains(t, ended.body, "the same request, sent to another node or later, waits for it")
}

// Requests longer than the grace period are cut off, which is not a failure.
func TestGracePeriod(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "settee/grace_period_sec=1", "prometheus/additional_port=true", "prometheus/port=0")
	status, answer := node.request(http.MethodPut, "db", "")
	require.Equal(t, http.StatusCreated, status, answer)
	node.holdRequest()
	assert.Zero(t, node.end(syscall.SIGTERM))
	<-node.read
	assert.Contains(t, node.logged(), "the grace period is over: what was still running was cut off")
}

// A node whose ports are in use reports that and ends.
func TestPortsAreTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	issue(t, 1, nil).write(t, cert, key)
	secure := []string{"ssl/enable=true", "ssl/cert_file=" + cert, "ssl/key_file=" + key, "ssl/port=" + port}
	for name, test := range map[string]struct {
		sets   []string
		reason string
		before string // expected before that
	}{
		"of requests":          {[]string{"chttpd/port=" + port}, "listening for requests: ", ""},
		"of requests over TLS": {append(secure, "chttpd/port=0"), "listening for requests: ", "settee accepts requests"},
		"of the metrics' own":  {[]string{"prometheus/additional_port=true", "prometheus/port=" + port}, "listening for requests for metrics: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"serve", "--store", "mem:", "--set", "admins/a=b", "--set", "chttpd_auth/iterations=10"}
			for _, set := range test.sets {
				args = append(args, "--set", set)
			}
			_, errs, status := settee(t, args...)
			assert.Equal(t, exitFailed, status)
			assert.Contains(t, errs, "settee: "+test.reason+"listen tcp 127.0.0.1:"+port)
			assert.Contains(t, errs, test.before)
			assert.NotContains(t, errs, "settee is running")
		})
	}
}
