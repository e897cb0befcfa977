package budget

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrExhausted is the error of a caller that has waited for bytes in vain.
var ErrExhausted = errors.New("the budget is exhausted")

// Options of a budget.
type Options struct {
	// Limit returns the number of bytes, which may change at any time. A lower limit holds for what is taken from then on.
	Limit func() int64
	// Patience is how long Take waits for bytes.
	Patience time.Duration
	// Grace is how long an account stalls before it may be evicted.
	Grace time.Duration
}

// Budget is a number of bytes that accounts share. It is safe for concurrent use.
type Budget struct {
	opts Options

	mu      sync.Mutex // never held while a function of the caller runs, except Options.Limit
	used    int64      // the sum of the bytes of all accounts
	leaving int64      // the bytes of accounts that were evicted and are not yet closed
	clients map[string]*client
	turns   [shares]list.List // of *client that wait for bytes, the next one first
	timer   *time.Timer
	armed   time.Time // when the timer fires, before which no account can be evicted; zero: it is not set
}

// client has the accounts of one client that wait or stall. It is dropped when there are none.
type client struct {
	name    string
	waiting [shares]list.List     // of *waiter, the longest first
	turn    [shares]*list.Element // in Budget.turns, nil if none waits
	stalled list.List             // of *Account with bytes, the longest first
	bytes   int64                 // of stalled
}

// Share says how much of a budget a caller may use up. All and Most have queues of their own.
type Share int

const (
	// All is for what a request needs whose size the server decides, such as a page of rows.
	All Share = iota
	// Most leaves a quarter of the budget to All. It is for sizes that a client decides, such as the size of a body.
	Most
	shares // the number of those that have queues
	half   // leaves half of the budget to the others; for TryTake
)

// limit returns how much of the budget may be used when a caller has taken bytes.
func (b *Budget) limit(s Share) int64 {
	limit := b.opts.Limit()
	switch s {
	case Most:
		return limit / 4 * 3
	case half:
		return limit / 2
	}
	return limit
}

type waiter struct {
	account *Account
	need    int64
	share   Share
	granted chan struct{} // closed, under Budget.mu, when the account has the bytes
}

// New returns a budget of which nothing is used.
func New(opts Options) *Budget {
	return &Budget{opts: opts, clients: map[string]*client{}}
}

// Account is what one request of a client has taken. The methods of a nil account do nothing and succeed. One goroutine
// at a time takes and gives.
type Account struct {
	budget *Budget
	client string
	evict  func()

	held    atomic.Int64  // written under Budget.mu
	stalls  int           // calls of Stall without Resume
	since   time.Time     // of the first of them
	place   *list.Element // in client.stalled
	evicted bool
	closed  bool
}

// Account returns an account of a client. evict is called at most once, and not under a lock: it ends the request, so that
// Close is called soon.
func (b *Budget) Account(client string, evict func()) *Account {
	return &Account{budget: b, client: client, evict: evict}
}

// Used returns the number of bytes that the accounts have.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Held returns the number of bytes of an account.
func (a *Account) Held() int64 {
	if a == nil {
		return 0
	}
	return a.held.Load()
}

// Take takes n bytes, of a share of the budget. It waits for them until ctx ends, or for [Options.Patience]; then the error is [ErrExhausted].
func (a *Account) Take(ctx context.Context, n int64, share Share) error {
	if a == nil || n <= 0 {
		return nil
	}
	b := a.budget
	b.mu.Lock()
	if b.turns[share].Len() == 0 && b.fits(a, n, share) {
		b.add(a, n)
		b.mu.Unlock()
		return nil
	}
	w := &waiter{account: a, need: n, share: share, granted: make(chan struct{})}
	element := b.enqueue(w)
	b.unlock()
	return b.wait(ctx, w, element)
}

func (b *Budget) wait(ctx context.Context, w *waiter, element *list.Element) error {
	patience := time.NewTimer(b.opts.Patience)
	defer patience.Stop()
	err := ErrExhausted
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-patience.C:
	}
	b.mu.Lock()
	select {
	case <-w.granted: // at the last moment
		b.mu.Unlock()
		return nil
	default:
	}
	b.leaveQueue(w, element)
	b.grant() // those behind it may need less
	b.unlock()
	return err
}

// TryTake takes n bytes if less than half of the budget is used then, and no other account waits for bytes. It is for
// callers that can do without them.
func (a *Account) TryTake(n int64) bool {
	if a == nil {
		return true
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isShort() || !b.fits(a, n, half) {
		return false
	}
	b.add(a, n)
	return true
}

// Give gives n bytes back. The account has at least as many.
func (a *Account) Give(n int64) {
	if a == nil || n <= 0 {
		return
	}
	b := a.budget
	b.mu.Lock()
	b.add(a, -n)
	b.grant()
	b.unlock()
}

// Close gives all bytes back. The account takes no more.
func (a *Account) Close() {
	if a == nil {
		return
	}
	b := a.budget
	b.mu.Lock()
	if a.closed {
		b.mu.Unlock()
		return
	}
	b.unplace(a)
	if a.evicted {
		b.leaving -= a.held.Load()
	}
	b.used -= a.held.Swap(0)
	a.closed = true
	b.grant()
	b.unlock()
}

// Stall records that the request waits for its client. Calls nest.
func (a *Account) Stall() {
	if a == nil {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.stalls++; a.stalls == 1 {
		a.since = time.Now()
		if b.place(a); b.isShort() {
			b.arm()
		}
	}
}

// Resume ends a Stall.
func (a *Account) Resume() {
	if a == nil {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.stalls--; a.stalls == 0 {
		b.unplace(a)
	}
}

// isShort reports whether an account waits for bytes.
func (b *Budget) isShort() bool { return b.turns[All].Len()+b.turns[Most].Len() > 0 }

// fits reports whether an account may have n more bytes.
func (b *Budget) fits(a *Account, n int64, s Share) bool {
	return b.used+n <= b.limit(s) || b.used == a.held.Load() // it is alone
}

// add changes the bytes of an account.
func (b *Budget) add(a *Account, n int64) {
	if a.closed {
		return
	}
	if a.evicted {
		b.leaving += n
	}
	if a.place != nil { // one goroutine of the request takes while another waits for the client
		b.clients[a.client].bytes += n
	}
	b.used += n
	a.held.Add(n)
}

// enqueue lets a waiter wait for the turn of its client.
func (b *Budget) enqueue(w *waiter) *list.Element {
	c := b.client(w.account.client)
	if c.turn[w.share] == nil {
		c.turn[w.share] = b.turns[w.share].PushBack(c)
	}
	return c.waiting[w.share].PushBack(w)
}

// leaveQueue removes a waiter.
func (b *Budget) leaveQueue(w *waiter, element *list.Element) {
	c := b.clients[w.account.client]
	c.waiting[w.share].Remove(element)
	if c.waiting[w.share].Len() == 0 {
		b.turns[w.share].Remove(c.turn[w.share])
		c.turn[w.share] = nil
	}
	b.drop(c)
}

// grant gives bytes to the accounts that wait, in turns, while there are enough for the next one.
func (b *Budget) grant() {
	for share := range shares {
		for element := b.first(share); element != nil; element = b.first(share) {
			w := element.Value.(*waiter)
			if !b.fits(w.account, w.need, share) {
				break
			}
			b.add(w.account, w.need)
			close(w.granted)
			b.turns[share].MoveToBack(b.clients[w.account.client].turn[share])
			b.leaveQueue(w, element)
		}
	}
}

// first returns the waiter for a share whose turn it is, or nil if none waits.
func (b *Budget) first(s Share) *list.Element {
	if b.turns[s].Len() == 0 {
		return nil
	}
	return b.turns[s].Front().Value.(*client).waiting[s].Front()
}

// unlock makes room and unlocks the budget. It evicts stalled accounts until the next waiter for each share has enough bytes,
// counting the bytes of accounts that were evicted already.
func (b *Budget) unlock() {
	var evicted []*Account
	for share := range shares {
		if element := b.first(share); element != nil {
			evicted = append(evicted, b.makeRoomFor(element.Value.(*waiter))...)
		}
	}
	b.mu.Unlock()
	for _, a := range evicted {
		a.evict()
	}
}

// makeRoomFor marks the accounts to evict for a waiter, and returns them.
func (b *Budget) makeRoomFor(w *waiter) (evicted []*Account) {
	limit, now := b.limit(w.share), time.Now()
	for left := b.used - b.leaving; left+w.need > limit && left > w.account.held.Load(); left = b.used - b.leaving {
		a := b.next(now)
		if a == nil {
			b.arm()
			break
		}
		b.unplace(a)
		a.evicted = true
		b.leaving += a.held.Load()
		evicted = append(evicted, a)
	}
	return evicted
}

// next returns the account that makes room next, or nil if there is none.
func (b *Budget) next(now time.Time) *Account {
	if now.Before(b.armed) {
		return nil
	}
	var most *client
	for _, c := range b.clients {
		if first := c.longest(); first != nil && now.Sub(first.since) >= b.opts.Grace && (most == nil || c.bytes > most.bytes) {
			most = c
		}
	}
	if most == nil {
		return nil
	}
	return most.longest()
}

// longest returns the account that has stalled longest, or nil if none stalls.
func (c *client) longest() *Account {
	if c.stalled.Len() == 0 {
		return nil
	}
	return c.stalled.Front().Value.(*Account)
}

// arm lets the timer fire when the account that has stalled longest may be evicted. A timer that is set stays: accounts
// that stall later may be evicted later.
func (b *Budget) arm() {
	if !b.armed.IsZero() {
		return
	}
	var since time.Time
	for _, c := range b.clients {
		if first := c.longest(); first != nil && (since.IsZero() || first.since.Before(since)) {
			since = first.since
		}
	}
	if since.IsZero() {
		return
	}
	b.armed = since.Add(b.opts.Grace)
	after := time.Until(b.armed)
	if b.timer == nil {
		b.timer = time.AfterFunc(after, b.fire)
		return
	}
	b.timer.Reset(after)
}

func (b *Budget) fire() {
	b.mu.Lock()
	b.armed = time.Time{}
	b.unlock()
}

// place adds an account to the stalled ones of its client, if evicting it makes room.
func (b *Budget) place(a *Account) {
	held := a.held.Load()
	if held == 0 || a.evicted || a.closed {
		return
	}
	c := b.client(a.client)
	a.place = c.stalled.PushBack(a)
	c.bytes += held
}

// unplace removes an account from the stalled ones.
func (b *Budget) unplace(a *Account) {
	if a.place == nil {
		return
	}
	c := b.clients[a.client]
	c.stalled.Remove(a.place)
	c.bytes -= a.held.Load()
	a.place = nil
	b.drop(c)
}

// client returns the entry of a client.
func (b *Budget) client(name string) *client {
	c := b.clients[name]
	if c == nil {
		c = &client{name: name}
		b.clients[name] = c
	}
	return c
}

// drop forgets a client that neither waits nor stalls.
func (b *Budget) drop(c *client) {
	if c.turn[All] == nil && c.turn[Most] == nil && c.stalled.Len() == 0 {
		delete(b.clients, c.name)
	}
}
