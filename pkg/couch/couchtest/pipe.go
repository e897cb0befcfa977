package couchtest

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Pipe serves hosts by name on connections in memory, and returns a transport to them. In a bubble of testing/synctest
// the connections use the bubble's time. Everything ends with t.
func Pipe(t testing.TB, hosts map[string]http.Handler) *http.Transport {
	t.Helper()
	listeners := map[string]*PipeListener{}
	var running sync.WaitGroup
	var servers []*http.Server
	for host, handler := range hosts {
		listener := ListenPipe()
		listeners[host] = listener
		server := &http.Server{
			ReadHeaderTimeout: time.Hour,
			ErrorLog:          log.New(io.Discard, "", 0),
			// A connection may outlive its last handler for a while.
			ConnState: func(_ net.Conn, state http.ConnState) {
				switch state {
				case http.StateNew:
					running.Add(1)
				case http.StateClosed, http.StateHijacked:
					running.Done()
				}
			},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				running.Add(1)
				defer running.Done()
				handler.ServeHTTP(w, r)
			}),
		}
		servers = append(servers, server)
		running.Go(func() { _ = server.Serve(listener) })
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(address)
			listener := listeners[host]
			if listener == nil {
				return nil, errors.New("no such host in the pipe: " + host)
			}
			return listener.Dial(ctx)
		},
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   100,
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		for _, server := range servers {
			_ = server.Close()
		}
		running.Wait()
	})
	return transport
}

// PipeListener is a net.Listener of connections in memory. A write blocks until it is read. In a bubble of
// testing/synctest the connections are part of the bubble.
type PipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// ListenPipe returns a listener for [PipeListener.Dial]. The caller must close it.
func ListenPipe() *PipeListener {
	return &PipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects to the listener when it accepts. After Close the error is net.ErrClosed.
func (l *PipeListener) Dial(ctx context.Context) (net.Conn, error) {
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

// Accept implements net.Listener.
func (l *PipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Accepted connections stay open.
func (l *PipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener. The address is valid in a URL, but no server listens there.
func (l *PipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
