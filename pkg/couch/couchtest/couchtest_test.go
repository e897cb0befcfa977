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
		first, second := Start(t), Start(t)
		require.NotEqual(t, first.URL, second.URL)
		url = first.URL
		db := first.DB(t, "Name")
		require.NotEqual(t, db, first.DB(t, "Name"))
		status, body := get(t, db)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, `"doc_count":0`)
		status, _ = get(t, strings.Replace(db, first.URL, second.URL, 1))
		require.Equal(t, http.StatusNotFound, status)
	})
	_, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.Error(t, err)
}

func TestStartWithAdmin(t *testing.T) {
	t.Parallel()
	server := StartWithAdmin(t, "admin", "p@ss:word")
	db := server.DB(t, "x")
	for password, want := range map[string]int{"p@ss:word": http.StatusOK, "wrong": http.StatusUnauthorized} {
		status, _ := get(t, As(db, "admin", password))
		require.Equal(t, want, status)
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	require.Same(t, Shared(t), Shared(t))
	status, _ := get(t, Shared(t).URL)
	require.Equal(t, http.StatusOK, status)
}

// TestPortTaken puts another server on the port, which must not be mistaken for the server.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	stranger := ReplayBytes(t, []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"))
	server := &Server{URL: stranger.URL}
	require.ErrorIs(t, server.await("identity"), errPortTaken)

	output := filepath.Join(t.TempDir(), "output.txt")
	require.NoError(t, os.WriteFile(output, []byte("Error: Port 1 is already in use."), 0o600))
	server = &Server{URL: "http://127.0.0.1:1", output: output}
	require.ErrorIs(t, server.await("identity"), errPortTaken)
}

func TestNotInstalled(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module x\n"), 0o600))
	t.Chdir(root)
	_, err := start(t.TempDir(), settings{})
	require.ErrorContains(t, err, "make test")
	require.ErrorContains(t, err, "npm ci")
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
