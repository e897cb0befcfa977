package fdbjobs

import "sync"

// Readers of ready begin where an earlier read of this process has found the first row: see "The queue" in the package's
// doc comment. That is a lower bound that stays valid, because stamps only grow.

// maxBounds limits the number of owners whose bounds a process remembers.
const maxBounds = 10_000

// bounds are lower bounds of the keys of ready rows, by owner. It is safe for concurrent use. Forgetting costs only time.
type bounds struct {
	mu      sync.Mutex
	byOwner map[string][]byte
}

// of returns the bound of an owner, or nil if none is known.
func (b *bounds) of(owner string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byOwner[owner]
}

// set notes that an owner has no ready rows below a key.
func (b *bounds) set(owner string, key []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	note(&b.byOwner, owner, key)
}

// note sets an entry of a map of limited size.
func note[V any](m *map[string]V, owner string, v V) {
	if *m == nil || len(*m) >= maxBounds {
		*m = map[string]V{}
	}
	(*m)[owner] = v
}
