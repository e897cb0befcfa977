package couchtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"settee/internal/servers"
	"settee/internal/testkit"
)

// CouchDBVariable is the environment variable with the URL of a CouchDB for tests: its root, with an administrator's
// name and password. It may also be the path of a file with the URL. Tests create databases there and remove them.
const CouchDBVariable = "SETTEE_TEST_COUCHDB"

// CouchDB is a running CouchDB 3.5 with an administrator.
type CouchDB struct {
	// URL is the server's root, without a slash at its end and without credentials.
	URL string
	// Username and Password are the administrator's.
	Username, Password string

	// Process is the server if this process started it, otherwise nil. The server ends when nothing refers to it.
	Process *servers.CouchDB
}

// Peer is a server with databases to replicate: a [Server] or a [CouchDB].
type Peer interface {
	// DB creates a database with a unique name, and returns its URL, with credentials if the server requires them.
	DB(t testing.TB, name string) string
	// Remove deletes the database at a URL, for example one that a replication created. It also works while t ends.
	Remove(t testing.TB, dbURL string)
}

// Each runs a test with each kind of peer, as subtests. It skips CouchDB if none is installed.
func Each(t *testing.T, test func(t *testing.T, peer Peer)) {
	t.Run("PouchDB Server", func(t *testing.T) { test(t, Shared(t)) })
	t.Run("CouchDB", func(t *testing.T) { test(t, SharedCouchDB(t)) })
}

// EachWithAdmin is Each with peers that have an administrator and refuse wrong passwords. The URLs of their databases
// contain the administrator's name and password.
func EachWithAdmin(t *testing.T, test func(t *testing.T, peer Peer)) {
	t.Run("PouchDB Server", func(t *testing.T) { test(t, SharedWithAdmin(t)) })
	t.Run("CouchDB", func(t *testing.T) { test(t, SharedCouchDB(t)) })
}

var sharedCouchDB = sync.OnceValues(openCouchDB)

// SharedCouchDB returns the CouchDB that all tests of this process share: the one in CouchDBVariable, or the installed
// one, which is started for the first test and ends with the process. If there is none and it is not required (see
// package servers), it skips the test.
func SharedCouchDB(t testing.TB) *CouchDB {
	t.Helper()
	testkit.SkipShort(t)
	server, err := sharedCouchDB()
	if err != nil {
		servers.LeaveOut(t, servers.NameCouchDB, err)
	}
	return server
}

func openCouchDB() (*CouchDB, error) {
	named, err := environment(CouchDBVariable)
	if err != nil {
		return nil, err
	}
	if named != "" {
		return namedCouchDB(named)
	}
	dir, err := os.MkdirTemp("", "couchdb-")
	if err != nil {
		return nil, err
	}
	// Not a test's context, because the server outlives the test.
	server, err := servers.StartCouchDB(context.Background(), servers.CouchDBOptions{Dir: dir, Temporary: true})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return ofProcess(server), nil
}

// StartCouchDB starts a CouchDB for t alone, with settings by section and key, and ends it when t ends. It skips t like
// SharedCouchDB.
func StartCouchDB(t testing.TB, settings map[string]map[string]string) *CouchDB {
	t.Helper()
	testkit.SkipShort(t)
	server, err := servers.StartCouchDB(t.Context(), servers.CouchDBOptions{Dir: t.TempDir(), Settings: settings})
	if err != nil {
		servers.LeaveOut(t, servers.NameCouchDB, err)
	}
	t.Cleanup(server.Kill)
	return ofProcess(server)
}

func ofProcess(server *servers.CouchDB) *CouchDB {
	return &CouchDB{URL: server.URL, Username: server.Username, Password: server.Password, Process: server}
}

// namedCouchDB parses the URL of a CouchDB and checks that the server answers.
func namedCouchDB(named string) (*CouchDB, error) {
	u, err := url.Parse(named)
	if err != nil || u.User == nil || u.Host == "" {
		return nil, fmt.Errorf("%s is not a URL with a name and a password", CouchDBVariable)
	}
	password, _ := u.User.Password()
	c := &CouchDB{URL: u.Scheme + "://" + u.Host, Username: u.User.Username(), Password: password}
	switch status, body, err := c.do(context.Background(), http.MethodGet, "/_session", nil); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", CouchDBVariable, err)
	case status != http.StatusOK || !bytes.Contains(body, []byte(`"_admin"`)):
		return nil, fmt.Errorf("%s: %s answers %d, or its user is no administrator", CouchDBVariable, c.URL, status)
	}
	return c, nil
}

// DB implements [Peer]. The URL has the administrator's name and password. The database is removed when t ends.
func (c *CouchDB) DB(t testing.TB, name string) string {
	t.Helper()
	return c.DBWith(t, name, "")
}

// DBWith creates a database as DB does, with a query such as "partitioned=true&q=4".
func (c *CouchDB) DBWith(t testing.TB, name, query string) string {
	t.Helper()
	// Other processes use the same server.
	path := "/" + url.PathEscape(strings.ToLower(name+"-"+rand.Text()))
	c.Do(t, http.MethodPut, path+"?"+query, nil, http.StatusCreated)
	u := As(c.URL+path, c.Username, c.Password)
	t.Cleanup(func() { c.Remove(t, u) })
	return u
}

// Remove implements [Peer].
func (c *CouchDB) Remove(t testing.TB, dbURL string) {
	t.Helper()
	c.Do(t, http.MethodDelete, parsed(dbURL).EscapedPath(), nil, http.StatusOK)
}

// Do makes a request as the administrator, with a JSON body (nil for none), and returns the body of the answer. The
// status must be want.
func (c *CouchDB) Do(t testing.TB, method, path string, body []byte, want int) []byte {
	t.Helper()
	// Works even after the test's context has ended.
	status, answer, err := c.do(context.WithoutCancel(t.Context()), method, path, body)
	if err != nil || status != want {
		t.Fatalf("%s %s: status %d instead of %d, body %q, error %v", method, path, status, want, answer, err)
	}
	return answer
}

func (c *CouchDB) do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	return roundTrip(ctx, method, As(c.URL, c.Username, c.Password)+path, body)
}
