package frontend

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"github.com/rs/zerolog"
)

// connections bounds how many clients are connected at a time, and how many of their
// requests are being answered. When there are too many, those that have waited longest
// without a request are closed for those that come: idle ones, and those that take their
// time to send a request. So nobody keeps others out who is not being answered.
type connections struct {
	most func() int // both bounds
	log  zerolog.Logger

	mu       sync.Mutex // never held during I/O
	open     map[net.Conn]*connection
	waiting  list.List // of *connection, the longest first
	requests int
	full     bool // it was logged
}

// connection is one of a client. It is guarded by connections.mu.
type connection struct {
	net.Conn
	requests int
	waits    *list.Element // nil while it has a request, or is closed
}

type connectionKey struct{}

// accept takes a connection in. It is http.Server.ConnContext.
func (c *connections) accept(ctx context.Context, conn net.Conn) context.Context {
	most := c.most()
	var surplus []net.Conn
	taken := &connection{Conn: conn}
	c.mu.Lock()
	if c.open == nil {
		c.open = make(map[net.Conn]*connection)
	}
	for len(c.open) >= most && c.waiting.Len() > 0 {
		longest := c.waiting.Front().Value.(*connection)
		c.forget(longest)
		surplus = append(surplus, longest.Conn)
	}
	refused := len(c.open) >= most
	tell := refused && !c.full
	c.full = refused
	if refused {
		surplus = append(surplus, conn)
	} else {
		c.open[conn] = taken
		taken.waits = c.waiting.PushBack(taken)
	}
	c.mu.Unlock()

	if tell {
		c.log.Warn().Int("connections", most).Msg("connections are refused: there are as many as [chttpd] max_connections allows, each with a request")
	}
	for _, conn := range surplus {
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn() // without a farewell, for which it would wait
		}
		_ = conn.Close()
	}
	return context.WithValue(ctx, connectionKey{}, taken)
}

// forget takes a connection out of the count.
func (c *connections) forget(conn *connection) {
	delete(c.open, conn.Conn)
	if conn.waits != nil {
		c.waiting.Remove(conn.waits)
		conn.waits = nil
	}
}

// note is told when a connection ends. It is http.Server.ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[conn]; known != nil {
		c.forget(known)
	}
}

// begin is told of a request, and reports whether it may be answered. The caller calls end
// when it has been, either way.
func (c *connections) begin(ctx context.Context) (ok bool, end func()) {
	most := c.most()
	conn, _ := ctx.Value(connectionKey{}).(*connection) // none in a test without a server
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	if conn != nil {
		conn.requests++
		if conn.waits != nil {
			c.waiting.Remove(conn.waits)
			conn.waits = nil
		}
	}
	return c.requests <= most, func() { c.end(conn) }
}

func (c *connections) end(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests--
	if conn == nil {
		return
	}
	conn.requests--
	if conn.requests == 0 && c.open[conn.Conn] == conn {
		conn.waits = c.waiting.PushBack(conn)
	}
}
