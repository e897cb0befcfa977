package couch_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
)

// Jobs of several users go to one server, with the same name and password: one through a proxy of its own that
// answers in the server's name. What that says of the server, and of sessions there, counts for this job alone.
func TestAProxyMisleadsOnlyItsOwnJobs(t *testing.T) {
	t.Parallel()
	for name, login := range map[string]http.HandlerFunc{
		"a planted cookie": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Set-Cookie", "AuthSession=planted; Max-Age=600")
			_, _ = io.WriteString(w, `{"ok":true}`)
		},
		"no sessions": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":"not_found","reason":"missing"}`, http.StatusNotFound)
		},
		"a wrong password": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, refusedBody, http.StatusUnauthorized)
		},
		"a login that takes basic authentication": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			}
			http.Error(w, refusedBody, http.StatusUnauthorized)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			door := &doorman{}
			var authorized []string // what logins had besides their body
			server := newCounted(t, func(w http.ResponseWriter, r *http.Request) {
				if _, _, basic := r.BasicAuth(); basic && r.URL.Path == "/_session" {
					door.mu.Lock()
					authorized = append(authorized, r.Header.Get("Authorization"))
					door.mu.Unlock()
				}
				door.ServeHTTP(w, r)
			})
			hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/_session" {
					login(w, r)
					return
				}
				w.Header().Set("Set-Cookie", "AuthSession=planted later; Max-Age=600")
				_, _ = io.WriteString(w, dbInfo)
			}))
			t.Cleanup(hostile.Close)
			forward := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: &http.Transport{}}
			t.Cleanup(forward.Transport.(*http.Transport).CloseIdleConnections)
			honest := httptest.NewServer(forward)
			t.Cleanup(honest.Close)

			pool, _ := newPool(t, couch.PoolOptions{})
			var sessions couch.Sessions
			by := func(proxy string) *couch.Database {
				return through(t, pool, server.URL+"/db", couch.TransportOptions{Proxy: proxy}, func(cfg *couch.Config) {
					cfg.Username, cfg.Password, cfg.Sessions = "me", "s3cret", &sessions
				})
			}
			for range 2 {
				_, _ = by(hostile.URL).Info(t.Context()) // with whatever result
			}
			_, logins := door.since()
			require.Zero(t, logins)
			require.Zero(t, server.opened.Load())

			for i, proxy := range []string{honest.URL, ""} {
				for range 2 {
					info(t, by(proxy))
				}
				asked, logins := door.since()
				require.Equal(t, i+1, logins)
				cookie := fmt.Sprint("c", i+1)
				require.Equal(t, []string{cookie, cookie}, asked)
			}
			door.mu.Lock()
			defer door.mu.Unlock()
			require.Empty(t, authorized)
			require.EqualValues(t, 2, server.opened.Load(), "connections are not shared either")
		})
	}
}
