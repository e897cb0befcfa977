package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

func TestNameFlags(t *testing.T) {
	t.Parallel()
	for was, is := range map[string]string{
		"parameter `mirror.prefix` is missing":                                                         "--prefix is missing",
		"parameter `mirror.include` names a replicator database: this needs `mirror.replicators` true": "--include names a replicator database: this needs --replicators",
		"parameter `filter` must be a string":                                                          "parameter `filter` must be a string",
	} {
		require.EqualError(t, nameFlags(errors.New(was)), is)
	}
}

func TestShortList(t *testing.T) {
	t.Parallel()
	var l shortList
	require.Empty(t, l.text("things"))
	for i := range shownFailures + 2 {
		l.add(fmt.Sprintf("line %02d", shownFailures+2-i))
	}
	text := l.text("things")
	require.True(t, strings.HasPrefix(text, "line 03\nline 04\n"), text)
	require.True(t, strings.HasSuffix(text, "\n2 more things; --json lists them all\n"), text)
}

// A signal while a server does not yet say who it is ends a command with the status of the signal.
func TestMirrorIsStoppedBeforeTheFirstDatabase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"replicate", "verify"} {
		asked, over := make(chan struct{}, 10), make(chan struct{})
		silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			asked <- struct{}{}
			<-over
		}))
		defer silent.Close()
		defer close(over)
		p := begin(t, "read the password", nil, name, "--mirror", withAdmin(silent.URL+"/"), withAdmin("http://127.0.0.1:1/"))
		<-asked
		assert.Equal(t, 128+int(syscall.SIGTERM), p.end(syscall.SIGTERM), name)
		assert.Contains(t, p.logged(), "stopped before the first database", name)
	}
}

func TestMirrorFlags(t *testing.T) {
	t.Parallel()
	for line, says := range map[string]string{
		"replicate --prefix x":                     "--prefix needs --mirror",
		"replicate --json":                         "--json needs --mirror",
		"verify --databases 3":                     "--databases needs --mirror",
		"replicate --mirror --continuous":          "--continuous cannot be used with --mirror",
		"replicate --mirror --create-target":       "--create-target cannot be used with --mirror",
		"verify --mirror --doc-id x":               "--doc-id cannot be used with --mirror",
		"verify --mirror --since-seq 1":            "--since-seq cannot be used with --mirror",
		"verify --mirror --databases 0":            "--databases must be from 1 to 100",
		"replicate --mirror --databases 101":       "--databases must be from 1 to 100",
		"replicate --mirror --exclude=":            "--exclude must not be empty",
		"replicate --mirror --prefix Upper":        "--prefix must be the beginning of a name of a database",
		"replicate --mirror --include _replicator": "this needs --replicators",
		"replicate --mirror --selector {}x":        "--selector must be a JSON object",
	} {
		_, errs, status := settee(t, append(strings.Fields(line), "http://a.example/", "http://b.example/")...)
		assert.Equal(t, exitUsage, status, line)
		assert.Contains(t, errs, says, line)
	}
	_, errs, status := settee(t, "verify", "--mirror", "http://a.example/", "http://a.example/")
	assert.Equal(t, exitUsage, status)
	assert.Contains(t, errs, "--prefix is missing: the source of the mirror is its target")
}

// objectsIn parses a JSON object per line.
func objectsIn(t *testing.T, out string) (list []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out) {
		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &object), line)
		list = append(list, object)
	}
	return list
}

// nameIn returns the name of the database at a URL.
func nameIn(t *testing.T, dbURL string) string {
	t.Helper()
	u, err := url.Parse(dbURL)
	require.NoError(t, err)
	return strings.TrimPrefix(u.Path, "/")
}

// A server is copied into another one, here into itself with a prefix, and compared with it.
func TestMirrorInTheForeground(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	server := couchtest.As(peer.URL, peer.Username, peer.Password)
	plain, odd, empty := peer.DB(t, "mirrored"), peer.DB(t, "mirrored/a"), peer.DB(t, "mirrored-empty")
	request(t, http.MethodPut, plain+"/a", `{}`)
	request(t, http.MethodPut, odd+"/b", `{}`)
	ask(t, http.StatusOK, http.MethodPut, odd+"/_security", `{"members":{"names":["ann"]}}`)
	prefix := "copies-" + strings.ToLower(nameIn(t, plain)) + "/"
	copyOf := func(dbURL string) string { return server + "/" + url.PathEscape(prefix+nameIn(t, dbURL)) }
	for _, one := range []string{plain, odd, empty} {
		t.Cleanup(func() { peer.Remove(t, copyOf(one)) })
	}
	selection := []string{"--mirror", server, server, "--prefix", prefix, "--exclude", "*-left-out"}
	for _, one := range []string{plain, odd, empty} {
		selection = append(selection, "--include", nameIn(t, one))
	}

	out, errs, status := settee(t, append([]string{"replicate", "--verify"}, selection...)...)
	require.Zero(t, status, errs)
	assert.Regexp(t, `^completed: 3 of 3 databases copied, 0 failed; 2 documents read, 2 written, 0 refused in .*\n`+
		`equal: 3 databases compared, 3 equal, 0 different, 0 failed; 2 revisions checked, 0 missing on the target in .*s\n$`, out)
	require.JSONEq(t, `{"members":{"names":["ann"]}}`, ask(t, http.StatusOK, http.MethodGet, copyOf(odd)+"/_security", ""))

	// What there is, is not copied again.
	request(t, http.MethodPut, plain+"/c", `{}`)
	out, errs, status = settee(t, append([]string{"replicate", "--json"}, selection...)...)
	require.Zero(t, status, errs)
	done := objectsIn(t, out)
	require.Len(t, done, 1)
	require.EqualValues(t, 1, done[0]["docs_written"])
	require.EqualValues(t, 1, done[0]["docs_read"])
	require.Equal(t, "completed", done[0]["outcome"])

	// Differences: a document, an object, and databases that one side lacks.
	request(t, http.MethodPut, plain+"/d", `{}`)
	ask(t, http.StatusOK, http.MethodPut, odd+"/_security", `{}`)
	peer.Remove(t, copyOf(empty))
	extra := server + "/" + url.PathEscape(prefix+"mirrored-extra")
	ask(t, http.StatusCreated, http.MethodPut, extra, "")
	t.Cleanup(func() { peer.Remove(t, extra) })
	all := append([]string{"verify", "--wait", "0s", "--include", "mirrored-extra"}, selection...)
	out, errs, status = settee(t, all...)
	require.Equal(t, exitFindings, status, errs)
	assert.Regexp(t, `^only on the target: the database "`+strings.ReplaceAll(prefix, "/", ".")+`mirrored-extra"\n"`, out)
	assert.Regexp(t, `(?m)^"mirrored-\w+": missing on the target: "d" 1-\w+ \(winner\)$`, out)
	assert.Regexp(t, `(?m)^"mirrored/a-\w+": different _security$`, out)
	assert.Regexp(t, `(?m)^missing on the target: the database "mirrored-empty-\w+"(, created at .*)?$`, out)
	assert.Regexp(t, `different: 3 databases compared, 0 equal, 3 different, 0 failed; 4 revisions checked, 1 missing`, out)
	out, _, status = settee(t, append(all, "--json", "--no-security")...)
	require.Equal(t, exitFindings, status)
	found := objectsIn(t, out)
	require.Len(t, found, 4)
	for _, object := range found {
		delete(object, "created") // depends on the release
	}
	assert.Contains(t, found, map[string]any{"database": prefix + "mirrored-extra", "only": "target"})
	assert.Contains(t, found, map[string]any{"database": nameIn(t, empty), "only": "source"})
	assert.EqualValues(t, 1, found[3]["only_at_target"])
	assert.EqualValues(t, 1, found[3]["equal"])

	// What only the target has counts with --both alone.
	_, errs, status = settee(t, append([]string{"replicate"}, selection...)...)
	require.Zero(t, status, errs)
	_, errs, status = settee(t, all...)
	require.Zero(t, status, errs)
	_, _, status = settee(t, append(all, "--both")...)
	require.Equal(t, exitFindings, status)

	_, errs, status = settee(t, "verify", "--mirror", server, server, "--prefix", prefix, "--include", "no-such-database*")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, "the source has no database that --include and --exclude select")
}

// sick is a server whose databases with some names do not take documents.
type sick struct {
	*httptest.Server
	mu     sync.Mutex
	refuse func(path string) int // the status of writes; 0: they are written, -1: they are not answered
	waits  chan struct{}         // gets a token when a write is not answered
}

func newSick(t *testing.T, server string) *sick {
	forward := couchtest.Proxy(t, server)
	f := &sick{waits: make(chan struct{}, 100)}
	f.Server = couchtest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		status := 0
		if f.refuse != nil && (strings.HasSuffix(r.URL.Path, "/_bulk_docs") || r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/a")) {
			status = f.refuse(r.URL.Path)
		}
		f.mu.Unlock()
		switch {
		case status < 0:
			_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client is gone
			f.waits <- struct{}{}
			<-r.Context().Done()
		case status > 0:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"error":"ill","reason":"it is ill"}`))
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	return f
}

func (f *sick) set(refuse func(path string) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

// A database that fails does not stop the others, and is listed at the end. A command that is stopped goes on where it was.
func TestMirrorFailsAndIsStopped(t *testing.T) {
	t.Parallel()
	peer := couchtest.SharedCouchDB(t)
	server := couchtest.As(peer.URL, peer.Username, peer.Password)
	target := newSick(t, server)
	var names []string
	prefix := ""
	for i := range 3 {
		source := peer.DB(t, fmt.Sprint("mirrorfails", i))
		request(t, http.MethodPut, source+"/a", `{}`)
		names = append(names, nameIn(t, source))
		if prefix == "" {
			prefix = "failing-" + names[0] + "/"
		}
		t.Cleanup(func() { peer.Remove(t, server+"/"+url.PathEscape(prefix+nameIn(t, source))) })
	}
	args := []string{
		"replicate", "--mirror", server, target.URL, "--prefix", prefix,
		"--include", names[0], "--include", names[1], "--include", names[2], "--set", "replicator/retries_per_request=0",
	}
	target.set(func(path string) int {
		if strings.Contains(path, names[1]) {
			return http.StatusInternalServerError
		}
		return 0
	})
	out, errs, status := settee(t, args...)
	require.Equal(t, exitFailed, status, out+errs)
	assert.Regexp(t, `^failed: "`+names[1]+`": .*it is ill.*\nfailed: 2 of 3 databases copied, 1 failed; `, out)
	assert.Contains(t, errs, "1 database could not be copied")
	out, _, _ = settee(t, append(args, "--json")...)
	objects := objectsIn(t, out)
	require.Len(t, objects, 2)
	assert.Equal(t, names[1], objects[0]["database"])
	assert.EqualValues(t, 1, objects[1]["failed"])

	target.set(func(path string) int {
		if strings.Contains(path, names[1]) {
			return -1
		}
		return 0
	})
	stopped := begin(t, "of 3 databases", nil, args...)
	<-target.waits
	assert.Equal(t, 130, stopped.end(syscall.SIGINT))
	assert.Contains(t, stopped.logged(), "stopped; the same command continues from the checkpoints")

	target.set(nil)
	out, errs, status = settee(t, args...)
	require.Zero(t, status, errs)
	assert.Regexp(t, `^completed: 3 of 3 databases copied, 0 failed; 1 documents read, 1 written, 0 refused`, out)
}
