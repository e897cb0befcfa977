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
)

const (
	// startLimit is how long a server may take to answer its first request. It takes a second on an
	// idle machine; the bound is there to end a test that would otherwise wait for ever.
	startLimit = 60 * time.Second
	// portTries is how often a start is repeated when another process took the free port first.
	portTries = 5
)

var errPortTaken = errors.New("another process took its port")

// Server is a running PouchDB Server.
type Server struct {
	// URL is the server's root, without a slash at its end and without credentials.
	URL string
	// Username and Password are the admin's, and empty in an admin party (where everyone is admin).
	Username, Password string

	command *exec.Cmd
	stdin   io.Closer // the process ends with it
	output  string    // the file with what the process printed
	names   atomic.Int64
}

// Option changes how a server is started.
type Option func(*settings)

type settings struct {
	username, password string
	ownDir             bool // the process removes its directory when it leaves
}

// WithAdmin gives the server an admin, so that it refuses wrong passwords, and refuses everyone else
// what only an admin may do.
func WithAdmin(username, password string) Option {
	return func(s *settings) { s.username, s.password = username, password }
}

// Start starts a server of its own for t, and stops it when t ends. It fails t if the server does not
// answer within a minute.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	var s settings
	for _, option := range options {
		option(&s)
	}
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

var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared returns the one server that all tests of this process share, starting it for the first of
// them. It lives as long as the test process: it leaves when its standard input closes.
// Use [Server.DB] to stay out of other tests' way.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() {
		var dir string
		if dir, shared.err = os.MkdirTemp("", "couchtest-"); shared.err == nil {
			shared.server, shared.err = start(dir, settings{ownDir: true})
		}
	})
	if shared.err != nil {
		t.Fatalf("starting PouchDB Server: %v", shared.err)
	}
	return shared.server
}

// DB implements [Peer]. The URL has the admin's name and password if there is an admin. The database ends with the
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

// do makes a request for a database as the admin. The status of the answer must be want.
func (s *Server) do(t testing.TB, method, dbURL string, want int) {
	t.Helper()
	// Also while a test ends, when its context has ended.
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, dbURL, nil)
	if err != nil {
		t.Fatalf("%s %s: %v", method, redacted(dbURL), err)
	}
	if s.Username != "" {
		request.SetBasicAuth(s.Username, s.Password)
	}
	status, body, err := roundTrip(request)
	if err != nil || status != want {
		t.Fatalf("%s %s: status %d instead of %d, body %q, error %v; the server printed: %s",
			method, redacted(dbURL), status, want, body, err, s.Output())
	}
}

// Output returns what the server printed so far.
func (s *Server) Output() string {
	b, err := os.ReadFile(s.output)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// start runs a server in dir, trying another port when the first is taken by someone else in between.
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
		// The server takes its identity from its configuration, so that whoever answers on the port can
		// be told from a stranger.
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

// launch starts the process on a port that was free a moment ago.
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
		// The server was written when an unhandled rejection was a warning; some requests cause one.
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

// await returns when the server answers as identity.
func (s *Server) await(identity string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/", nil)
		if err != nil {
			return err
		}
		_, body, err := roundTrip(request)
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

// roundTrip makes one request on a connection of its own and returns the status and the body.
func roundTrip(request *http.Request) (int, []byte, error) {
	request.Close = true
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, body, err
}

// packageDir is this package's directory in the source tree, found from the module's root: a test runs
// in its own package's directory, somewhere below that.
func packageDir() (string, error) {
	root, err := moduleRoot()
	return filepath.Join(root, "pkg", "couch", "couchtest"), err
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}
