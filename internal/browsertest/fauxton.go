package browsertest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"settee/internal/testkit"
)

// installed returns the path of a file or directory of an installed npm package.
func installed(t testing.TB, path ...string) string {
	t.Helper()
	root, err := testkit.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	found := filepath.Join(append([]string{root, "internal", "browsertest", "node_modules"}, path...)...)
	if _, err := os.Stat(found); err != nil {
		t.Fatalf("%s is not installed: run make test, or npm ci in internal/browsertest", path[0])
	}
	return found
}

// Fauxton returns the URL of CouchDB's pages for a node: a server with the pages below /_utils, which sends all other
// requests to the node.
func Fauxton(t testing.TB, node *url.URL) string {
	t.Helper()
	pages := installed(t, "fauxton", "dist", "release")
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
