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

// Pipe serves hosts, by their names, on connections in memory, and returns a transport to them. In a bubble
// of testing/synctest it is a network whose time is the bubble's. All of it ends with t.
func Pipe(t testing.TB, hosts map[string]http.Handler) *http.Transport {
	t.Helper()
	listeners := map[string]*pipeListener{}
	var running sync.WaitGroup
	var servers []*http.Server
	for host, handler := range hosts {
		listener := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
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
			return listener.dial(ctx)
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

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
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
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
