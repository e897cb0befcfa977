// Package engine has the parts that engines share: the gate that their transactions pass, and the outcome of a watch.
package engine

import "sync"

// Gate lets transactions in until it is closed. The zero value is open.
type Gate struct {
	mu     sync.RWMutex // held for reading by each Enter
	closed bool
	inside sync.WaitGroup
}

// Enter lets a transaction in, which calls Leave at its end. It reports false if the gate is closed.
func (g *Gate) Enter() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return false
	}
	g.inside.Add(1)
	return true
}

// Leave ends a transaction.
func (g *Gate) Leave() { g.inside.Done() }

// Close closes the gate and waits until all transactions have left. It reports false if the gate was closed before.
func (g *Gate) Close() bool {
	g.mu.Lock()
	wasClosed := g.closed
	g.closed = true
	g.mu.Unlock()
	if wasClosed {
		return false
	}
	g.inside.Wait()
	return true
}
