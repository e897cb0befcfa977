package browsertest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Fauxton returns the URL of CouchDB's pages for a node: a server with the pages below /_utils, which sends all other
// requests to the node.
func Fauxton(t testing.TB, node *url.URL) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	pages := filepath.Join(filepath.Dir(file), "node_modules", "fauxton", "dist", "release")
	if _, err := os.Stat(pages); err != nil {
		t.Fatal("the pages are not installed: run make test, or npm ci in internal/browsertest")
	}
	transport := new(http.Transport)
	paths := http.NewServeMux()
	paths.Handle("/_utils/", http.StripPrefix("/_utils", http.FileServerFS(os.DirFS(pages))))
	paths.Handle("/", &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(node) }})
	server := httptest.NewServer(paths)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return server.URL + "/_utils/"
}
