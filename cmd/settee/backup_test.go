package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBackup backs up a node while clients write and replications run, and restores the backup. The restored store is
// sound, has everything that was acknowledged before the backup, and a node runs on it. Its changes come after all that
// clients of the original have seen.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := serveNode(t, "pebble:"+filepath.Join(dir, "data"))
	node.fill()
	node.ask(http.StatusAccepted, http.MethodPost, "_replicate",
		jsonLine(map[string]any{"source": node.url + "db", "target": node.url + "copy", "continuous": true}))
	stop, written := make(chan struct{}), make(chan struct{}, 4)
	var writers sync.WaitGroup
	for writer := range 3 {
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("db/%d-%d", writer, n)
				status, answer := node.request(http.MethodPut, id, `{"_attachments":{"x":{"data":"aGVsbG8="}}}`)
				if !assert.Equal(t, http.StatusCreated, status, answer) {
					return
				}
				if n%3 == 0 {
					node.request(http.MethodDelete, id+"?rev="+revIn(answer), "")
				}
				select {
				case written <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 50 {
		<-written
	}
	node.ask(http.StatusCreated, http.MethodPut, "db/before", `{}`)
	file := filepath.Join(dir, "backup")
	out, stderr, status := settee(t, "backup", node.url, file)
	require.Zero(t, status, out+stderr)
	node.ask(http.StatusCreated, http.MethodPut, "db/after", `{}`)
	close(stop)
	writers.Wait()
	seen := lastSeq(node.ask(http.StatusOK, http.MethodGet, "db/_changes", ""))
	node.end(syscall.SIGKILL)

	store := "pebble:" + filepath.Join(dir, "restored")
	out, stderr, status = settee(t, "restore", file, "--store", store)
	require.Zero(t, status, out+stderr)
	out, stderr, status = settee(t, "check", "--store", store)
	require.Zero(t, status, out+stderr)
	restored := serveNode(t, store)
	restored.ask(http.StatusOK, http.MethodGet, "db/before", "")
	restored.ask(http.StatusNotFound, http.MethodGet, "db/after", "")
	restored.ask(http.StatusCreated, http.MethodPut, "db/new", `{}`)
	changes := restored.ask(http.StatusOK, http.MethodGet, "db/_changes?since="+seen, "")
	assert.Contains(t, changes, `"new"`, "a client that continues from what it has seen gets what is new")
	restored.end(os.Interrupt)

	_, stderr, status = settee(t, "restore", file, "--store", store)
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stderr, "not empty")
	damaged, err := os.ReadFile(file)
	require.NoError(t, err)
	damaged[bytes.Index(damaged, []byte("hello"))] ^= 1
	require.NoError(t, os.WriteFile(file, damaged, 0o600))
	_, stderr, status = settee(t, "restore", file, "--store", "pebble:"+filepath.Join(dir, "none"))
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stderr, "the backup is damaged")
}

// TestBackupToStandardOutput: the backup alone is there, and restore reads it from standard input.
func TestBackupToStandardOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := serveNode(t, "pebble:"+filepath.Join(dir, "data"))
	node.fill()
	backup, stderr, status := settee(t, "backup", node.url, "-")
	require.Zero(t, status, stderr)
	assert.Contains(t, stderr, fmt.Sprintf("backed up %d bytes to -\n", len(backup)))
	assert.NoFileExists(t, "-")

	store := "pebble:" + filepath.Join(dir, "restored")
	restore := exec.CommandContext(t.Context(), built(t), "restore", "-", "--store", store)
	restore.Stdin = strings.NewReader(backup)
	said, err := restore.CombinedOutput()
	require.NoError(t, err, string(said))
	out, stderr, status := settee(t, "check", "--store", store)
	require.Zero(t, status, out+stderr)
}

func revIn(answer string) string {
	_, rest, _ := strings.Cut(answer, `"rev":"`)
	rev, _, _ := strings.Cut(rest, `"`)
	return rev
}

func lastSeq(changes string) string {
	_, rest, _ := strings.Cut(changes, `"last_seq":"`)
	seq, _, _ := strings.Cut(rest, `"`)
	return seq
}

// TestBackupIsRefused: only server administrators get a backup, a file is not overwritten, and nothing is left after an
// error. A store without backups says what to use.
func TestBackupIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := serveNode(t, "pebble:"+filepath.Join(dir, "data"))
	node.fill()
	file := filepath.Join(dir, "out", "backup")
	require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
	refused := func(says string, args ...string) {
		t.Helper()
		_, stderr, status := settee(t, append([]string{"backup"}, args...)...)
		assert.NotZero(t, status)
		assert.Contains(t, stderr, says)
		assert.NotContains(t, stderr, adminPassword)
	}
	refused("401", withoutAdmin(node.url), file)
	refused("You are not a server admin", strings.Replace(withoutAdmin(node.url), "://", "://jan:apple@", 1), file)
	refused("is not the URL of a server", "ftp://x", file)
	memory := serveNode(t, "mem:")
	refused("501", memory.url, file)
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Empty(t, entries)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	refused("exists", node.url, file)
	left, err := filepath.Glob(filepath.Join(dir, "data", "backup-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	for _, args := range [][]string{{}, {"--set", "chttpd/port=1"}} { // ./data is the default of a node, and is not what was meant
		_, stderr, status := settee(t, append([]string{"restore", file}, args...)...)
		assert.Equal(t, exitUsage, status)
		assert.Contains(t, stderr, "--store pebble:DIRECTORY")
	}
	assert.NoDirExists(t, "data")
	_, stderr, status := settee(t, "restore", file, "--set", "settee/store=pebble:"+filepath.Join(dir, "named"))
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stderr, "the backup is not complete: it ends after 0 bytes")
	_, stderr, status = settee(t, "restore", file, "--store", "fdb:x")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stderr, "only a store in a directory")
}
