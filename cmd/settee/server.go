package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// server is an HTTP server and its listeners.
type server struct {
	*http.Server
	wrap    func(net.Listener) net.Listener // if not nil, returns the listener to accept connections from
	serving sync.WaitGroup
}

// listen calls serve with a new listener, in a goroutine, and returns the listener's address. It calls failed if serve
// ends before the server does.
func (s *server) listen(
	ctx context.Context, at netip.AddrPort, serve func(net.Listener) error, failed func(error),
) (address string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
	if err != nil {
		return "", err
	}
	address = listener.Addr().String()
	if s.wrap != nil {
		listener = s.wrap(listener)
	}
	s.serving.Go(func() {
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	})
	return address, nil
}

// serveTLS serves with the certificates of TLSConfig.
func (s *server) serveTLS(listener net.Listener) error { return s.ServeTLS(listener, "", "") }

// refuse closes the listeners. Active requests continue.
func (s *server) refuse() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Shutdown(ended) // with an ended context it only closes the listeners
}

// stop closes the listeners and waits for the active requests. When ctx ends, it cuts them off and returns ctx's error.
func (s *server) stop(ctx context.Context) error {
	err := errors.Join(s.Shutdown(ctx), s.Close())
	s.serving.Wait()
	return err
}
