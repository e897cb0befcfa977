package frontend

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/rs/zerolog"

	"settee/frontend/internal/networks"
)

// maxEnding is how many requests that were told to end may still be at it, beyond the bound. It
// takes most of them less than a millisecond. Of more the slowest lose their connections.
const maxEnding = 100

// connections bounds how many clients are connected at a time, and how many of their
// requests are being answered. When there are too many, others make room for those that come, in
// this order:
//
//   - connections without a request, idle ones and those that take their time to send one: they
//     are closed, the one that has waited longest first
//   - connections whose requests wait for more of their bodies: the same
//   - requests that wait for something to happen (see wait): they are told to end, and do so with
//     a whole answer
//   - connections whose answers have been made and have not all been sent: they are closed
//
// Of those that wait for something to happen, the network that has the most loses the one that has
// waited longest: so no client keeps the others out. What counts is what there is too much of:
// requests where a request comes, connections where a connection comes.
type connections struct {
	most func() int // both bounds
	log  zerolog.Logger

	mu        sync.Mutex // never held during I/O
	open      map[net.Conn]*connection
	waiting   list.List                                    // of *connection without a request, the longest first
	receiving list.List                                    // of *connection whose requests wait, some of them for their bodies, the longest first
	answered  list.List                                    // of *connection whose requests have been answered, before all of it was sent
	parked    [waitKinds]networks.Crowd[*connection]       // whose requests all wait for something to happen
	waits     [waitKinds]networks.Crowd[*connectedRequest] // that wait for something to happen
	requests  int                                          // without those that were told to end
	ending    list.List                                    // of *connectedRequest that were told to end, the longest first
	leaving   list.List                                    // of *connection that are closed when their requests have ended, the longest first
	full      bool                                         // it was logged
}

// errNoRoom is why waiting requests end when others need their place.
var errNoRoom = errors.New("others need the place of this request")

// waitKind is what a request waits for. The first kind makes room first.
type waitKind int

const (
	waitsForChange      waitKind = iota // in a database, to send it
	waitsForReplication                 // to end
	waitKinds
)

// connection is one of a client. It is guarded by connections.mu.
type connection struct {
	net.Conn
	network   string
	idle      bool // no request is being received or answered, says net/http
	requests  int
	receiving int                            // of the requests, those that wait for their bodies
	waits     map[*connectedRequest]struct{} // of the requests, those that wait for something to happen
	ending    int                            // of the requests, those that were told to end
	evicted   bool                           // it was closed for another one, and its requests do not count any more
	leaving   *list.Element                  // in connections.leaving: it does not count any more

	list  *list.List    // that which it is in; nil is none
	place *list.Element // in it
	crowd *networks.Crowd[*connection]
	stall *networks.Member[*connection] // in crowd; nil if it is in none
}

type connectionKey struct{}

// connectedRequest is a request that is being answered. It is guarded by connections.mu.
type connectedRequest struct {
	conn   *connection
	kind   waitKind
	member *networks.Member[*connectedRequest] // of connections.waits; nil: it does not wait
	leave  func()                              // ends its wait
	ending *list.Element                       // in connections.ending: it does not count any more
}

type requestKey struct{}

// room is what is done for others when connections.mu is not held.
type room struct {
	close []net.Conn
	leave []func()
}

func (r *room) make() {
	for _, leave := range r.leave {
		leave()
	}
	for _, conn := range r.close {
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn() // without a farewell, for which it would wait
		}
		_ = conn.Close()
	}
}

// accept takes a connection in. It is http.Server.ConnContext.
func (c *connections) accept(ctx context.Context, conn net.Conn) context.Context {
	most := c.most()
	var room room
	taken := &connection{Conn: conn, network: networks.Of(conn.RemoteAddr().String()), idle: true}
	c.mu.Lock()
	if c.open == nil {
		c.open = make(map[net.Conn]*connection)
	}
	hasRoom := func() bool { return len(c.open)-c.leaving.Len() < most }
	for !hasRoom() && c.makeRoom(&room) {
		continue
	}
	refused := !hasRoom()
	tell := refused && !c.full
	c.full = refused
	if refused {
		room.close = append(room.close, conn)
	} else {
		c.open[conn] = taken
		c.settle(taken)
	}
	c.mu.Unlock()

	if tell {
		c.log.Warn().Int("connections", most).Msg("connections are refused: there are as many as [chttpd] max_connections allows, each with a request")
	}
	room.make()
	return context.WithValue(ctx, connectionKey{}, taken)
}

// makeRoom takes one connection out of the count, and reports whether there was one.
func (c *connections) makeRoom(room *room) bool {
	if first := firstOf(&c.waiting, &c.receiving); first != nil {
		c.evict(first, room)
		return true
	}
	for kind := range c.parked {
		if next := c.parked[kind].Next(); next != nil {
			c.dismiss(next.Value, room)
			return true
		}
	}
	if first := firstOf(&c.answered); first != nil {
		c.evict(first, room)
		return true
	}
	return false
}

func firstOf(lists ...*list.List) *connection {
	for _, l := range lists {
		if first := l.Front(); first != nil {
			return first.Value.(*connection)
		}
	}
	return nil
}

// evict closes a connection.
func (c *connections) evict(conn *connection, room *room) {
	conn.evicted = true
	c.requests -= conn.requests - conn.ending // which end as soon as they notice
	room.close = append(room.close, conn.Conn)
	c.forget(conn)
	for r := range conn.waits {
		room.leave = append(room.leave, r.leave)
		c.stopWaiting(r)
	}
}

// dismiss tells all requests of a connection to end, and closes it when they have.
func (c *connections) dismiss(conn *connection, room *room) {
	conn.leaving = c.leaving.PushBack(conn)
	c.settle(conn)
	for r := range conn.waits {
		c.tell(r, room)
	}
	if c.leaving.Len() > maxEnding {
		c.evict(c.leaving.Front().Value.(*connection), room)
	}
}

// tell tells a request that waits to end.
func (c *connections) tell(r *connectedRequest, room *room) {
	room.leave = append(room.leave, r.leave)
	r.ending = c.ending.PushBack(r)
	r.conn.ending++
	c.requests--
	c.stopWaiting(r)
	if c.ending.Len() > maxEnding {
		if slowest := c.ending.Front().Value.(*connectedRequest).conn; c.open[slowest.Conn] == slowest {
			c.evict(slowest, room)
		}
	}
}

func (c *connections) stopWaiting(r *connectedRequest) {
	if r.member == nil {
		return
	}
	c.waits[r.kind].Remove(r.member)
	r.member = nil
	delete(r.conn.waits, r)
	c.settle(r.conn)
}

// forget takes a connection out of the count.
func (c *connections) forget(conn *connection) {
	delete(c.open, conn.Conn)
	if conn.leaving != nil {
		c.leaving.Remove(conn.leaving)
		conn.leaving = nil
	}
	c.settle(conn)
}

// settle puts a connection where those are that do what it does now, behind them if it was in
// another place.
func (c *connections) settle(conn *connection) {
	into, crowd := c.placeOf(conn)
	if into == conn.list && crowd == conn.crowd {
		return
	}
	if conn.list != nil {
		conn.list.Remove(conn.place)
	}
	if conn.crowd != nil {
		conn.crowd.Remove(conn.stall)
	}
	conn.list, conn.place, conn.crowd, conn.stall = into, nil, crowd, nil
	if into != nil {
		conn.place = into.PushBack(conn)
	}
	if crowd != nil {
		conn.stall = crowd.Add(conn.network, conn)
	}
}

// placeOf returns the list or the crowd that a connection belongs to, if it could make room.
func (c *connections) placeOf(conn *connection) (*list.List, *networks.Crowd[*connection]) {
	switch {
	case c.open[conn.Conn] != conn, conn.leaving != nil:
	case conn.requests == 0 && conn.idle:
		return &c.waiting, nil
	case conn.requests == 0:
		return &c.answered, nil
	case conn.receiving+len(conn.waits) < conn.requests: // with HTTP/2 there may be many
	case conn.receiving > 0:
		return &c.receiving, nil
	default:
		return nil, &c.parked[conn.waitKind()]
	}
	return nil, nil
}

// waitKind returns the kind of those of a connection's waits that make room last.
func (conn *connection) waitKind() (last waitKind) {
	for r := range conn.waits {
		last = max(last, r.kind)
	}
	return last
}

// note is told what a connection does. It is http.Server.ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	var room room
	defer room.make()
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.open[conn]
	switch {
	case known == nil:
	case state == http.StateClosed, state == http.StateHijacked:
		c.forget(known)
	default:
		known.idle = state != http.StateActive
		c.afterRequest(known, &room)
	}
}

// afterRequest settles a connection of which a request may have ended.
func (c *connections) afterRequest(conn *connection, room *room) {
	if conn.leaving != nil && conn.idle && conn.requests == 0 {
		c.evict(conn, room)
		return
	}
	c.settle(conn)
}

// begin is told of a request, and reports whether it may be answered. It puts a body in the
// place of the request's that tells when it is waited for. The caller calls end when the request
// has been answered, either way.
func (c *connections) begin(r *http.Request) (begun *http.Request, ok bool, end func()) {
	most := c.most()
	conn, _ := r.Context().Value(connectionKey{}).(*connection)
	if conn == nil {
		conn = new(connection) // of a test without a server
	}
	request := &connectedRequest{conn: conn}
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, request))
	if r.Body != http.NoBody {
		r.Body = &receivedBody{ReadCloser: r.Body, connections: c, conn: conn}
	}
	var room room
	defer room.make()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests >= most {
		c.makeRoomForRequest(&room)
	}
	if conn.evicted || conn.leaving != nil {
		return r, false, func() {}
	}
	c.requests++
	conn.requests++
	c.settle(conn)
	return r, c.requests <= most, func() { c.end(request) }
}

// makeRoomForRequest takes a request out of the count, if there is one that can make room.
func (c *connections) makeRoomForRequest(room *room) {
	if first := firstOf(&c.receiving); first != nil {
		c.evict(first, room)
		return
	}
	for kind := range c.waits {
		if next := c.waits[kind].Next(); next != nil {
			c.tell(next.Value, room)
			return
		}
	}
}

func (c *connections) end(r *connectedRequest) {
	var room room
	defer room.make()
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := r.conn
	c.stopWaiting(r)
	told := r.ending != nil
	if told {
		c.ending.Remove(r.ending)
	}
	if conn.evicted {
		return
	}
	if told {
		conn.ending--
	} else {
		c.requests--
	}
	conn.requests--
	c.afterRequest(conn, &room)
}

// wait is told when a request begins to wait for something to happen, which may take long. leave
// is called, at most once, if the request is to end so that there is room for others: then it
// has to end soon, with an answer that is whole. It must not block. The caller calls done when
// the request waits no longer.
func (c *connections) wait(r *http.Request, kind waitKind, leave func()) (done func()) {
	request, _ := r.Context().Value(requestKey{}).(*connectedRequest)
	if request == nil {
		return func() {}
	}
	if !c.beginWait(request, kind, leave) {
		leave()
		return func() {}
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stopWaiting(request)
	}
}

// beginWait reports whether a request may wait: it was not told to end before.
func (c *connections) beginWait(r *connectedRequest, kind waitKind, leave func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := r.conn
	if r.ending != nil || conn.evicted {
		return false
	}
	r.kind, r.leave = kind, leave
	r.member = c.waits[kind].Add(conn.network, r)
	if conn.waits == nil {
		conn.waits = make(map[*connectedRequest]struct{})
	}
	conn.waits[r] = struct{}{}
	c.settle(conn)
	return true
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
	whole       bool // it was read to its end
}

// Read implements io.Reader.
func (b *receivedBody) Read(p []byte) (int, error) {
	b.connections.receive(b.conn, 1)
	defer b.connections.receive(b.conn, -1)
	n, err := b.ReadCloser.Read(p)
	b.whole = b.whole || err == io.EOF
	return n, err
}
