package servers_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/internal/servers"
	"settee/internal/testkit"
)

// ownerVariable makes the test binary own a server, for TestServersEndWithTheirOwner.
const ownerVariable = "SETTEE_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		owner()
	}
	goleak.VerifyTestMain(m)
}

// release makes a directory that looks like a release of CouchDB whose program is a shell script.
func release(t *testing.T, script string) {
	t.Helper()
	home := t.TempDir()
	for name, text := range map[string]string{
		"bin/couchdb": "#!/bin/sh\n" + script + "\n", "etc/vm.args": "-name couchdb@127.0.0.1\n+K true\n", "etc/default.ini": "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(home, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o700))
	}
	t.Setenv(servers.CouchDBHome, home)
}

func TestCouchDBHomeWithoutRelease(t *testing.T) {
	t.Setenv(servers.CouchDBHome, filepath.Join(t.TempDir(), "nowhere"))
	_, err := servers.StartCouchDB(t.Context(), servers.CouchDBOptions{Dir: t.TempDir()})
	require.ErrorContains(t, err, "nowhere has no CouchDB release")
	assert.NotErrorIs(t, err, servers.ErrNotInstalled, "what was asked for is missing")
}

func TestCouchDBThatExits(t *testing.T) {
	release(t, "echo there is no memory; exit 3")
	_, err := servers.StartCouchDB(t.Context(), servers.CouchDBOptions{Dir: t.TempDir()})
	require.ErrorContains(t, err, "it exited; the end of its log: there is no memory")
	assert.NotContains(t, err.Error(), "\n", "one line")
}

// TestCouchDBPortTaken checks that another server on the port is not mistaken for the new one.
func TestCouchDBPortTaken(t *testing.T) {
	release(t, "exec sleep 1000")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"couchdb":"Welcome","uuid":"of another"}`)
	}))
	defer other.Close()
	port := other.Listener.Addr().(*net.TCPAddr).Port
	_, err := servers.StartCouchDB(t.Context(), servers.CouchDBOptions{Dir: t.TempDir(), Port: port})
	require.ErrorContains(t, err, fmt.Sprintf("starting CouchDB on port %d: another process uses its port", port))
}

func TestStartEndsWithItsContext(t *testing.T) {
	release(t, "exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := servers.StartCouchDB(ctx, servers.CouchDBOptions{Dir: t.TempDir()})
	require.ErrorIs(t, err, context.Canceled)
}

func TestFoundationDBNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := servers.StartFoundationDB(t.Context(), servers.FoundationDBOptions{Dir: t.TempDir()})
	require.ErrorIs(t, err, servers.ErrNotInstalled)
	assert.ErrorContains(t, err, "is not in PATH")
}

func TestFoundationDBClientNotInstalled(t *testing.T) {
	tools := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(tools, "cc"), []byte("#!/bin/sh\necho no such file: fdb_c.h >&2; exit 1\n"), 0o700))
	t.Setenv("PATH", tools)
	err := servers.FindFoundationDBClient()
	require.ErrorIs(t, err, servers.ErrNotInstalled)
	require.ErrorContains(t, err, "no such file: fdb_c.h")
	assert.NotContains(t, err.Error(), "\n", "one line")
}

func TestFoundationDBThatExits(t *testing.T) {
	tools := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(tools, "fdbserver"), []byte("#!/bin/sh\necho no room; exit 1\n"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(tools, "fdbcli"), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	_, err := servers.StartFoundationDB(t.Context(), servers.FoundationDBOptions{Dir: t.TempDir(), Processes: 3})
	require.ErrorContains(t, err, "it exited; the end of its log: no room")
}

func TestChromiumIsNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := servers.StartChromium(t.Context(), t.TempDir())
	require.ErrorIs(t, err, servers.ErrNotInstalled)
	require.EqualError(t, err, "Chromium: none of chromium, chromium-browser, google-chrome is in PATH: not installed")
}

func TestChromiumThatExits(t *testing.T) {
	tools := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(tools, "chromium"), []byte("#!/bin/sh\necho no fonts; exit 1\n"), 0o700))
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	_, err := servers.StartChromium(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "it exited; the end of its log: no fonts")
}

// pouchDB makes a module with a PouchDB Server and a PATH whose node is a shell script.
func pouchDB(t *testing.T, script string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module x\n", "pkg/couch/couchtest/node_modules/pouchdb-server/bin/pouchdb-server": "", "tools/node": "#!/bin/sh\n" + script + "\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o700))
	}
	t.Chdir(root)
	t.Setenv("PATH", filepath.Join(root, "tools")+":"+os.Getenv("PATH"))
}

func TestPouchDBThatExits(t *testing.T) {
	pouchDB(t, "echo no memory; exit 1")
	_, err := servers.StartPouchDB(t.Context(), servers.PouchDBOptions{Dir: t.TempDir()})
	require.ErrorContains(t, err, "it exited; the end of its output: no memory")
}

func TestPouchDBPortTaken(t *testing.T) {
	pouchDB(t, "echo Error: Port 1 is already in use.; exit 1")
	_, err := servers.StartPouchDB(t.Context(), servers.PouchDBOptions{Dir: t.TempDir()})
	require.ErrorContains(t, err, "another process uses its port")
}

func TestPouchDBNotInstalled(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module x\n"), 0o600))
	t.Chdir(root)
	_, err := servers.StartPouchDB(t.Context(), servers.PouchDBOptions{Dir: t.TempDir()})
	require.NotErrorIs(t, err, servers.ErrNotInstalled, "it is never left out")
	require.ErrorContains(t, err, "make test")
	require.ErrorContains(t, err, "npm ci")
}

func TestRequired(t *testing.T) {
	t.Setenv(servers.RequireVariable, "fdb, couchdb chromium")
	for _, name := range []string{servers.NameCouchDB, servers.NameFoundationDB, servers.NameChromium} {
		required, err := servers.Required(name)
		require.NoError(t, err)
		assert.True(t, required, name)
	}
	t.Setenv(servers.RequireVariable, "fdb,couch")
	_, err := servers.Required(servers.NameFoundationDB)
	require.ErrorContains(t, err, `SETTEE_REQUIRE lists "couch": it may list chromium, couchdb, fdb`)
	t.Setenv(servers.RequireVariable, "")
	required, err := servers.Required(servers.NameCouchDB)
	require.NoError(t, err)
	assert.False(t, required)
}

// serverPipe is the file descriptor of a pipe in the owner and the server.
const serverPipe = 3

// owner starts a server with the pipe, reports that, and waits to be killed.
func owner() {
	syscall.CloseOnExec(serverPipe) // not for the guard
	server := exec.Command("sleep", "1000")
	server.ExtraFiles = []*os.File{os.NewFile(serverPipe, "pipe")}
	if _, err := servers.Run(server, os.Getenv(ownerVariable), ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprint(os.Stdout, "started")
	select {}
}

// TestServersEndWithTheirOwner kills a process that owns a server. The server has the only other
// end of a pipe, so the pipe ends with it.
func TestServersEndWithTheirOwner(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer reader.Close()
	own := exec.Command(os.Args[0])
	own.Env = append(os.Environ(), ownerVariable+"="+filepath.Join(t.TempDir(), "output"))
	own.ExtraFiles = []*os.File{writer}
	said, err := own.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, own.Start())
	require.NoError(t, writer.Close())
	line := make([]byte, len("started"))
	_, err = io.ReadFull(said, line)
	require.NoError(t, err)
	require.Equal(t, "started", string(line))

	require.NoError(t, own.Process.Kill())
	_ = own.Wait() // it was killed
	_, err = reader.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)
}

func couchDB(t *testing.T, settings map[string]map[string]string) *servers.CouchDB {
	t.Helper()
	testkit.SkipShort(t)
	server, err := servers.StartCouchDB(t.Context(), servers.CouchDBOptions{Dir: t.TempDir(), Settings: settings})
	if err != nil {
		servers.LeaveOut(t, servers.NameCouchDB, err)
	}
	t.Cleanup(server.Kill)
	return server
}

func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func TestCouchDB(t *testing.T) {
	t.Parallel()
	server := couchDB(t, map[string]map[string]string{"chttpd_auth": {"timeout": "7"}})
	status, value := request(t, http.MethodGet, server.Admin()+"/_node/_local/_config/chttpd_auth/timeout", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, `"7"`, strings.TrimSpace(value))
	status, _ = request(t, http.MethodGet, server.URL+"/_all_dbs", "")
	assert.Equal(t, http.StatusUnauthorized, status, "without the administrator's name")
	status, said := request(t, http.MethodPut, server.Admin()+"/kept", "")
	require.Equal(t, http.StatusCreated, status, said)
	status, said = request(t, http.MethodPut, server.Admin()+"/kept/doc", `{"a":1}`)
	require.Equal(t, http.StatusCreated, status, said)

	server.Kill()
	// Another process, which does not answer, uses the port for a while.
	if other, err := net.Listen("tcp", strings.TrimPrefix(server.URL, "http://")); err == nil {
		var leaving sync.WaitGroup
		defer leaving.Wait()
		leaving.Go(func() {
			defer other.Close()
			assert.Eventually(t, func() bool {
				log, err := server.Log()
				return err == nil && strings.Contains(log, "eaddrinuse")
			}, 2*time.Minute, 50*time.Millisecond)
		})
	}
	require.NoError(t, server.Start(t.Context()))
	_, doc := request(t, http.MethodGet, server.Admin()+"/kept/doc", "")
	assert.Contains(t, doc, `"a":1`)
	require.NoError(t, server.Freeze())
	require.NoError(t, server.Thaw())
	status, _ = request(t, http.MethodGet, server.Admin()+"/kept", "")
	assert.Equal(t, http.StatusOK, status)
}

func TestFoundationDB(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	cluster, err := servers.StartFoundationDB(t.Context(), servers.FoundationDBOptions{Dir: t.TempDir(), Processes: 3, Disk: true})
	if err != nil {
		servers.LeaveOut(t, servers.NameFoundationDB, err)
	}
	t.Cleanup(cluster.Stop)
	// After each change the cluster takes some seconds to recruit other processes; fdbcli times
	// out meanwhile.
	answers := func(command, want string) {
		t.Helper()
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			printed, err := cluster.CLI(context.Background(), command)
			assert.NoError(t, err)
			assert.Contains(t, printed, want)
		}, 2*time.Minute, 50*time.Millisecond)
	}
	answers("writemode on; set kept yes", "Committed")
	cluster.Kill(1)
	answers("get kept", "is `yes'")
	require.NoError(t, cluster.Start(1))
	require.NoError(t, cluster.Freeze(2))
	answers("get kept", "is `yes'")
	require.NoError(t, cluster.Thaw(2))
}
