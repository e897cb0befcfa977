//go:build fdb && fire

package fire

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

// write is a request with which a job changes an endpoint.
type write struct {
	at   time.Time // when its head came
	pid  int       // of the process that sent it; 0 if that has ended before it was known
	path string    // the peer, the database and what is below it
}

// recorder stands between the nodes and the endpoints of their jobs, and keeps all writes.
type recorder struct {
	mu      sync.Mutex
	writes  []write
	cookies map[string]bool // the values of all that were given to nodes
}

// writing are the requests that change something: documents in bulk or alone, with their attachments, and checkpoints.
func writing(r *http.Request) bool {
	switch r.Method {
	case http.MethodPut, http.MethodDelete:
		return true
	case http.MethodPost:
		return strings.HasSuffix(r.URL.Path, "/_bulk_docs")
	}
	return false
}

type pidKey struct{}

// between returns a handler that passes the requests of nodes on to a peer. The transport reaches it.
func (r *recorder) between(peer string, to *url.URL, transport http.RoundTripper) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1, // changes feeds
		ErrorLog:      stdlog.New(io.Discard, "", 0),
		ModifyResponse: func(response *http.Response) error {
			for _, cookie := range response.Cookies() {
				if len(cookie.Value) > 0 {
					r.mu.Lock()
					r.cookies[cookie.Value] = true
					r.mu.Unlock()
				}
			}
			return nil
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if writing(q) {
			pid := q.Context().Value(pidKey{}).(int)
			r.mu.Lock()
			r.writes = append(r.writes, write{time.Now(), pid, peer + q.URL.EscapedPath()})
			r.mu.Unlock()
		}
		proxy.ServeHTTP(w, q)
	})
}

// serve accepts the connections of nodes. owner says which process has a connection.
func (r *recorder) serve(listener net.Listener, handler http.Handler, owner func(net.Conn) int) *http.Server {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: limit, ErrorLog: stdlog.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, pidKey{}, owner(conn))
		},
	}
	go func() { _ = server.Serve(listener) }() // it ends by Close only
	return server
}

// endpoints lets the nodes reach the peers: each node in its own namespace, or all of them here.
func (c *cluster) endpoints(nodes ...*node) {
	c.Helper()
	for peer, port := range c.ports {
		handler := c.recorder.between(peer, c.peers[peer], c.toPeers)
		for _, n := range nodes {
			var listener net.Listener
			var err error
			n.in(func() { listener, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)) })
			require.NoError(c, err)
			owner := func(net.Conn) int {
				if process, _ := n.now(); process != nil {
					return process.PID()
				}
				return 0
			}
			if n.space == nil {
				owner = ownerOf(nodes)
			}
			server := c.recorder.serve(listener, handler, owner)
			c.Cleanup(func() { _ = server.Close() })
			if n.space == nil {
				break // for all
			}
		}
	}
}

// ownerOf finds the node whose process has the other end of a connection, among those of this host.
func ownerOf(nodes []*node) func(net.Conn) int {
	return func(conn net.Conn) int {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			return 0
		}
		// A port alone may be that of connections to several peers.
		end := func(address net.Addr) string {
			return fmt.Sprintf("[0-9A-F]{8}:%04X ", address.(*net.TCPAddr).Port)
		}
		line := regexp.MustCompile(`(?m)^ *\d+: ` + end(conn.RemoteAddr()) + end(conn.LocalAddr()) + `(?:\S+ +){6}(\d+)`)
		found := line.FindSubmatch(table)
		if found == nil {
			return 0
		}
		socket := "socket:[" + string(found[1]) + "]"
		for _, n := range nodes {
			process, _ := n.now()
			if process == nil {
				continue
			}
			files, _ := filepath.Glob("/proc/" + strconv.Itoa(process.PID()) + "/fd/*") // the pattern is well-formed
			for _, file := range files {
				if to, err := os.Readlink(file); err == nil && to == socket {
					return process.PID()
				}
			}
		}
		return 0
	}
}
