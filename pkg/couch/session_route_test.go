package couch_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/outbound"
)

// wrapped is a transport around another one, like a node's, that counts requests.
type wrapped struct{ http.RoundTripper }

// Jobs of several users connect to one server with the same name and password, one of them through its own proxy, which
// answers in the server's name. The proxy's answers about the server and its sessions affect this job only.
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
			var authorized []string // Authorization headers of logins
			var opened atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, _, basic := r.BasicAuth(); basic && r.URL.Path == "/_session" {
					door.mu.Lock()
					authorized = append(authorized, r.Header.Get("Authorization"))
					door.mu.Unlock()
				}
				door.ServeHTTP(w, r)
			}))
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					opened.Add(1)
				}
			}
			server.Start()
			t.Cleanup(server.Close)
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

			pool := outbound.NewPool(outbound.PoolOptions{})
			t.Cleanup(pool.Close)
			var sessions couch.Sessions
			by := func(proxy string) *couch.Database {
				transport, err := pool.Transport(outbound.TransportOptions{Proxy: proxy})
				require.NoError(t, err)
				return open(t, server.URL+"/db", noRetries, func(cfg *couch.Config) {
					cfg.Transport, cfg.Proxy = wrapped{transport}, proxy
					cfg.Username, cfg.Password, cfg.Sessions = "me", "s3cret", &sessions
				})
			}
			for range 2 {
				_, _ = by(hostile.URL).Info(t.Context()) // with any result
			}
			_, logins := door.since()
			require.Zero(t, logins)
			require.Zero(t, opened.Load())

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
			require.EqualValues(t, 2, opened.Load(), "connections are not shared either")
		})
	}
}
