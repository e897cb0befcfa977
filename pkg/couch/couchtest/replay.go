package couchtest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
)

// Received is a request that a [ReplayServer] answered.
type Received struct {
	Method string
	Target string // path and query, as on the request line
	Header http.Header
	Body   []byte
}

// ReplayServer answers requests with prepared bytes, whatever the requests are.
type ReplayServer struct {
	// URL is the server's root, without a slash at its end.
	URL string

	mu       sync.Mutex
	answers  [][]byte
	received []Received
}

// Replay starts a server that answers the n-th request with the recorded response of the n-th number, and closes the
// connection after each. It closes the connections of later requests at once. It stops when t ends.
func Replay(t testing.TB, numbers ...int) *ReplayServer {
	t.Helper()
	var answers [][]byte
	for _, number := range numbers {
		answers = append(answers, Recorded(t, number).Response)
	}
	return ReplayBytes(t, answers...)
}

// ReplayBytes is [Replay] with the bytes of the answers: status line, headers and body.
func ReplayBytes(t testing.TB, answers ...[]byte) *ReplayServer {
	t.Helper()
	s := &ReplayServer{answers: answers}
	listener, err := net.Listen("tcp", net.JoinHostPort(ownAddress(), "0"))
	if err != nil {
		t.Fatalf("starting a server: %v", err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: s}}
	server.Start()
	s.URL = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if t.Failed() {
			for _, r := range s.Received() {
				t.Logf("%s received %s %s from %q", s.URL, r.Method, r.Target, r.Header.Get("User-Agent"))
			}
		}
	})
	return s
}

// ownAddress returns a random loopback address on systems that have many. A client of another server, which may have
// ended on the same port, must not receive a prepared answer.
func ownAddress() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// Received returns the answered requests in order.
func (s *ReplayServer) Received() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Received(nil), s.received...)
}

// ServeHTTP answers a request. The client sees a failure as a closed connection.
func (s *ReplayServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	s.received = append(s.received, Received{Method: r.Method, Target: r.RequestURI, Header: r.Header, Body: body})
	var answer []byte
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	_, _ = conn.Write(answer)
}
