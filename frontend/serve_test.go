package frontend_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"settee/frontend"
	"settee/frontend/internal/webtest"
	"settee/pkg/kv/enginetest"
)

func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	n := start(t)
	id := n.post(definition(`"continuous": true`)).LocalID(t)
	for _, path := range []string{
		"/", "//", "/?a=b", "/_up", "//_up/", "/%5Fup", "/_scheduler/jobs", "/_scheduler/jobs/", "//_scheduler//jobs//?limit=1",
		"/_scheduler/jobs/" + id, "/_scheduler/jobs/" + strings.Replace(id, "+", "%2B", 1) + "/",
	} {
		get, head := n.Get(path), n.Do(http.MethodHead, path, "")
		require.Equal(t, http.StatusOK, get.Status, path)
		require.Equal(t, http.StatusOK, head.Status, path)
		require.Empty(t, head.Body)
		require.Equal(t, get.Header.Get("Content-Length"), head.Header.Get("Content-Length"), path)
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "COPY", "get"} {
			got := n.Do(method, path, "")
			webtest.Refused(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "Only GET,HEAD allowed")
			require.Equal(t, "GET,HEAD", got.Header.Get("Allow"))
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		got := n.Do(method, "/_replicate/", definition(""))
		webtest.Refused(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "Only POST allowed")
		require.Equal(t, "POST", got.Header.Get("Allow"))
	}
	require.Equal(t, http.StatusMethodNotAllowed, n.Do(http.MethodHead, "/_replicate", "").Status)

	for path, reason := range map[string]string{
		"/db": "Database does not exist.", "/db/doc": "Database does not exist.", "/_users": "Database does not exist.",
		"/db/_changes": "Database does not exist.", "/_nope/_changes": "there is no such path on this server", "/_nope": "there is no such path on this server",
		"/_scheduler": "there is no such path on this server", "/_scheduler/jobs/a/b": "there is no such path on this server",
		"/_all_dbs/x": "missing", "/_all_dbs/x/y": "missing", "/_dbs_info/x": "missing", // as CouchDB after 3.5.1
		"/_scheduler%2Fjobs": "there is no such path on this server", "/./_up": "Database does not exist.",
	} {
		webtest.Refused(t, n.Get(path), http.StatusNotFound, "not_found", reason)
		require.Equal(t, http.StatusNotFound, n.Do(http.MethodHead, path, "").Status)
	}
	webtest.Refused(t, n.Do(http.MethodPost, "/_dbs_info/x", `{"keys":[]}`), http.StatusNotFound, "not_found", "missing")
	for target, allowed := range map[string]string{"POST /_all_dbs/x": "GET,HEAD", "DELETE /_all_dbs/x/y": "GET,HEAD", "PUT /_dbs_info/x": "GET,HEAD,POST"} {
		method, path, _ := strings.Cut(target, " ")
		got := n.Do(method, path, "")
		webtest.Refused(t, got, http.StatusMethodNotAllowed, "method_not_allowed", "Only "+allowed+" allowed")
		require.Equal(t, allowed, got.Header.Get("Allow"))
	}
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, test := range []struct{ method, target, path string }{
		{http.MethodGet, "/", "/"},
		{http.MethodHead, "/_up", "/_up"},
		{http.MethodGet, "//_scheduler/jobs/?limit=1&token=" + webtest.Secret, "/_scheduler/jobs"},
		{http.MethodGet, "/_scheduler/jobs/http:%2F%2Fu:" + webtest.Secret + "@h%2F", "/_scheduler/jobs/http://u:*****@h/"},
		{http.MethodGet, "/" + strings.Repeat("x", 600), "/" + strings.Repeat("x", 499)},
		{http.MethodPost, "/_replicate", "/_replicate"},
		{http.MethodGet, "/a%0A%00%FFb", "/a\n\x00\uFFFDb"},
	} {
		body := ""
		if test.method == http.MethodPost {
			body = definition(`"continuous": true`)
		}
		got := n.Do(test.method, test.target, body, "Authorization", "Basic "+webtest.Secret, "Cookie", "AuthSession="+webtest.Secret)
		line := n.Journal.Line(t, got.Header.Get("X-Couch-Request-ID"), `"message":"request"`)
		level := "debug"
		if got.Status == http.StatusUnauthorized {
			level = "info"
		}
		require.Equal(t, level, line["level"], test.target)
		require.Equal(t, test.method, line["method"])
		require.Equal(t, test.path, line["path"])
		require.EqualValues(t, got.Status, line["status"])
		require.EqualValues(t, len(got.Body), line["bytes"])
		require.Contains(t, line["remote"], "127.0.0.1:")
		require.Contains(t, line, "duration")
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	log := new(webtest.Journal)
	broken := frontend.New(frontend.Options{Log: zerolog.New(log)})
	server := frontend.NewServer(broken)
	listener := webtest.ListenTCP(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for range 2 { // on one connection
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		response, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, "settee", response.Header.Get("Server"))
		id := response.Header.Get("X-Couch-Request-ID")
		webtest.Refused(t, webtest.Answer{Status: response.StatusCode, Body: string(text)}, http.StatusInternalServerError,
			"internal_server_error", "the request failed; the log of this node says why under request_id "+id)
		line := log.Line(t, id, "panicked")
		require.Equal(t, "error", line["level"])
		require.Contains(t, line["panic"], "nil pointer")
		require.Contains(t, line["stack"], "frontend")
		line = log.Line(t, id, `"message":"request"`)
		require.EqualValues(t, 500, line["status"])
		require.Equal(t, "warn", line["level"])
	}
}

func TestServerLogHasNoCredentials(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.server.ErrorLog.Printf("http: something with http://u:%s@h/ failed", webtest.Secret)
	require.Equal(t, "http: something with http://u:*****@h/ failed", n.Journal.Line(t, "connection failed")["reason"])
}

// Whoever closes its own side of a connection is, for net/http, gone. An empty 200 would tell
// it that what it asked for was done.
func TestClientThatClosesItsSide(t *testing.T) {
	t.Parallel()
	db := enginetest.Control(webtest.Memory(t))
	n := startOn(t, db, webtest.ListenTCP(t))
	n.NewDatabase("db")
	_ = db.HoldBefore()
	for request, body := range map[string]string{
		"GET /db": "", "GET /db/_changes": "", "PUT /other": "", "DELETE /db/a?rev=1-a": "", "POST /_replicate": definition(""),
	} {
		conn := n.Connect()
		conn.Send(fmt.Sprintf("%s HTTP/1.1\r\n"+webtest.RawHead+"Content-Length: %d\r\n\r\n%s", request, len(body), body))
		require.NoError(t, conn.Conn.(*net.TCPConn).CloseWrite())
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Empty(t, string(answer), request)
		require.NoError(t, conn.Close())
	}
}
