package outbound

import "time"

// SetClock replaces the pool's clock. Call it before the pool is used.
func (p *Pool) SetClock(now func() time.Time) { p.now = now }

// SetPing replaces the times after which HTTP/2 connections are checked. Call it before the pool is used.
func (p *Pool) SetPing(after, timeout time.Duration) { p.pingAfter, p.pingTimeout = after, timeout }

// Routes returns the number of combinations of proxy and socket options that have connections.
func (p *Pool) Routes() int {
	g := p.state.Load()
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.routes)
}

// Limits of the pool.
const (
	MaxRoutes          = maxRoutes
	MaxIdlePerEndpoint = maxIdlePerEndpoint
)

// CheckHost is the rule for hosts that a proxy is told to connect to.
var CheckHost = checkHost
