package couch

import "time"

// SetClock has the pool take the time from now. It is to be called before the pool is used.
func (p *Pool) SetClock(now func() time.Time) { p.now = now }

// SetPing has the pool look after HTTP/2 connections at other times.
func (p *Pool) SetPing(after, timeout time.Duration) { p.pingAfter, p.pingTimeout = after, timeout }

// Routes returns for how many proxies and socket options the pool keeps connections apart.
func (p *Pool) Routes() int {
	g := p.state.Load()
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.routes)
}

// DecryptKey is what a private key goes through.
var DecryptKey = decryptKey

// Limits of the pool.
const (
	MaxRoutes          = maxRoutes
	MaxIdlePerEndpoint = maxIdlePerEndpoint
)
