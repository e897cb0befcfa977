package outbound

import (
	"net"
	"sync/atomic"
)

// Traffic is the number of bytes that went through connections, with everything that HTTP and TLS add.
type Traffic struct {
	Received, Sent int64
}

// traffic counts the bytes of the connections of a pool.
type traffic struct {
	received, sent atomic.Int64
}

// Traffic returns what went through the pool's connections so far.
func (p *Pool) Traffic() Traffic {
	return Traffic{Received: p.traffic.received.Load(), Sent: p.traffic.sent.Load()}
}

// countedConn is a connection whose bytes are counted.
type countedConn struct {
	net.Conn
	traffic *traffic
	ahead   *aheadConn // below Conn; nil for none
}

// Read implements io.Reader.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.received.Add(int64(n))
	return n, err
}

// Write implements io.Writer.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.traffic.sent.Add(int64(n))
	return n, err
}
