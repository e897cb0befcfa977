package couchtest

import (
	"io"
	"net/http"
	"net/http/httptest"
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
	server := httptest.NewServer(s)
	s.URL = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return s
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
