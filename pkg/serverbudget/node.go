package serverbudget

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// forgotten is how long a server keeps its part on a node that asks it nothing.
	forgotten = 30 * time.Second
	// recent is for how long a job counts after it has asked for something.
	recent = 30 * time.Second
	// turnTime is how long a node keeps a unit if there are not enough for all.
	turnTime = 30 * time.Second
	// maxServers is the most servers in the row of a node. A row has at most 100,000 bytes, and an entry 300.
	maxServers = 250
)

// Node has the budgets of one node. It is safe for concurrent use. A nil Node has none.
type Node struct {
	wanted chan struct{} // holds a token when the node has no part of a budget that it needs

	mu      sync.Mutex
	limits  map[string]Limit   // by pattern, see match
	budgets map[string]*budget // by server
	targets map[string]Limit   // what is to be used once it is stored
}

// measured is what a budget had let pass when its node last told what it needs.
type measured struct {
	at              time.Time
	requests, bytes float64
}

// New returns the budgets of a node, for which no limits are set.
func New() *Node {
	return &Node{wanted: make(chan struct{}, 1), budgets: map[string]*budget{}}
}

// Wanted returns a channel that gets a token when a division should come soon.
func (n *Node) Wanted() <-chan struct{} {
	if n == nil {
		return nil
	}
	return n.wanted
}

// want asks for a division soon.
func (n *Node) want() {
	select {
	case n.wanted <- struct{}{}:
	default:
	}
}

// Set says which servers have budgets: by the pattern of their names.
func (n *Node) Set(limits map[string]Limit) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if maps.Equal(limits, n.limits) {
		return
	}
	n.limits = limits
	n.want()
	for server, b := range n.budgets {
		_, limit, ok := match(limits, server)
		if !ok {
			b.set(Limit{}, Limit{})
			n.remove(b)
			continue
		}
		before, part := b.now()
		b.set(limit, scaled(part, before, limit))
	}
}

// scaled returns a part of a limit that has changed: in the same proportion, but not more than before. More comes with
// the next division.
func scaled(part, before, limit Limit) (now Limit) {
	for _, d := range dimensions {
		was, old, most := *d.of(&part), *d.of(&before), *d.of(&limit)
		if old > 0 && most > 0 {
			*d.of(&now) = min(was, was*most/old)
		}
	}
	return now
}

// match returns the limit of a server, a host with its port, and the server's name in listings: without the port unless the pattern
// has one. The patterns HOST:PORT come first, then HOST, and then the longest *.SUFFIX.
func match(limits map[string]Limit, hostPort string) (server string, limit Limit, ok bool) {
	if limit, ok = limits[hostPort]; ok {
		return hostPort, limit, true
	}
	host := hostPort
	if name, _, err := net.SplitHostPort(hostPort); err == nil {
		host = name
	}
	if limit, ok = limits[host]; ok {
		return host, limit, true
	}
	longest := ""
	for pattern := range limits {
		if suffix, found := strings.CutPrefix(pattern, "*"); found && strings.HasSuffix(host, suffix) && len(pattern) > len(longest) {
			longest = pattern
		}
	}
	return host, limits[longest], longest != ""
}

// Begin waits until a request to a server, a host with its port, may be sent. feed says that the answer may have no end. The
// caller calls Done when the request and its answer are over. The context says whose request it is (see [WithFlow]), and
// ends the waits of the exchange, too.
func (n *Node) Begin(ctx context.Context, hostPort string, feed bool) (*Exchange, error) {
	if n == nil {
		return nil, nil
	}
	for {
		b := n.of(hostPort)
		if b == nil {
			return nil, nil
		}
		if ctx.Err() != nil { // it uses nothing of the budget
			return nil, context.Cause(ctx)
		}
		if x, err := b.begin(ctx, feed); !errors.Is(err, errGone) {
			return x, err
		}
	}
}

// of returns the budget of a server, a host with its port, nil if it has none.
func (n *Node) of(hostPort string) *budget {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.limits) == 0 {
		return nil
	}
	server, limit, ok := match(n.limits, strings.ToLower(hostPort))
	if !ok {
		return nil
	}
	b := n.budgets[server]
	if b == nil {
		b = newBudget(server)
		b.set(limit, Limit{})
		n.budgets[server] = b
		n.want()
	}
	return b
}

// Needs returns what the node is to say about itself in the row that it is about to write. It is called for each renewal.
func (n *Node) Needs() map[string]Need {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now, needs := time.Now(), map[string]Need{}
	for server, b := range n.budgets {
		if b.idle(now) {
			n.remove(b)
			continue
		}
		needs[server] = b.need(now)
	}
	if len(needs) > maxServers {
		for _, server := range slices.Sorted(maps.Keys(needs))[maxServers:] {
			delete(needs, server)
		}
	}
	return needs
}

// remove removes a budget. The caller holds mu.
func (n *Node) remove(b *budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = true
	delete(n.budgets, b.server)
}

// waiting is the number of requests that wait. The caller holds mu.
func (b *budget) waiting() int {
	return b.requests.length + b.bytes.length + b.connections.waiting()
}

// idle reports whether nothing was asked for in a while.
func (b *budget) idle(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.connections.open == 0 && b.waiting() == 0 && now.Sub(b.seen) >= forgotten
}

// now returns the limit of the server, as the node was last told it, and the part of this node.
func (b *budget) now() (limit, part Limit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit, b.part
}

// need is used for a row, and begins the next measurement.
func (b *budget) need(now time.Time) Need {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f, at := range b.flows {
		if now.Sub(at) > recent && f.held.Load() == 0 {
			delete(b.flows, f)
		}
	}
	need := Need{Jobs: int64(max(len(b.flows), 1)), Part: b.part, Limit: b.limit, Used: b.used(now)}
	want := func(used int64, waited bool) int64 {
		if waited {
			return 0
		}
		return used + used/4 + 1
	}
	need.Want = Limit{
		want(need.Used.Requests, b.requests.waited), want(need.Used.Bytes, b.bytes.waited), want(b.connections.peak, b.connections.waited),
	}
	for _, d := range dimensions {
		if *d.of(&b.limit) == 0 {
			*d.of(&need.Want) = 0
		}
	}
	b.requests.waited, b.bytes.waited = b.requests.length > 0, b.bytes.length > 0
	b.connections.waited, b.connections.peak = b.connections.waiting() > 0, b.connections.open
	b.measured = measured{now, b.requests.passed, b.bytes.passed}
	return need
}

// used returns what was used in a second since the last measurement, and the connections that are open. The caller holds mu.
func (b *budget) used(now time.Time) Limit {
	last := b.measured
	seconds := max(now.Sub(last.at).Seconds(), 1)
	return Limit{
		Requests: int64((b.requests.passed-last.requests)/seconds + 0.5), Bytes: int64(max((b.bytes.passed-last.bytes)/seconds, 0)),
		Connections: b.connections.open,
	}
}

// Divide sets the parts in the needs of this node, whose name is own. others has the needs of the other nodes that are live.
// What is to become less is less when Divide returns. more reports whether a part is larger than the one in use: then the
// transaction that stores it must conflict with every write of the others. It may be called more than once for a renewal.
func (n *Node) Divide(needs map[string]Need, own string, others map[string]map[string]Need) (more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	turn := time.Now().Unix() / int64(turnTime/time.Second)
	n.targets = map[string]Limit{}
	for server, need := range needs {
		b := n.budgets[server]
		if b == nil {
			delete(needs, server)
			continue
		}
		limit, before := b.now()
		all := map[string]Need{own: need}
		for name, theirs := range others {
			if other, ok := theirs[server]; ok {
				all[name] = other
			}
		}
		part := partOf(limit, all, own, turn)
		n.targets[server] = part
		b.set(limit, least(part, before))
		if limit.Connections > 0 {
			part.Connections = max(part.Connections, b.open()) // until they are closed
		}
		for _, d := range dimensions {
			more = more || *d.of(&part) > *d.of(&before)
		}
		need.Part = part
		needs[server] = need
	}
	return more
}

// open returns the number of connections that are open.
func (b *budget) open() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.connections.open
}

// least returns the smaller number of each dimension.
func least(a, b Limit) Limit {
	for _, d := range dimensions {
		*d.of(&a) = min(*d.of(&a), *d.of(&b))
	}
	return a
}

// Use uses the parts that Divide has found, once they are stored.
func (n *Node) Use() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for server, b := range n.budgets {
		limit, _ := b.now()
		b.set(limit, least(n.targets[server], limit))
	}
}

// State is the budget of a server as a node sees it.
type State struct {
	Server string
	Limit  Limit // of all nodes
	Part   Limit // of this node
	// Requests and Bytes are what was let pass since the server was first asked, and Connections those that are open.
	Requests, Bytes float64
	Connections     int64
	Waiting         int // requests
}

// States returns the budgets of the servers that this node uses, by name.
func (n *Node) States() (all []State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, server := range slices.Sorted(maps.Keys(n.budgets)) {
		b := n.budgets[server]
		b.mu.Lock()
		all = append(all, State{server, b.limit, b.part, b.requests.passed, b.bytes.passed, b.connections.open, b.waiting()})
		b.mu.Unlock()
	}
	return all
}
