package outbound

import (
	"errors"
	"net"
	"sync/atomic"
)

// ErrTooManyConnections is the error of a request that needs a connection beyond [PoolOptions].MaxConnections.
var ErrTooManyConnections = errors.New("this node has as many connections as its limit of open files allows")

// places are the connections that a pool may have.
type places struct {
	max  int64 // 0: any number
	open atomic.Int64
}

// take takes a place, and reports whether there was one.
func (p *places) take() bool {
	if p.open.Add(1) <= p.max || p.max == 0 {
		return true
	}
	p.leave()
	return false
}

func (p *places) leave() { p.open.Add(-1) }

// Connections returns the number of open connections.
func (p *Pool) Connections() int64 { return p.places.open.Load() }

// placedConn is a connection that has a place until it is closed.
type placedConn struct {
	net.Conn
	places *places
	closed atomic.Bool
}

// Close implements io.Closer.
func (c *placedConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		defer c.places.leave()
	}
	return c.Conn.Close()
}
