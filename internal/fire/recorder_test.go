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

// write is a request by which a job changes an endpoint.
type write struct {
	at   time.Time // when its header arrived
	pid  int       // of the sending process; 0 if that ended before it was found
	path string    // peer, database and the path in it
}

// recorder proxies the requests of nodes to the endpoints of their jobs, and records all writes.
type recorder struct {
	mu      sync.Mutex
	writes  []write
	cookies map[string]bool // the values of all cookies given to nodes
	held    chan struct{}   // closed when requests for the changes of heldSource are to go on; nil if they may
}

// heldSource is a database of couch0 whose changes a test may hold back.
const heldSource = "held"

// hold holds back the changes of heldSource until release is called.
func (r *recorder) hold() (release func()) {
	held := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.held = nil
		close(held)
	})
}

// awaitRelease waits while a request is held back.
func (r *recorder) awaitRelease(peer string, q *http.Request) {
	if peer != couch0 || q.URL.Path != "/"+heldSource+"/_changes" {
		return
	}
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case <-held:
	case <-q.Context().Done():
	}
}

// writing reports whether a request is a write: of documents, with their attachments, or of a
// checkpoint.
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

// between returns a handler that forwards the requests of nodes to a peer, with a transport for
// the peer.
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
		r.awaitRelease(peer, q)
		proxy.ServeHTTP(w, q)
	})
}

// serve accepts the connections of nodes. owner returns the process of a connection.
func (r *recorder) serve(listener net.Listener, handler http.Handler, owner func(net.Conn) int) *http.Server {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: limit, ErrorLog: stdlog.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, pidKey{}, owner(conn))
		},
	}
	go func() { _ = server.Serve(listener) }() // returns only after Close
	return server
}

// endpoints makes the peers reachable for the nodes: for each node in its own namespace, or for
// all of them on this host.
func (c *cluster) endpoints(nodes ...*node) {
	c.Helper()
	for peer, port := range c.ports {
		handler := c.recorder.between(peer, c.peers[peer], c.toPeers)
		for _, n := range nodes {
			var listener net.Listener
			var err error
			n.space.In(func() { listener, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)) })
			require.NoError(c, err)
			owner := func(net.Conn) int {
				if process, _ := n.now(); process != nil {
					return process.PID()
				}
				return 0
			}
			if n.space.IsHost() {
				owner = ownerOf(nodes)
			}
			server := c.recorder.serve(listener, handler, owner)
			c.Cleanup(func() { _ = server.Close() })
			if n.space.IsHost() {
				break // serves all nodes
			}
		}
	}
}

// ownerOf returns a function that finds the node at the other end of a connection, on this host.
func ownerOf(nodes []*node) func(net.Conn) int {
	return func(conn net.Conn) int {
		table, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			return 0
		}
		// Connections to several peers may have the same port.
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
			files, _ := filepath.Glob("/proc/" + strconv.Itoa(process.PID()) + "/fd/*") // the pattern is valid
			for _, file := range files {
				if to, err := os.Readlink(file); err == nil && to == socket {
					return process.PID()
				}
			}
		}
		return 0
	}
}
