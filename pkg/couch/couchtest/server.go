package couchtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"settee/internal/servers"
	"settee/internal/testkit"
)

const (
	// startLimit is the time limit for a server's first answer. It takes a second on an idle machine. The limit only
	// prevents a test from waiting for ever.
	startLimit = 5 * time.Minute
	// portTries is the number of starts when other processes take the free port first.
	portTries = 5
)

var errPortTaken = errors.New("another process took its port")

// Server is a running PouchDB Server.
type Server struct {
	// URL is the server's root, without a slash at its end and without credentials.
	URL string
	// Username and Password are the administrator's, or empty in an admin party (where everyone is admin).
	Username, Password string

	command *exec.Cmd
	stdin   io.Closer // the process ends with it
	output  string    // file with the output of the process
	names   atomic.Int64
}

// settings say how a server is started.
type settings struct {
	username, password string // the administrator's; empty for an admin party
	ownDir             bool   // the process removes its directory at its end
}

// Start starts a server for t alone, and stops it when t ends. It fails t if the server does not answer within five
// minutes.
func Start(t testing.TB) *Server {
	t.Helper()
	return startFor(t, settings{})
}

// StartWithAdmin is Start for a server with an administrator. It refuses wrong passwords, and reserves some requests
// for the administrator.
func StartWithAdmin(t testing.TB, username, password string) *Server {
	t.Helper()
	return startFor(t, settings{username: username, password: password})
}

func startFor(t testing.TB, s settings) *Server {
	t.Helper()
	testkit.SkipShort(t)
	server, err := start(t.TempDir(), s)
	if err != nil {
		t.Fatalf("starting PouchDB Server: %v", err)
	}
	t.Cleanup(func() {
		if err := server.stop(); err != nil {
			t.Errorf("stopping PouchDB Server: %v", err)
		}
	})
	return server
}

var shared = sync.OnceValues(func() (*Server, error) {
	dir, err := os.MkdirTemp("", "couchtest-")
	if err != nil {
		return nil, err
	}
	return start(dir, settings{ownDir: true})
})

// Shared returns the server that all tests of this process share. It is started for the first of them and ends with the
// process, when its standard input closes. Use [Server.DB] to keep tests apart.
func Shared(t testing.TB) *Server {
	t.Helper()
	testkit.SkipShort(t)
	server, err := shared()
	if err != nil {
		t.Fatalf("starting PouchDB Server: %v", err)
	}
	return server
}

// DB implements [Peer]. The URL has the administrator's name and password if there is one. The database ends with the
// server.
func (s *Server) DB(t testing.TB, name string) string {
	t.Helper()
	u := fmt.Sprintf("%s/%s-%d", s.URL, url.PathEscape(strings.ToLower(name)), s.names.Add(1))
	if s.Username != "" {
		u = As(u, s.Username, s.Password)
	}
	s.do(t, http.MethodPut, u, http.StatusCreated)
	return u
}

// Remove implements [Peer].
func (s *Server) Remove(t testing.TB, dbURL string) {
	t.Helper()
	s.do(t, http.MethodDelete, dbURL, http.StatusOK)
}

// do makes a request. The status of the answer must be want.
func (s *Server) do(t testing.TB, method, dbURL string, want int) {
	t.Helper()
	// Works even after the test's context has ended.
	status, body, err := roundTrip(context.WithoutCancel(t.Context()), method, dbURL, nil)
	if err != nil || status != want {
		t.Fatalf("%s %s: status %d instead of %d, body %q, error %v; the server printed: %s",
			method, redacted(dbURL), status, want, body, err, s.Output())
	}
}

// Output returns the server's output so far.
func (s *Server) Output() string {
	b, err := os.ReadFile(s.output)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// start runs a server in dir. It tries another port if another process took the first one.
func start(dir string, s settings) (*Server, error) {
	home, err := packageDir()
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(home, "node_modules", "pouchdb-server", "bin", "pouchdb-server")
	if _, err := os.Stat(binary); err != nil {
		return nil, errors.New("PouchDB Server is not installed: run make test, or npm ci in pkg/couch/couchtest")
	}
	for try := 1; ; try++ {
		// The server's identity comes from its configuration, so that another server on the port can be detected.
		identity := rand.Text()
		server, err := launch(home, binary, dir, identity, s)
		if err != nil {
			return nil, err
		}
		err = server.await(identity)
		if err == nil {
			return server, nil
		}
		printed := server.Output()
		if stopErr := server.stop(); stopErr != nil {
			return nil, fmt.Errorf("%w; stopping it: %w", err, stopErr)
		}
		if !errors.Is(err, errPortTaken) || try == portTries {
			return nil, fmt.Errorf("%w; it printed: %s", err, printed)
		}
	}
}

// launch starts the process on a port that was free just before.
func launch(home, binary, dir, identity string, s settings) (*Server, error) {
	ports, err := servers.FreePorts(1)
	if err != nil {
		return nil, err
	}
	config := map[string]map[string]string{
		"couchdb": {"uuid": identity},
		"log":     {"file": filepath.Join(dir, "log.txt")},
	}
	if s.username != "" {
		config["admins"] = map[string]string{s.username: s.password}
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), encoded, 0o600); err != nil {
		return nil, err
	}
	output, err := os.Create(filepath.Join(dir, "output.txt"))
	if err != nil {
		return nil, err
	}
	defer output.Close()

	command := exec.Command("node",
		// The server dates from when unhandled rejections were warnings. Some requests cause one.
		"--unhandled-rejections=warn",
		"--require", filepath.Join(home, "exit-with-stdin.js"),
		binary, "--in-memory", "--no-stdout-logs", "--host", "127.0.0.1", "--port", strconv.Itoa(ports[0]))
	command.Dir = dir
	command.Env = append(os.Environ(), "TMPDIR="+dir)
	if s.ownDir {
		command.Env = append(command.Env, "COUCHTEST_REMOVE="+dir)
	}
	command.Stdout, command.Stderr = output, output
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	return &Server{
		URL:      "http://127.0.0.1:" + strconv.Itoa(ports[0]),
		Username: s.username, Password: s.password,
		command: command, stdin: stdin, output: output.Name(),
	}, nil
}

// await returns when the server answers with identity.
func (s *Server) await(identity string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, body, err := roundTrip(ctx, http.MethodGet, s.URL+"/", nil)
		switch {
		case err == nil && bytes.Contains(body, []byte(identity)):
			return nil
		case err == nil, strings.Contains(s.Output(), "already in use"):
			return errPortTaken
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer within %s: %w", startLimit, err)
		case <-tick.C:
		}
	}
}

// stop kills the process and waits for it.
func (s *Server) stop() error {
	defer s.stdin.Close()
	if err := s.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	var exit *exec.ExitError
	if err := s.command.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// roundTrip makes a request on a new connection, with the URL's credentials and a JSON body (nil for none), and returns
// the status and the body of the answer.
func roundTrip(ctx context.Context, method, target string, body []byte) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Close = true
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// packageDir returns this package's directory.
func packageDir() (string, error) {
	root, err := testkit.ModuleRoot()
	return filepath.Join(root, "pkg", "couch", "couchtest"), err
}
