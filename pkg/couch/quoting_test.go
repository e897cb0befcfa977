package couch_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
)

// otherService returns the address of a service that answers every connection with a text.
func otherService(t *testing.T, text string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096)) // otherwise the client may not get the text
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener.Addr().String()
}

// Who chooses a URL must not read with it what a service says that is no CouchDB, such as one that only the node reaches.
func TestErrorsQuoteNoOtherService(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"ssh":               "SSH-2.0-OpenSSH_9.2 SECRET\r\n",
		"redis":             "-ERR SECRET unknown command\r\n",
		"smtp":              "220 SECRET ESMTP\r\n",
		"version":           "HTTP/SECRET 200 OK\r\n\r\n",
		"status":            "HTTP/1.1 SECRET\r\n\r\n",
		"reason":            "HTTP/1.1 400 SECRET\r\nContent-Length: 0\r\n\r\n",
		"header":            "HTTP/1.1 200 OK\r\nSECRET no colon\r\n\r\n",
		"first header":      "HTTP/1.1 200 OK\r\n SECRET\r\n\r\n",
		"name of a header":  "HTTP/1.1 200 OK\r\nSEC RET\x01: x\r\n\r\n",
		"encoding":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: SECRET\r\n\r\n",
		"length":            "HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\n\r\n",
		"two lengths":       "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: SECRET\r\n\r\n",
		"announced trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length, SECRET\r\n\r\n",
		"trailer":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nSECRET no colon\r\n\r\n",
		"chunk":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nSECRET\r\n",
		"gzip":              "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\nSECRET",
	}
	for _, status := range []int{200, 201, 400, 401, 403, 404, 405, 409, 412, 413, 500, 502} {
		for name, body := range map[string]string{
			"text": "SECRET text", "page": "<html><title>SECRET</title><body>SECRET</body></html>", "number": "7 SECRET",
			"cut":    `{"a":"SECRET`,
			"list":   `["SECRET"]`,
			"api":    `{"error":"SECRET","status":400}`,
			"search": `{"error":{"type":"SECRET","reason":"SECRET"},"status":404}`,
			"object": `{"name":"SECRET","results":"SECRET","last_seq":{"x":"SECRET"}}`,
		} {
			answers[fmt.Sprint(status, " ", name)] = fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s",
				status, http.StatusText(status), len(body), body)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(answers)) {
		if testkit.SkipsCase(i) {
			continue
		}
		text := answers[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := otherService(t, text)
			for _, at := range []struct{ url, proxy string }{
				{"http://" + address + "/db", ""}, {"http://h.example/db", "http://" + address},
				{"https://h.example/db", "http://" + address}, {"http://h.example/db", "socks5://" + address}, {"https://" + address + "/db", ""},
			} {
				cfg := couch.DefaultConfig()
				cfg.URL, cfg.Proxy, cfg.Retries = at.url, at.proxy, 0
				db, err := couch.Open(cfg)
				require.NoError(t, err)
				defer db.Close()
				_, info := db.Info(t.Context())
				_, get := db.Get(t.Context(), "doc")
				_, commit := db.EnsureFullCommit(t.Context())
				changes, feed := db.Changes(t.Context(), couch.ChangesOptions{})
				if feed == nil {
					_, feed = changes.Next()
					changes.Close()
				}
				cfg.URL = strings.TrimSuffix(cfg.URL, "/db")
				server, err := couch.OpenServer(cfg)
				require.NoError(t, err)
				defer server.Close()
				_, list := server.Databases(t.Context(), "")
				_, updates := server.UpdatesLog(t.Context())
				require.Error(t, info)
				for _, err := range []error{info, get, commit, feed, db.Create(t.Context(), nil), list, updates} {
					if err != nil {
						require.NotContains(t, strings.ToUpper(err.Error()), "SECRET", "%v", at)
					}
				}
			}
		})
	}
}
