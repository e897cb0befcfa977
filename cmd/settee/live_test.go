package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// says waits until the process has logged all texts.
func (p *process) says(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		require.Eventually(p.t, func() bool { return strings.Contains(p.logged(), text) }, limit, 5*time.Millisecond, text)
	}
}

func TestReloadOnSignal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "local.ini")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write("[replicator]\nmax_jobs = 3")
	node := begin(t, "settee is running", nil, "serve", "--store", "mem:", "--set", "chttpd/port=0", "--config", path)
	value := func(name string) string {
		_, answer := node.request(http.MethodGet, "_node/_local/_config/"+name, "")
		return answer
	}
	require.Equal(t, "\"3\"\n", value("replicator/max_jobs"))

	write("[replicator]\nmax_jobs = 4\n[log]\nlevel = debug")
	require.NoError(t, node.cmd.Process.Signal(syscall.SIGHUP))
	node.says("read again", `"setting":"[replicator] max_jobs","value":"4","was":"3"`)
	require.Equal(t, "\"4\"\n", value("replicator/max_jobs"))

	write("[replicator]\nmax_jobs = many\nmax_history = none")
	require.NoError(t, node.cmd.Process.Signal(syscall.SIGHUP))
	node.says("the values that were read before stay in force", `many`, `none`)
	require.Equal(t, "\"4\"\n", value("replicator/max_jobs"))
	require.Zero(t, node.end(syscall.SIGTERM))
}

// The log level follows the configuration, and the store keeps it over a restart.
func TestTheLevelOfTheLogChanges(t *testing.T) {
	t.Parallel()
	store := aStore(t)
	node := serveNode(t, store)
	debugs := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			node.request(http.MethodGet, "_up", "") // logged at level debug
			return strings.Contains(node.logged(), `"path":"/_up"`)
		}, limit, 5*time.Millisecond)
	}
	answer := node.ask(http.StatusOK, http.MethodPut, "_node/_local/_config/log/level", `"debug"`)
	require.Equal(t, "\"info\"\n", answer)
	debugs()
	require.Zero(t, node.end(syscall.SIGTERM))

	node = serveNode(t, store)
	debugs()
	answer = node.ask(http.StatusOK, http.MethodDelete, "_node/_local/_config/log/level", "")
	require.Equal(t, "\"debug\"\n", answer)
	require.Zero(t, node.end(syscall.SIGTERM))
}
