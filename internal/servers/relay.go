package servers

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// relayPiece is the largest piece, in bytes, that a relay passes on at once.
	relayPiece = 32 << 10
	// relayPieces is the number of pieces that may be on their way in one direction of a connection.
	relayPieces = 512
)

// Relay passes TCP connections on to a server, as if it were farther away.
type Relay struct {
	listener net.Listener
	to       string        // the server's address
	trip     time.Duration // the round trip
	running  sync.WaitGroup
	end      context.CancelFunc
}

// StartRelay starts a relay on a free port of 127.0.0.1. A round trip through it takes so much longer.
func StartRelay(ctx context.Context, to string, trip time.Duration) (*Relay, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: listener, to: to, trip: trip}
	ctx, r.end = context.WithCancel(ctx)
	r.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.running.Go(func() { r.pass(ctx, conn) })
		}
	})
	return r, nil
}

// Close ends the relay with its connections.
func (r *Relay) Close() {
	r.listener.Close()
	r.end()
	r.running.Wait()
}

// Address returns the address that clients connect to.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// pass serves one connection. It is made at once, so the first bytes of the client wait for the round trip of its
// handshake, too.
func (r *Relay) pass(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.to)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() {
		client.Close()
		server.Close()
	})()
	handshake := time.Now().Add(r.trip)
	var both sync.WaitGroup
	both.Go(func() { r.carry(server, client, handshake) })
	both.Go(func() { r.carry(client, server, time.Time{}) })
	both.Wait()
}

// piece is data on its way.
type piece struct {
	data []byte
	due  time.Time
}

// carry copies one direction with half the round trip as delay, and not before a time.
func (r *Relay) carry(to, from net.Conn, notBefore time.Time) {
	pieces := make(chan piece, relayPieces)
	var writing sync.WaitGroup
	writing.Go(func() {
		var err error
		for p := range pieces {
			if err != nil {
				continue // from is closed and will end
			}
			time.Sleep(time.Until(p.due))
			if _, err = to.Write(p.data); err != nil {
				from.Close()
			}
		}
		if tcp, ok := to.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	})
	for {
		data := make([]byte, relayPiece)
		n, err := io.ReadAtLeast(from, data, 1)
		if n > 0 {
			now := time.Now()
			if now.Before(notBefore) {
				now = notBefore
			}
			pieces <- piece{data[:n], now.Add(r.trip / 2)}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	writing.Wait()
}
