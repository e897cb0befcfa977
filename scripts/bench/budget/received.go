package budget

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// receivedListener listens for connections that know when their requests came.
type receivedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l receivedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	read, err := reader(conn)
	if err != nil {
		_ = conn.Close() // nothing was read from it
		return nil, err
	}
	return &receivedConn{Conn: conn, read: read}, nil
}

// receivedConn is a connection that knows when this machine received what was read last.
type receivedConn struct {
	net.Conn
	read func([]byte) (n int, at time.Time, err error)
	last atomic.Int64 // nanoseconds since the Unix epoch
}

// Read implements net.Conn.
func (c *receivedConn) Read(p []byte) (int, error) {
	n, at, err := c.read(p)
	if n > 0 {
		c.last.Store(at.UnixNano())
	}
	return n, err
}

type connKey struct{}

// withConn is the ConnContext of an http.Server.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// receivedAt returns when a request came, by its context. There must not be a next one on its connection yet.
func receivedAt(ctx context.Context) time.Time {
	return time.Unix(0, ctx.Value(connKey{}).(*receivedConn).last.Load()) //nolint:forcetypeassert // see withConn
}
