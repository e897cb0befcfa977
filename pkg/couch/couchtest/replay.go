package couchtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Recording is one exchange with a real CouchDB 3.5, byte for byte.
type Recording struct {
	Number   int    // the three digits its files' names begin with
	Name     string // the rest of the name
	Request  []byte
	Response []byte
}

// Recordings reads all exchanges of testdata/wire, in their order.
func Recordings(t testing.TB) []Recording {
	t.Helper()
	return readRecordings(t, "[0-9][0-9][0-9]-*.response")
}

func readRecordings(t testing.TB, pattern string) []Recording {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatalf("reading recordings: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(root, "testdata", "wire", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings %s in testdata/wire: %v", pattern, err)
	}
	var all []Recording
	for _, file := range files {
		stem := file[:len(file)-len(".response")]
		r := Recording{Name: filepath.Base(stem)[len("000-"):]}
		if _, err := fmt.Sscanf(filepath.Base(stem), "%03d-", &r.Number); err != nil {
			t.Fatalf("reading recordings: %s: %v", stem, err)
		}
		if r.Request, err = os.ReadFile(stem + ".request"); err != nil {
			t.Fatalf("reading recordings: %v", err)
		}
		if r.Response, err = os.ReadFile(file); err != nil {
			t.Fatalf("reading recordings: %v", err)
		}
		all = append(all, r)
	}
	return all
}

// Received is a request that a [ReplayServer] answered.
type Received struct {
	Method string
	Target string // path and query, as on the request line
	Header http.Header
	Body   []byte
}

// ReplayServer answers requests with prepared bytes, whatever they ask for.
type ReplayServer struct {
	// URL is the server's root, without a slash at its end.
	URL string

	mu       sync.Mutex
	answers  [][]byte
	received []Received
	open     map[net.Conn]bool // nil once the server stops
}

// Replay starts a server that answers its first request with the recorded response of the first
// number, the second with the second, and so on, closing the connection after each; later requests are
// answered by closing the connection at once. It stops when t ends.
func Replay(t testing.TB, numbers ...int) *ReplayServer {
	t.Helper()
	var answers [][]byte
	for _, number := range numbers {
		answers = append(answers, readRecordings(t, fmt.Sprintf("%03d-*.response", number))[0].Response)
	}
	return ReplayBytes(t, answers...)
}

// ReplayBytes is [Replay] with the answers' bytes given: status line, headers and body.
func ReplayBytes(t testing.TB, answers ...[]byte) *ReplayServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("starting a replay: %v", err)
	}
	s := &ReplayServer{
		URL:     "http://" + listener.Addr().String(),
		answers: answers,
		open:    map[net.Conn]bool{},
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.hold(conn, true)
			running.Go(func() {
				defer s.hold(conn, false)
				s.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		s.closeAll()
		running.Wait()
	})
	return s
}

// hold notes that conn is open, or closes it.
func (s *ReplayServer) hold(conn net.Conn, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open && s.open != nil {
		s.open[conn] = true
		return
	}
	conn.Close()
	delete(s.open, conn)
}

// closeAll ends the connections on which no request has come yet; the others end by themselves.
func (s *ReplayServer) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		conn.Close()
	}
	s.open = nil
}

// Received returns the requests answered so far, in the order in which they came.
func (s *ReplayServer) Received() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Received(nil), s.received...)
}

// serve answers one request. What goes wrong here the client sees too, as a connection that ends.
func (s *ReplayServer) serve(conn net.Conn) {
	request, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.received = append(s.received, Received{
		Method: request.Method, Target: request.RequestURI, Header: request.Header, Body: body,
	})
	var answer []byte
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	_, _ = conn.Write(answer)
}
