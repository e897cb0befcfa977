package networks

import (
	"container/heap"
	"container/list"
)

// EvictionQueue is a set of waiting members, by network. Add and Remove take time proportional to the
// logarithm of the number of networks. The zero value is empty. It is not safe for concurrent
// use.
type EvictionQueue[T any] struct {
	networks map[string]*group[T]
	largest  largest[T]
	added    uint64 // number of calls of Add
}

// Member is a member of an eviction queue.
type Member[T any] struct {
	Value T

	group   *group[T]
	element *list.Element
	order   uint64 // of the calls of Add
}

// group has the members of one network, the oldest first. It is never empty.
type group[T any] struct {
	network string
	members list.List // of *Member[T]
	index   int       // index in EvictionQueue.largest
}

func (g *group[T]) first() *Member[T] { return g.members.Front().Value.(*Member[T]) }

// Add adds a member, the youngest.
func (c *EvictionQueue[T]) Add(network string, value T) *Member[T] {
	if c.networks == nil {
		c.networks = make(map[string]*group[T])
	}
	g := c.networks[network]
	isNew := g == nil
	if isNew {
		g = &group[T]{network: network}
		c.networks[network] = g
	}
	c.added++
	m := &Member[T]{Value: value, group: g, order: c.added}
	m.element = g.members.PushBack(m)
	if isNew {
		heap.Push(&c.largest, g)
	} else {
		heap.Fix(&c.largest, g.index)
	}
	return m
}

// Remove removes a member. It must be in the eviction queue.
func (c *EvictionQueue[T]) Remove(m *Member[T]) {
	g := m.group
	if g.members.Len() == 1 {
		heap.Remove(&c.largest, g.index)
		delete(c.networks, g.network)
		return
	}
	g.members.Remove(m.element)
	heap.Fix(&c.largest, g.index)
}

// Count returns the number of members of a network.
func (c *EvictionQueue[T]) Count(network string) int {
	if g := c.networks[network]; g != nil {
		return g.members.Len()
	}
	return 0
}

// Of returns the members of a network, the oldest first.
func (c *EvictionQueue[T]) Of(network string) (values []T) {
	if g := c.networks[network]; g != nil {
		for at := g.members.Front(); at != nil; at = at.Next() {
			values = append(values, at.Value.(*Member[T]).Value)
		}
	}
	return values
}

// Next returns the member that should make room: the oldest one of the network with the most
// members, or of these networks if there are several. It returns nil if the eviction queue is empty.
func (c *EvictionQueue[T]) Next() *Member[T] {
	if len(c.largest) == 0 {
		return nil
	}
	return c.largest[0].first()
}

// largest is a heap of the groups, the one with the most members first.
type largest[T any] []*group[T]

// Len implements heap.Interface.
func (l largest[T]) Len() int { return len(l) }

// Less implements heap.Interface.
func (l largest[T]) Less(i, j int) bool {
	if a, b := l[i].members.Len(), l[j].members.Len(); a != b {
		return a > b
	}
	return l[i].first().order < l[j].first().order
}

// Swap implements heap.Interface.
func (l largest[T]) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].index, l[j].index = i, j
}

// Push implements heap.Interface.
func (l *largest[T]) Push(g any) {
	added := g.(*group[T])
	added.index = len(*l)
	*l = append(*l, added)
}

// Pop implements heap.Interface.
func (l *largest[T]) Pop() any {
	last := len(*l) - 1
	g := (*l)[last]
	(*l)[last] = nil
	*l = (*l)[:last]
	return g
}
