package web

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"settee/frontend/internal/networks"
	"settee/pkg/budget"
	"settee/pkg/config"
)

// MaxEnding is the number of requests that may be ending at a time, beyond the bound. A request that was told to end
// takes less than a millisecond as a rule. If there are more, the slowest loses its connection.
const MaxEnding = 100

// Connections bounds how many clients are connected at a time, and how many of their requests are being
// answered. When a connection or a request is one too many, an earlier one makes room for it, in this order:
//
//   - connections without a request are closed, whether they are idle or slow to send one
//   - connections whose requests wait for more of their bodies are closed
//   - requests that wait for an event (see wait) are told to end, and end with a whole answer
//   - connections whose answers have been made, and not yet sent as a whole, are closed
//
// In each group the one that has waited longest is the first. Among the requests that wait for an event it is the
// longest of the network that has most of them, so no client keeps the others out. A new request takes the place of
// a request, and a new connection takes the place of a connection.
//
// Requests take the memory and the disk space that they need from budgets of the node (see [Memory]). Connections whose
// requests stall make room there, too.
type Connections struct {
	settings Settings // [chttpd] max_connections bounds the connections, and also the requests
	log      zerolog.Logger

	bytes        int64 // of memory, for connections and requests
	files        int   // the most connections for which the process may have files open; 0: any number
	memory, disk *budget.Budget
	opened       atomic.Int64 // len(open)

	left     atomic.Bool     // Leave was called
	draining context.Context // ends with drain
	drain    context.CancelCauseFunc

	mu       sync.Mutex // never held during I/O
	open     map[net.Conn]*connection
	places   [answered + 1]networks.EvictionQueue[*connection]
	waits    [waitKinds]networks.EvictionQueue[*connectedRequest] // requests that wait for an event
	waiters  [waitKinds]int                                       // members of waits
	requests int                                                  // requests that are being answered, without those that were told to end
	ending   list.List                                            // of *connectedRequest that were told to end, the longest first
	leaving  list.List                                            // of *connection that are closed when their requests have ended, the longest first
	full     bool                                                 // it was logged that connections are refused
}

// NewConnections returns the connections of a server, which are none yet. memory is the number of bytes that they and their
// requests may use, and most the maximum number of connections, besides the settings; 0 means any number.
func NewConnections(s Settings, memory int64, most int, log zerolog.Logger) *Connections {
	c := &Connections{settings: s, log: log, bytes: memory, files: most}
	c.memory = budget.New(budget.Options{Limit: c.memoryLimit, Patience: memoryPatience, Grace: stallGrace})
	c.disk = budget.New(budget.Options{
		Limit:    func() int64 { return config.SpoolLimit.Get(s.Current()) },
		Patience: memoryPatience, Grace: stallGrace,
	})
	c.draining, c.drain = context.WithCancelCause(context.Background())
	cfg := s.Current()
	if is := c.maxConnections(); is < config.MaxConnections.Get(cfg) && config.MaxConnections.From(cfg) != config.OriginDefault.String() {
		log.Warn().Msgf("%v, %s: counts as %d: connections take at most half of the memory for clients, see %v",
			config.MaxConnections, config.MaxConnections.From(cfg), is, config.MemoryLimit)
	}
	return c
}

var (
	// ErrNoRoom is the cause of the end of a wait whose place is needed for another request.
	ErrNoRoom = errors.New("others need the place of this request")
	// ErrGoingAway is the cause of the end of a wait on a node that is going away.
	ErrGoingAway = errors.New("this node is going away")
)

// Bytes returns the number of bytes of memory that connections and requests may use.
func (c *Connections) Bytes() int64 { return c.bytes }

// Leave makes Leaving true. From then on each connection ends with its next answer, so that clients open new ones at other
// nodes.
func (c *Connections) Leave() { c.left.Store(true) }

// Leaving reports whether Leave or Drain was called: this node is about to end.
func (c *Connections) Leaving() bool { return c.left.Load() || c.Draining() }

// Drain ends the requests that wait for an event, and those that would begin to wait.
func (c *Connections) Drain() { c.drain(ErrGoingAway) }

// Draining reports whether Drain was called.
func (c *Connections) Draining() bool { return c.draining.Err() != nil }

// maxConnections returns the most connections, which is also the most requests. Connections take at most half of the
// memory, and the open files that are left for them.
func (c *Connections) maxConnections() int {
	most := min(config.MaxConnections.Get(c.settings.Current()), int(max(1, c.bytes/2/connectionCost)))
	if c.files > 0 {
		most = min(most, c.files)
	}
	return most
}

// WaitKind is the kind of event that a request waits for.
type WaitKind int

// The kinds of events.
const (
	ForView        WaitKind = iota // a change of an answer
	ForChange                      // a change in a database
	ForReplication                 // the end of a replication
	waitKinds
)

// place is a group of connections that can make room. The groups do so in this order.
type place int

const (
	nowhere   place = iota // it cannot make room
	waiting                // it has no request
	receiving              // its requests wait, at least one of them for its body
	parked                 // its requests all wait for an event of the first kind, and so on for the other kinds

	answered = parked + place(waitKinds) // its requests have been answered, and the answers not yet sent
)

// isParked reports whether the requests of the connections wait for an event.
func (p place) isParked() bool { return p >= parked && p < answered }

// connection is the connection of a client. It is guarded by connections.mu.
type connection struct {
	net.Conn
	network   string
	idle      bool                           // net/http neither receives a request nor answers one
	requests  int                            // requests that are being answered
	receiving int                            // the requests that wait for their bodies
	waits     map[*connectedRequest]struct{} // the requests that wait for an event
	ending    int                            // the requests that were told to end
	evicted   bool                           // it was closed to make room, and its requests are no longer counted
	leaving   *list.Element                  // in connections.leaving, where it is no longer counted; nil: it is not there

	place  place
	member *networks.Member[*connection] // in connections.places
}

type connectionKey struct{}

// connectedRequest is a request that is being answered. It is guarded by connections.mu.
type connectedRequest struct {
	conn    *connection
	network string // of the client; conn.network is the network of the proxy, if there is one
	memory  *budget.Account
	disk    *budget.Account
	kind    WaitKind
	member  *networks.Member[*connectedRequest] // in connections.waits; nil: it does not wait
	leave   func()                              // ends its wait
	ending  *list.Element                       // in connections.ending, where it is no longer counted; nil: it is not there
}

type requestKey struct{}

// room is what is done to make room, after connections.mu was unlocked: connections are closed, and waits ended.
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
			conn = secure.NetConn() // without TLS's closing alert, for which Close would wait
		}
		_ = conn.Close()
	}
}

// accept counts a new connection, and makes room for it or closes it. It is for http.Server.ConnContext.
func (c *Connections) accept(ctx context.Context, conn net.Conn) context.Context {
	most := c.maxConnections()
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
		c.opened.Store(int64(len(c.open)))
		c.settle(taken)
	}
	c.mu.Unlock()

	if tell {
		c.log.Warn().Int("connections", most).Msg("connections are refused: there are as many as [chttpd] max_connections, [settee] memory_limit_bytes and the limit of open files (ulimit -n) allow, each with a request")
	}
	room.make()
	return context.WithValue(ctx, connectionKey{}, taken)
}

// makeRoom removes one connection from the count, and reports whether there was one that could make room.
func (c *Connections) makeRoom(room *room) bool {
	for at := range answered + 1 {
		next := c.places[at].Next()
		switch {
		case next == nil:
			continue
		case at.isParked():
			c.dismiss(next.Value, room)
		default:
			c.evict(next.Value, room)
		}
		return true
	}
	return false
}

// evict closes a connection. Its requests end as soon as they notice.
func (c *Connections) evict(conn *connection, room *room) {
	conn.evicted = true
	c.requests -= conn.requests - conn.ending
	room.close = append(room.close, conn.Conn)
	c.forget(conn)
	for r := range conn.waits {
		room.leave = append(room.leave, r.leave)
		c.stopWaiting(r)
	}
}

// dismiss tells all requests of a connection to end, and closes the connection when they have ended.
func (c *Connections) dismiss(conn *connection, room *room) {
	conn.leaving = c.leaving.PushBack(conn)
	c.settle(conn)
	for r := range conn.waits {
		c.tell(r, room)
	}
	if c.leaving.Len() > MaxEnding {
		c.evict(c.leaving.Front().Value.(*connection), room)
	}
}

// tell tells a waiting request to end.
func (c *Connections) tell(r *connectedRequest, room *room) {
	room.leave = append(room.leave, r.leave)
	r.ending = c.ending.PushBack(r)
	r.conn.ending++
	c.requests--
	c.stopWaiting(r)
	if c.ending.Len() > MaxEnding {
		if slowest := c.ending.Front().Value.(*connectedRequest).conn; c.open[slowest.Conn] == slowest {
			c.evict(slowest, room)
		}
	}
}

func (c *Connections) stopWaiting(r *connectedRequest) {
	if r.member == nil {
		return
	}
	c.waits[r.kind].Remove(r.member)
	c.waiters[r.kind]--
	r.member = nil
	delete(r.conn.waits, r)
	c.settle(r.conn)
}

// forget removes a connection from the count.
func (c *Connections) forget(conn *connection) {
	delete(c.open, conn.Conn)
	c.opened.Store(int64(len(c.open)))
	if conn.leaving != nil {
		c.leaving.Remove(conn.leaving)
		conn.leaving = nil
	}
	c.settle(conn)
}

// settle moves a connection to the place that it belongs to now. If it is there already, it does not move to the end.
func (c *Connections) settle(conn *connection) {
	at := c.placeOf(conn)
	if at == conn.place {
		return
	}
	if conn.place != nowhere {
		c.places[conn.place].Remove(conn.member)
	}
	conn.place = at
	switch {
	case at.isParked():
		conn.member = c.places[at].Add(conn.network, conn)
	case at != nowhere:
		conn.member = c.places[at].Add("", conn) // the network does not matter
	}
}

// placeOf returns the place that a connection belongs to.
func (c *Connections) placeOf(conn *connection) place {
	switch {
	case c.open[conn.Conn] != conn, conn.leaving != nil:
		return nowhere
	case conn.requests == 0 && conn.idle:
		return waiting
	case conn.requests == 0:
		return answered
	case conn.receiving+len(conn.waits) < conn.requests: // with HTTP/2 there may be many
		return nowhere
	case conn.receiving > 0:
		return receiving
	}
	return parked + place(conn.waitKind())
}

// waitKind returns the kind of the waits of a connection. If there are several, it is the kind that makes room last.
func (conn *connection) waitKind() (last WaitKind) {
	for r := range conn.waits {
		last = max(last, r.kind)
	}
	return last
}

// note records what a connection does. It is for http.Server.ConnState.
func (c *Connections) note(conn net.Conn, state http.ConnState) {
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

// afterRequest settles a connection after a request of it may have ended.
func (c *Connections) afterRequest(conn *connection, room *room) {
	if conn.leaving != nil && conn.idle && conn.requests == 0 {
		c.evict(conn, room)
		return
	}
	c.settle(conn)
}

// begin counts a request, and reports whether it may be answered. The body of the request that it returns tells c
// when it is waited for. The caller calls end when the request has been answered, in both cases.
func (c *Connections) begin(r *http.Request) (begun *http.Request, ok bool, end func()) {
	most := c.maxConnections()
	conn, _ := r.Context().Value(connectionKey{}).(*connection)
	if conn == nil {
		conn = new(connection) // a test without a server
	}
	request := &connectedRequest{conn: conn, network: networks.Of(r.RemoteAddr)}
	giveWay := func() { c.giveWay(request) }
	request.memory, request.disk = c.memory.Account(request.network, giveWay), c.disk.Account(request.network, giveWay)
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, request))
	if r.Body != http.NoBody {
		r.Body = &receivedBody{ReadCloser: r.Body, connections: c, request: request}
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

// makeRoomForRequest removes a request from the count, if there is one that can make room.
func (c *Connections) makeRoomForRequest(room *room) {
	if next := c.places[receiving].Next(); next != nil {
		c.evict(next.Value, room)
		return
	}
	for kind := range c.waits {
		if next := c.waits[kind].Next(); next != nil {
			c.tell(next.Value, room)
			return
		}
	}
}

func (c *Connections) end(r *connectedRequest) {
	r.memory.Close()
	r.disk.Close()
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

// Wait returns a context in which a request waits for an event, which may take long. The context ends with the
// request, with the cause ErrGoingAway if the node drains, and with the cause ErrNoRoom if the place of the request is
// needed: then the request has to end soon, with a whole answer. The caller calls done when the wait is over. What the
// request has taken of the memory is given back: a request that waits keeps little.
func (c *Connections) Wait(r *http.Request, kind WaitKind) (ctx context.Context, done func()) {
	GiveBack(r)
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(c.draining, func() { cancel(ErrGoingAway) })
	end := c.wait(r, kind, func() { cancel(ErrNoRoom) })
	return ctx, func() {
		end()
		stop()
		cancel(nil)
	}
}

const (
	// paceOfNetwork and paceOfNode are the least time between two heartbeats of one feed, for each feed that waits: of its
	// network, and of the node. So the feeds of a network write at most a thousand heartbeats a second.
	paceOfNetwork = time.Millisecond
	paceOfNode    = time.Millisecond / 4
)

// Pace returns the least time between two heartbeats of a feed, which grows with the number of feeds.
func (c *Connections) Pace(r *http.Request) time.Duration {
	request := requestOf(r)
	if request == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(time.Duration(c.waits[ForChange].Count(request.network))*paceOfNetwork, time.Duration(c.waiters[ForChange])*paceOfNode)
}

// wait counts a request among those that wait for an event. leave is called at most once, to end the wait, and does
// not block. The caller calls done when the wait is over.
func (c *Connections) wait(r *http.Request, kind WaitKind, leave func()) (done func()) {
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

// beginWait reports whether a request may wait. One that was told to end may not.
func (c *Connections) beginWait(r *connectedRequest, kind WaitKind, leave func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := r.conn
	if r.ending != nil || conn.evicted {
		return false
	}
	r.kind, r.leave = kind, leave
	r.member = c.waits[kind].Add(r.network, r)
	c.waiters[kind]++
	if conn.waits == nil {
		conn.waits = make(map[*connectedRequest]struct{})
	}
	conn.waits[r] = struct{}{}
	c.settle(conn)
	return true
}

// receive counts a request that begins (1) or stops (-1) to wait for its body.
func (c *Connections) receive(conn *connection, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.receiving += change
	c.settle(conn)
}

// receivedBody is the body of a request. Its connection may make room while more of the body is waited for. Each part
// that arrives begins a new wait.
type receivedBody struct {
	io.ReadCloser
	connections *Connections
	request     *connectedRequest
	whole       bool // the body was read to its end
	took        time.Duration
}

// Read implements io.Reader.
func (b *receivedBody) Read(p []byte) (int, error) {
	b.connections.receive(b.request.conn, 1)
	defer b.connections.receive(b.request.conn, -1)
	defer b.request.stall()()
	began := time.Now()
	n, err := b.ReadCloser.Read(p)
	b.took += time.Since(began)
	b.whole = b.whole || err == io.EOF
	return n, err
}

// Usage is a snapshot of what the connections do, for tests. Clients are addresses.
type Usage struct {
	Open      int      // connections, without those that close when their requests have ended
	Requests  int      // being answered, without those that were told to end
	Waits     int      // requests that wait for an event
	Memory    int64    // bytes that requests have taken
	Spooled   int64    // bytes of disk space that requests have taken
	Idle      []string // clients without a request, the longest first
	Receiving []string // clients whose bodies are waited for, the longest first
}

// Usage returns what the connections do now.
func (c *Connections) Usage() Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := Usage{
		Open: len(c.open) - c.leaving.Len(), Requests: c.requests,
		Idle: c.clients(waiting), Receiving: c.clients(receiving), Memory: c.memory.Used(), Spooled: c.disk.Used(),
	}
	for _, conn := range c.open {
		u.Waits += len(conn.waits)
	}
	return u
}

func (c *Connections) clients(at place) (addresses []string) {
	for _, conn := range c.places[at].Of("") {
		addresses = append(addresses, conn.RemoteAddr().String())
	}
	return addresses
}
