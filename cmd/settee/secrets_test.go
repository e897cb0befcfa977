package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/sealed"
)

// keyFile is a key file of a test.
type keyFile struct {
	*testing.T
	path  string
	lines map[string]string // by id
}

func newKeyFile(t *testing.T, ids ...string) *keyFile {
	f := &keyFile{t, filepath.Join(t.TempDir(), "keys"), map[string]string{}}
	f.write(ids...)
	return f
}

// write writes keys into the file, the current one first. An id always stands for the same key.
func (f *keyFile) write(ids ...string) {
	f.Helper()
	var text strings.Builder
	for _, id := range ids {
		if f.lines[id] == "" {
			line, err := sealed.NewLine(id)
			require.NoError(f, err)
			f.lines[id] = line
		}
		text.WriteString(f.lines[id])
	}
	require.NoError(f, os.WriteFile(f.path, []byte(text.String()), 0o600))
}

func (f *keyFile) set() string { return "secrets/key_file=" + f.path }

func TestSecretsNewKey(t *testing.T) {
	t.Parallel()
	out, _, status := settee(t, "secrets", "new-key", "2026-02")
	require.Zero(t, status)
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(out), 0o600))
	keys, err := sealed.Read(path)
	require.NoError(t, err)
	require.Equal(t, "2026-02", keys.First())

	for _, args := range [][]string{{"new-key"}, {"new-key", "a b"}, {"new-key", "a", "b"}, {"keys", "x"}, {"forget"}, {"no-such"}} {
		out, errs, status := settee(t, append([]string{"secrets"}, args...)...)
		assert.Equal(t, exitUsage, status, "%q: %s%s", args, out, errs)
	}
	out, _, status = settee(t, "secrets")
	require.Zero(t, status)
	require.Contains(t, out, "reseal")
}

// A key is added and removed as the help says, and nodes do not start without the keys that they need.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	store := aStore(t)
	file := newKeyFile(t, "old")
	run := func(args ...string) (string, string, int) {
		t.Helper()
		args = append([]string{"secrets"}, args...)
		return settee(t, append(args, "--store", store, "--set", file.set())...)
	}
	const body = `{"source":"http://u:relax-pass@127.0.0.1:1/a","target":"http://127.0.0.1:1/b"}`

	const idle = "node_types/replication=false" // existing data does not change
	node := serveNode(t, store, idle)
	node.says("key_file is not set")
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/plain", body)
	require.Zero(t, node.end(syscall.SIGTERM))

	node = serveNode(t, store, idle, file.set())
	node.says("stored encrypted", `"keys":["old"]`)
	node.ask(http.StatusCreated, http.MethodPut, "_replicator/sealed", body)
	require.Zero(t, node.end(syscall.SIGTERM))

	out, errs, status := run("keys")
	require.Zero(t, status, errs)
	require.Regexp(t, `\(not encrypted\) +3 *\n`, out) // a document, a job and the secret of sessions
	require.Regexp(t, `\nold +2 +first +yes\n`, out)

	// Without the key, or with another key under its id, no node starts.
	_, errs, status = settee(t, "serve", "--store", store, "--set", "chttpd/port=0", "--set", "admins/a=b")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, `sealed with the key "old", which the key file ([secrets] key_file) does not have`)
	require.Contains(t, errs, `settee secrets forget old`)
	other := newKeyFile(t, "old")
	for _, command := range [][]string{{"serve", "--set", "chttpd/port=0", "--set", "admins/a=b"}, {"secrets", "reseal"}} {
		_, errs, status = settee(t, append(command, "--store", store, "--set", other.set())...)
		require.Equal(t, exitFailed, status)
		require.Contains(t, errs, `the key "old" of the key file ([secrets] key_file) is not the key of this id`)
	}

	file.write("new", "old")
	node = serveNode(t, store, idle, file.set())
	answer := node.ask(http.StatusOK, http.MethodGet, "_replicator/sealed", "")
	require.Contains(t, answer, "relax-pass")
	require.Zero(t, node.end(syscall.SIGTERM))
	out, errs, status = run("reseal")
	require.Zero(t, status, errs+out)
	require.Regexp(t, `\nnew +5 +first +yes\nold +0 +yes +no\n$`, out)
	require.NotContains(t, out, "not encrypted")

	file.write("new")
	node = serveNode(t, store, idle, file.set())
	for _, id := range []string{"plain", "sealed"} {
		answer = node.ask(http.StatusOK, http.MethodGet, "_replicator/"+id, "")
		require.Contains(t, answer, "relax-pass")
	}
	require.NotContains(t, node.logged(), "relax-pass")
	require.Zero(t, node.end(syscall.SIGTERM))

	// A lost key.
	file.write("newer")
	_, errs, status = run("reseal")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, `sealed with the key "new"`)
	_, errs, status = run("forget", "nothing")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, `the store has no key "nothing"`)
	file.write("newer", "new")
	_, errs, status = run("forget", "new")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, `the key "new" is not lost`)
	file.write("newer")
	for range 2 { // a second call has the same result
		_, errs, status = run("forget", "new")
		require.Zero(t, status, errs)
	}
	out, errs, status = run("reseal")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, `4 values are encrypted with the key "new", which is lost`)
	require.Regexp(t, `\nnew +4 +no +yes\nnewer +0 +first +yes\n$`, out)

	// Nodes start, and lost values can be replaced.
	node = serveNode(t, store, idle, file.set())
	for _, id := range []string{"plain", "sealed"} {
		path := "_replicator/" + id
		answer = node.ask(http.StatusInternalServerError, http.MethodGet, path, "")
		require.Contains(t, answer, `sealed with the key \"new\"`)
		var rows struct {
			Rows []struct{ Value struct{ Rev string } }
		}
		answer = node.ask(http.StatusOK, http.MethodGet, "_replicator/_all_docs?key=%22"+id+"%22", "")
		require.NoError(t, json.Unmarshal([]byte(answer), &rows))
		node.ask(http.StatusCreated, http.MethodPut, path+"?rev="+rows.Rows[0].Value.Rev, body)
		node.ask(http.StatusOK, http.MethodGet, path, "")
	}
	require.Zero(t, node.end(syscall.SIGTERM))
}

// Documents of users are sealed with the current key. A user whose document's key is lost cannot log in until an
// administrator replaces the document.
func TestKeysOfUsers(t *testing.T) {
	t.Parallel()
	store := aStore(t)
	file := newKeyFile(t, "old")
	const document = `{"type":"user","name":"ann","roles":["staff"],"password":"relax","totp_of":"nobody"%s}`
	const path, idle = "_users/org.couchdb.user:ann", "node_types/replication=false"
	secrets := func(args ...string) (string, string, int) {
		return settee(t, append(append([]string{"secrets"}, args...), "--store", store, "--set", file.set())...)
	}
	var node *process
	login := func() int {
		t.Helper()
		status, _ := request(t, http.MethodGet, strings.Replace(withoutAdmin(node.url), "://", "://ann:relax@", 1)+"_users/org.couchdb.user:ann", "")
		return status
	}

	node = serveNode(t, store, idle)
	node.ask(http.StatusCreated, http.MethodPut, path, fmt.Sprintf(document, ""))
	require.Equal(t, http.StatusOK, login())
	require.Zero(t, node.end(syscall.SIGTERM))
	out, errs, status := secrets("keys")
	require.Zero(t, status, errs)
	require.Regexp(t, `\(not encrypted\) +2 *\n`, out) // the document and the secret of sessions
	_, errs, status = secrets("reseal")
	require.Zero(t, status, errs)
	file.write("new", "old")
	out, errs, status = secrets("reseal")
	require.Zero(t, status, errs)
	require.Regexp(t, `\nnew +2 +first +yes\nold +0 +yes +no\n$`, out)

	file.write("new")
	node = serveNode(t, store, idle, file.set())
	require.Equal(t, http.StatusOK, login())
	for _, list := range []string{"_users/_all_docs?include_docs=true", "_users/_changes?include_docs=true"} {
		answer := node.ask(http.StatusOK, http.MethodGet, list, "")
		require.Contains(t, answer, `"totp_of":"nobody"`)
	}
	require.Zero(t, node.end(syscall.SIGTERM))

	file.write("newer")
	_, errs, status = secrets("forget", "new")
	require.Zero(t, status, errs)
	node = serveNode(t, store, idle, file.set())
	require.Equal(t, http.StatusUnauthorized, login(), "as one that there is not")
	require.Eventually(t, func() bool { // the log arrives through a pipe
		return strings.Contains(node.logged(), "the document of a user cannot be decrypted")
	}, limit, 5*time.Millisecond)
	answer := node.ask(http.StatusInternalServerError, http.MethodGet, path, "")
	require.Contains(t, answer, `sealed with the key \"new\"`)
	answer = node.ask(http.StatusOK, http.MethodGet, "_users/_all_docs", "")
	rev := regexp.MustCompile(`"rev":"([^"]+)"`).FindStringSubmatch(answer)
	require.NotNil(t, rev, answer)
	node.ask(http.StatusCreated, http.MethodPut, path, fmt.Sprintf(document, `,"_rev":"`+rev[1]+`"`))
	require.Equal(t, http.StatusOK, login())
	require.Zero(t, node.end(syscall.SIGTERM))
	out, errs, status = secrets("reseal")
	require.Zero(t, status, errs+out)
}

func TestBadKeyFiles(t *testing.T) {
	t.Parallel()
	file := newKeyFile(t, "a")
	require.NoError(t, os.Chmod(file.path, 0o644)) //nolint:gosec // the test needs a file that others may read
	_, errs, status := settee(t, "serve", "--store", "mem:", "--set", "chttpd/port=0", "--set", file.set())
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, "chmod 600")
	require.NoError(t, os.WriteFile(file.path, []byte("# a comment\na c2VjcmV0LXRoYXQtbm9ib2R5LXNlZXM=\n"), 0o600))
	require.NoError(t, os.Chmod(file.path, 0o600))
	_, errs, status = settee(t, "serve", "--store", "mem:", "--set", "chttpd/port=0", "--set", file.set())
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, file.path+":2: the key must have 32 bytes")
	require.NotContains(t, errs, "c2VjcmV0")
}
