package couchtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"settee/internal/servers"
	"settee/internal/testkit"
)

// PouchDBVariable is the environment variable with the URLs of two PouchDB Servers for tests, one in each line: the root of
// one in an admin party, and that of one with an administrator, whose name and password it has. It may also be the path of
// a file with them. Tests create databases there and remove them.
const PouchDBVariable = "SETTEE_TEST_POUCHDB"

// Server is a running PouchDB Server.
type Server struct {
	// URL is the server's root, without a slash at its end and without credentials.
	URL string
	// Username and Password are the administrator's, or empty in an admin party (where everyone is admin).
	Username, Password string

	process *servers.PouchDB // nil if another process started it; it ends when nothing refers to it
}

// Start starts a server for t alone, and stops it when t ends. Only tests that change the server's settings need it. It
// fails t if the server does not answer within five minutes.
func Start(t testing.TB) *Server {
	t.Helper()
	testkit.SkipShort(t)
	process, err := servers.StartPouchDB(t.Context(), servers.PouchDBOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Kill)
	return ofPouchDB(process)
}

func ofPouchDB(process *servers.PouchDB) *Server {
	return &Server{URL: process.URL, Username: process.Username, Password: process.Password, process: process}
}

var (
	shared          = sync.OnceValues(func() (*Server, error) { return openPouchDB(0, "", "") })
	sharedWithAdmin = sync.OnceValues(func() (*Server, error) { return openPouchDB(1, "someone", "s3cret-word") })
)

// Shared returns the server that all tests of this process share: the one in PouchDBVariable, or one that is started for
// the first test and ends with the process. Use [Server.DB] to keep tests apart.
func Shared(t testing.TB) *Server {
	t.Helper()
	return opened(t, shared)
}

// SharedWithAdmin is Shared for a server with an administrator. It refuses wrong passwords, and reserves some requests
// for the administrator.
func SharedWithAdmin(t testing.TB) *Server {
	t.Helper()
	return opened(t, sharedWithAdmin)
}

func opened(t testing.TB, open func() (*Server, error)) *Server {
	t.Helper()
	testkit.SkipShort(t)
	server, err := open()
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// openPouchDB returns the server in a line of PouchDBVariable, or starts one, with an administrator if there is a name.
func openPouchDB(line int, username, password string) (*Server, error) {
	named, err := environment(PouchDBVariable)
	if err != nil {
		return nil, err
	}
	if named != "" {
		return namedPouchDB(named, line)
	}
	dir, err := os.MkdirTemp("", "pouchdb-")
	if err != nil {
		return nil, err
	}
	// Not a test's context, because the server outlives the test.
	process, err := servers.StartPouchDB(context.Background(), servers.PouchDBOptions{
		Dir: dir, Temporary: true, Username: username, Password: password,
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return ofPouchDB(process), nil
}

// namedPouchDB parses the URLs of PouchDB Servers.
func namedPouchDB(named string, line int) (*Server, error) {
	lines := strings.Fields(named)
	if len(lines) != 2 {
		return nil, fmt.Errorf("%s has %d lines instead of 2", PouchDBVariable, len(lines))
	}
	u, err := url.Parse(lines[line])
	if err != nil || u.Host == "" || (line == 1) != (u.User != nil) {
		return nil, fmt.Errorf("%s: line %d is not a URL, with a name and a password in the second line only", PouchDBVariable, line+1)
	}
	root, username, password := Credentials(lines[line])
	return &Server{URL: root, Username: username, Password: password}, nil
}

// environment returns the value of an environment variable, or the contents of the file that it names.
func environment(variable string) (string, error) {
	value := os.Getenv(variable)
	if !filepath.IsAbs(value) {
		return value, nil
	}
	contents, err := os.ReadFile(value)
	if err != nil {
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	return string(contents), nil
}

// DB implements [Peer]. The URL has the administrator's name and password if there is one. The database is removed when t
// ends.
func (s *Server) DB(t testing.TB, name string) string {
	t.Helper()
	// Other processes use the same server.
	u := s.URL + "/" + url.PathEscape(strings.ToLower(name+"-"+rand.Text()))
	if s.Username != "" {
		u = As(u, s.Username, s.Password)
	}
	s.do(t, http.MethodPut, u, http.StatusCreated)
	t.Cleanup(func() { s.Remove(t, u) })
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
		t.Fatalf("%s %s: status %d instead of %d, body %q, error %v", method, redacted(dbURL), status, want, body, err)
	}
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
