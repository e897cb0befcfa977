package main

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// relayPiece is the largest piece, in bytes, that a relay passes on at once.
	relayPiece = 32 << 10
	// relayPieces is the number of pieces that may be on their way in one direction of a connection.
	relayPieces = 512
)

// relay passes TCP connections on to a server, as if it were farther away.
type relay struct {
	listener net.Listener
	to       string        // the server's address
	trip     time.Duration // the round trip
	resets   int64         // the connection of every such answer is reset; 0 for none

	answers, reset atomic.Int64
	running        sync.WaitGroup
	end            context.CancelFunc
}

// startRelay starts a relay on a free port of 127.0.0.1.
func startRelay(ctx context.Context, to string, trip time.Duration, resets int) (*relay, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: listener, to: to, trip: trip, resets: int64(resets)}
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

// close ends the relay with its connections.
func (r *relay) close() {
	r.listener.Close()
	r.end()
	r.running.Wait()
}

func (r *relay) address() string { return r.listener.Addr().String() }

// pass serves one connection. It is made at once, so the first bytes of the client wait for the round trip of its
// handshake, too.
func (r *relay) pass(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.to)
	if err != nil {
		return
	}
	defer server.Close()
	var closing sync.Once
	abort := func() {
		closing.Do(func() {
			_ = client.(*net.TCPConn).SetLinger(0) // with a reset
			client.Close()
			server.Close()
		})
	}
	defer context.AfterFunc(ctx, abort)()
	var asked atomic.Bool // since the last answer
	handshake := time.Now().Add(r.trip)
	var both sync.WaitGroup
	both.Go(func() {
		r.carry(server, client, handshake, func() { asked.Store(true) })
	})
	both.Go(func() {
		r.carry(client, server, time.Time{}, func() {
			if asked.Swap(false) && r.resets > 0 && r.answers.Add(1)%r.resets == 0 {
				r.reset.Add(1)
				abort()
			}
		})
	})
	both.Wait()
}

// piece is data on its way.
type piece struct {
	data []byte
	due  time.Time
}

// carry copies one direction with half the round trip as delay, and not before a time. It calls seen for each piece.
func (r *relay) carry(to, from net.Conn, notBefore time.Time, seen func()) {
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
			seen()
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
