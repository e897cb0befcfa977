package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDamagedStore: a node whose store has a damaged file says which, and never answers wrongly.
func TestDamagedStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	node := serveNode(t, "pebble:"+dir)
	node.fill()
	node.end(syscall.SIGKILL)
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	require.NoError(t, err)
	require.NotEmpty(t, logs)
	log, err := os.ReadFile(logs[0])
	require.NoError(t, err)
	at := bytes.Index(log, []byte("hello")) // of an attachment
	require.Positive(t, at)
	log[at] ^= 1
	require.NoError(t, os.WriteFile(logs[0], log, 0o600))
	for _, args := range [][]string{
		{"serve", "--store", "pebble:" + dir, "--set", "chttpd/port=0"},
		{"check", "--store", "pebble:" + dir},
	} {
		_, stderr, status := settee(t, args...)
		assert.NotZero(t, status)
		assert.Contains(t, stderr, filepath.Base(logs[0]))
		assert.Contains(t, stderr, "damaged")
		assert.Contains(t, stderr, "settee check --repair-log --store pebble:"+dir)
	}
	out, stderr, status := settee(t, "check", "--repair-log", "--store", "pebble:"+dir)
	assert.Zero(t, status, out+stderr)
	assert.Contains(t, stderr, "nothing is lost")
	assert.Contains(t, out, "sound: ")
}

// TestFilesAreTheOwners: the files of a store belong to its user alone, whatever the umask is. A node warns about a
// directory that others have access to.
func TestFilesAreTheOwners(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	node := serveNode(t, "pebble:"+dir)
	node.fill()
	require.NotContains(t, node.logged(), "users other than the owner")
	node.end(os.Interrupt)
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, path)
		files++
		return nil
	}))
	require.Greater(t, files, 4)
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // others have access
	node = serveNode(t, "pebble:"+dir)
	require.Contains(t, node.logged(), "users other than the owner have access to the store's directory")
	node.end(os.Interrupt)
}

// TestReadOnlyDisk: a node does not start on a disk that it cannot write to, and says why.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	node := serveNode(t, "pebble:"+dir)
	node.fill()
	node.end(os.Interrupt)
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		t.Skip("mounting needs privileges: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	for _, command := range []string{"serve", "check"} {
		_, stderr, status := settee(t, command, "--store", "pebble:"+dir)
		assert.NotZero(t, status)
		assert.Contains(t, stderr, dir)
		assert.Contains(t, stderr, "read-only file system")
	}
}

// TestFullDisk: when the disk is full, writes fail with the reason, /_up says so, and what was acknowledged can be read.
// A node does not start then, and says why. With space again it finds all of that, and the store is sound.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.Mkdir(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skip("mounting needs privileges: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	store := "pebble:" + filepath.Join(dir, "data")
	node := serveNode(t, store)
	node.fill()
	body := `{"x":"` + strings.Repeat("x", 1<<20) + `"}`
	var kept []string
	status, answer := http.StatusCreated, ""
	for status == http.StatusCreated {
		require.Less(t, len(kept), 100)
		id := "db/big" + strings.Repeat("i", len(kept))
		if status, answer = node.request(http.MethodPut, id, body); status == http.StatusCreated {
			kept = append(kept, id)
		}
	}
	assert.GreaterOrEqual(t, status, http.StatusInternalServerError, answer)
	require.NotEmpty(t, kept)
	_, up := node.request(http.MethodGet, "_up", "")
	assert.Contains(t, up, "no space left on device")
	for _, id := range kept {
		require.Contains(t, node.ask(http.StatusOK, http.MethodGet, id, ""), "xxx")
	}
	assert.Contains(t, node.logged(), "no space left on device")
	node.end(syscall.SIGKILL)
	for _, command := range [][]string{{"serve", "--set", "chttpd/port=0"}, {"check"}} {
		_, stderr, status := settee(t, append(command, "--store", store)...)
		assert.NotZero(t, status, "the disk is still full")
		assert.Contains(t, stderr, dir)
		assert.Contains(t, stderr, "no space left on device")
	}
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=200m"))
	out, stderr, status := settee(t, "check", "--store", store)
	require.Zero(t, status, out+stderr)
	node = serveNode(t, store)
	for _, id := range kept {
		require.Contains(t, node.ask(http.StatusOK, http.MethodGet, id, ""), "xxx")
	}
	node.end(os.Interrupt)
}
