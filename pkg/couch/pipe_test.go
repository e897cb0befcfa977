package couch_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"

	"settee/pkg/couch"
)

// piped starts a server inside a synctest bubble, on connections that are pipes in memory, and opens a
// database of it. Inside the bubble time passes only while everyone waits.
func piped(t *testing.T, handler http.HandlerFunc, edit ...func(*couch.Config)) *couch.Database {
	t.Helper()
	listener := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	var running sync.WaitGroup // the server and its handlers
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Done()
		handler(w, r)
	})}
	running.Go(func() { _ = server.Serve(listener) })
	transport := &http.Transport{DialContext: listener.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		running.Wait()
	})
	cfg := couch.Config{URL: "http://couch.example/db", Transport: transport}
	for _, e := range edit {
		e(&cfg)
	}
	db, err := couch.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, errors.New("closed")
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
