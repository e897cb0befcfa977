//go:build packages

package packages_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkNode runs the installed program as its unit does: as the user settee, with the files of /etc/settee.
func checkNode(t *testing.T, root string) {
	t.Helper()
	var id struct{ uid, gid int }
	for line := range strings.Lines(read(t, root, "/etc/passwd")) {
		if fields := strings.Split(line, ":"); fields[0] == "settee" {
			id.uid, _ = strconv.Atoi(fields[2])
			id.gid, _ = strconv.Atoi(fields[3])
		}
	}
	require.Positive(t, id.uid)
	inRoot := func(ctx context.Context, uid, gid int, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "/usr/bin/settee", args...)
		cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd
	}
	out, err := inRoot(t.Context(), 0, 0, "version", "--json").Output()
	require.NoError(t, err)
	var version struct{ Arch string }
	require.NoError(t, json.Unmarshal(out, &version))
	assert.Equal(t, runtime.GOARCH, version.Arch)

	asRoot := func(args ...string) *exec.Cmd { return inRoot(t.Context(), 0, 0, args...) }
	asService := func(args ...string) *exec.Cmd { return inRoot(t.Context(), id.uid, id.gid, args...) }
	uuid := followDocuments(t, root, asRoot)
	out, err = asService("config", "--check", "/etc/settee", "/etc/settee/local.d").CombinedOutput()
	require.NoError(t, err, "the service reads what root has written: %s", out)
	out, err = asService("config", "--config", "/etc/settee", "--config", "/etc/settee/local.d").Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "uuid = "+uuid)
	address, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(address.Addr().String())
	require.NoError(t, err)
	require.NoError(t, address.Close())

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	// The limit of open files is the test's here, and not the unit's.
	node := inRoot(ctx, id.uid, id.gid, "serve", "--config", "/etc/settee", "--config", "/etc/settee/local.d", "--set", "chttpd/port="+port,
		"--set", "chttpd/max_connections=100")
	var log bytes.Buffer
	node.Stderr = &log
	require.NoError(t, node.Start())
	ended := make(chan error, 1)
	go func() { ended <- node.Wait() }()
	for {
		out, err := inRoot(ctx, id.uid, id.gid, "health", "--config", "/etc/settee", "--set", "chttpd/port="+port).CombinedOutput()
		if err == nil {
			break
		}
		select {
		case err := <-ended:
			require.NoError(t, err, "the node ended: %s", log.String())
		case <-ctx.Done():
			require.Fail(t, "the node is not healthy", "%s", out)
		case <-time.After(50 * time.Millisecond):
		}
	}
	require.NoError(t, node.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-ended, log.String())
	assert.NotContains(t, log.String(), `"level":"warn"`)
	assert.Contains(t, log.String(), "are stored encrypted")
	keys := []string{"secrets", "keys", "--config", "/etc/settee", "--config", "/etc/settee/local.d"}
	out, err = asRoot(keys...).CombinedOutput()
	require.Error(t, err, "the service could not read what root writes into its store")
	assert.Contains(t, string(out), "sudo -u settee settee")
	out, err = asService(keys...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	entries, err := os.ReadDir(filepath.Join(root, "/var/lib/settee"))
	require.NoError(t, err)
	assert.NotEmpty(t, entries, "the store is in /var/lib/settee")
}

// printed are the commands with which the documents make files for the service, in their order, and the pages that have them.
var printed = []struct{ page, command string }{
	{"packages/head.ini", "sudo settee password admin --file /etc/settee/admin.ini"},
	{"../docs/operations.md", "sudo settee password admin --file /etc/settee/admin.ini"},
	{"../docs/moving-from-couchdb.md", "sudo settee import-couchdb http://couchdb.example:5984 --ini /etc/settee/couchdb.ini --credentials admin.netrc"},
	{"../docs/security.md", "settee secrets new-key 2026-02 --append /etc/settee/keys"},
}

// followDocuments does as root what the documents say after an installation: it makes an administrator, takes the settings of
// a CouchDB, and makes a key for the store. It returns the uuid of the CouchDB.
func followDocuments(t *testing.T, root string, asRoot func(...string) *exec.Cmd) (uuid string) {
	t.Helper()
	uuid = "0123456789abcdef0123456789abcdef"
	couch := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := map[string]string{
			"/":                `{"couchdb":"Welcome","version":"3.5.0","uuid":"` + uuid + `","vendor":{"name":"The Apache Software Foundation"}}`,
			"/_membership":     `{"all_nodes":["n"],"cluster_nodes":["n"]}`,
			"/_node/n/_config": `{"couchdb":{"uuid":"` + uuid + `"},"replicator":{"max_jobs":"77"}}`,
		}[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer couch.Close()
	done := map[string]bool{}
	for _, p := range printed {
		page, err := os.ReadFile("../" + p.page)
		require.NoError(t, err)
		require.Contains(t, string(page), p.command, p.page)
		if done[p.command] {
			continue
		}
		done[p.command] = true
		command := strings.NewReplacer("sudo ", "", "http://couchdb.example:5984", couch.URL, " --credentials admin.netrc", "").Replace(p.command)
		cmd := asRoot(strings.Fields(command)[1:]...)
		cmd.Stdin = strings.NewReader("relax\n")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
	}
	local := filepath.Join(root, "/etc/settee/local.ini")
	text := read(t, root, "/etc/settee/local.ini") + "[secrets]\nkey_file = /etc/settee/keys\n"
	require.NoError(t, os.WriteFile(local, []byte(text), 0o640))
	return uuid
}
