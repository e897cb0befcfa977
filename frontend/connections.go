package frontend

import (
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/rs/zerolog"
)

// connections bounds how many clients are connected at a time, and how many of their
// requests are being answered. When there are too many, some are closed for those that come:
// first those that have waited longest without a request, idle ones and those that take their
// time to send one, then those whose requests wait longest for more of their bodies. So nobody
// keeps others out who is not being answered.
type connections struct {
	most func() int // both bounds
	log  zerolog.Logger

	mu        sync.Mutex // never held during I/O
	open      map[net.Conn]*connection
	waiting   list.List // of *connection without a request, the longest first
	receiving list.List // of *connection whose requests all wait for their bodies, the longest first
	requests  int
	full      bool // it was logged
}

// connection is one of a client. It is guarded by connections.mu.
type connection struct {
	net.Conn
	requests  int
	receiving int           // of the requests, those that wait for their bodies
	evicted   bool          // it was closed for another one, and its requests do not count any more
	list      *list.List    // that which it is in; nil while it is being answered, or is closed
	place     *list.Element // in it
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
	for len(c.open) >= most {
		evicted := c.evict()
		if evicted == nil {
			break
		}
		surplus = append(surplus, evicted)
	}
	refused := len(c.open) >= most
	tell := refused && !c.full
	c.full = refused
	if refused {
		surplus = append(surplus, conn)
	} else {
		c.open[conn] = taken
		c.settle(taken)
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

// evict returns the connection that is to make room, nil if there is none.
func (c *connections) evict() net.Conn {
	first := c.waiting.Front()
	if first == nil {
		first = c.receiving.Front()
	}
	if first == nil {
		return nil
	}
	conn := first.Value.(*connection)
	conn.evicted = true
	c.requests -= conn.requests // which end as soon as they notice
	c.forget(conn)
	return conn.Conn
}

// forget takes a connection out of the count.
func (c *connections) forget(conn *connection) {
	delete(c.open, conn.Conn)
	c.settle(conn)
}

// settle puts a connection into the list of those that do what it does now, at the end if it
// was in another one.
func (c *connections) settle(conn *connection) {
	var right *list.List
	switch {
	case c.open[conn.Conn] != conn:
	case conn.requests == 0:
		right = &c.waiting
	case conn.receiving == conn.requests: // with HTTP/2 there may be many
		right = &c.receiving
	}
	if right == conn.list {
		return
	}
	if conn.list != nil {
		conn.list.Remove(conn.place)
	}
	conn.list, conn.place = right, nil
	if right != nil {
		conn.place = right.PushBack(conn)
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

// begin is told of a request, and reports whether it may be answered. It puts a body in the
// place of the request's that tells when it is waited for. The caller calls end when the request
// has been answered, either way.
func (c *connections) begin(r *http.Request) (ok bool, end func()) {
	most := c.most()
	conn, _ := r.Context().Value(connectionKey{}).(*connection) // none in a test without a server
	if conn != nil && r.Body != http.NoBody {
		r.Body = &receivedBody{r.Body, c, conn}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn != nil && conn.evicted {
		return false, func() {}
	}
	c.requests++
	if conn != nil {
		conn.requests++
		c.settle(conn)
	}
	return c.requests <= most, func() { c.end(conn) }
}

func (c *connections) end(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn != nil && conn.evicted {
		return
	}
	c.requests--
	if conn != nil {
		conn.requests--
		c.settle(conn)
	}
}

// receive is told when a request begins (1) and ceases (-1) to wait for its body.
func (c *connections) receive(conn *connection, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.receiving += change
	c.settle(conn)
}

// receivedBody is a request's body. Its connection may make room while more of it is waited for,
// and with all that arrives begins to wait anew.
type receivedBody struct {
	io.ReadCloser
	connections *connections
	conn        *connection
}

// Read implements io.Reader.
func (b *receivedBody) Read(p []byte) (int, error) {
	b.connections.receive(b.conn, 1)
	defer b.connections.receive(b.conn, -1)
	return b.ReadCloser.Read(p)
}
