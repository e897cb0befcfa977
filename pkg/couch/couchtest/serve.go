package couchtest

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Serve starts a server that ends with the test, also while it answers requests. A test that ends does not wait for the feeds of a
// node that goes on.
func Serve(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		_ = server.Listener.Close() // so that no client comes back
		server.CloseClientConnections()
		server.Close()
	})
	return server
}
