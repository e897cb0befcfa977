package couchtest

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
)

// Proxy returns a handler that forwards each request to the server of the database at dbURL, with that URL's
// credentials. It answers 502 if the server does not answer.
func Proxy(t testing.TB, dbURL string) http.Handler {
	t.Helper()
	bare, username, password := Credentials(dbURL)
	u := parsed(bare)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: u.Scheme, Host: u.Host})
			if username != "" {
				r.Out.SetBasicAuth(username, password)
			}
		},
		Transport:     transport,
		ErrorLog:      log.New(io.Discard, "", 0), // tests have clients that give up
		FlushInterval: -1,
	}
}
