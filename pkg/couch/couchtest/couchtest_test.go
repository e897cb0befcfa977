package couchtest

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, u string) (int, string) {
	t.Helper()
	status, body, err := roundTrip(t.Context(), http.MethodGet, u, nil)
	require.NoError(t, err)
	return status, string(body)
}

func TestStart(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("runs", func(t *testing.T) {
		own, other := Start(t), Shared(t)
		require.NotEqual(t, own.URL, other.URL)
		url = own.URL
		db := own.DB(t, "Name")
		require.NotEqual(t, db, own.DB(t, "Name"))
		status, body := get(t, db)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, `"doc_count":0`)
		status, _ = get(t, strings.Replace(db, own.URL, other.URL, 1))
		require.Equal(t, http.StatusNotFound, status)
	})
	_, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.Error(t, err)
}

func TestSharedWithAdmin(t *testing.T) {
	t.Parallel()
	server := SharedWithAdmin(t)
	require.NotEmpty(t, server.Password)
	db := server.DB(t, "x")
	for password, want := range map[string]int{server.Password: http.StatusOK, "wrong": http.StatusUnauthorized} {
		status, _ := get(t, As(db, server.Username, password))
		require.Equal(t, want, status)
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	require.Same(t, Shared(t), Shared(t))
	var db string
	t.Run("makes a database", func(t *testing.T) {
		db = Shared(t).DB(t, "x")
		status, _ := get(t, db)
		require.Equal(t, http.StatusOK, status)
	})
	status, _ := get(t, db)
	require.Equal(t, http.StatusNotFound, status, "it ends with its test")
}

func TestNamedServers(t *testing.T) {
	const both = "http://127.0.0.1:1\nhttp://adm:s3cret%2F@127.0.0.1:2\n"
	file := filepath.Join(t.TempDir(), "urls")
	require.NoError(t, os.WriteFile(file, []byte(both), 0o600))
	for _, value := range []string{both, file} {
		t.Setenv(PouchDBVariable, value)
		server, err := openPouchDB(0, "", "")
		require.NoError(t, err)
		require.Equal(t, &Server{URL: "http://127.0.0.1:1"}, server)
		server, err = openPouchDB(1, "", "")
		require.NoError(t, err)
		require.Equal(t, &Server{URL: "http://127.0.0.1:2", Username: "adm", Password: "s3cret/"}, server)
	}
	for value, want := range map[string]string{
		file + "none": "no such file", "http://127.0.0.1:1": "1 lines", "http://127.0.0.1:1 http://127.0.0.1:2": "line 2 is not",
	} {
		t.Setenv(PouchDBVariable, value)
		_, err := openPouchDB(1, "", "")
		require.ErrorContains(t, err, want)
	}
}

// TestLockFile checks that the lock file pins packages by hash, independent of their origin.
func TestLockFile(t *testing.T) {
	t.Parallel()
	lock, err := os.ReadFile("package-lock.json")
	require.NoError(t, err)
	require.NotContains(t, string(lock), `"resolved"`)
	require.Contains(t, string(lock), `"integrity"`)
}

func TestReplay(t *testing.T) {
	t.Parallel()
	server := Replay(t, 34, 3)
	exchange := func(request string) string {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		return string(answer)
	}
	all := Recordings(t)
	for i, r := range all {
		require.Equal(t, i+1, r.Number)
		require.NotEmpty(t, r.Name)
	}
	require.Equal(t, string(all[33].Response), exchange("GET /a?q=1 HTTP/1.1\r\nHost: x\r\n\r\n"))
	require.Equal(t, string(all[2].Response), exchange("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"))
	require.Empty(t, exchange("GET /c HTTP/1.1\r\nHost: x\r\n\r\n"))
	received := server.Received()
	require.Len(t, received, 3)
	require.Equal(t, "GET /a?q=1", received[0].Method+" "+received[0].Target)
	require.Equal(t, "abc", string(received[1].Body))
	idle, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://")) // does not delay the end
	require.NoError(t, err)
	t.Cleanup(func() { idle.Close() })
}
