package networks

import (
	"container/heap"
	"container/list"
)

// Crowd holds what waits, by network. It knows at any time which network has the most and which
// of that network's has waited longest. Add and Remove take time in proportion to the logarithm
// of the number of networks. The zero value is empty. It is not safe for concurrent use.
type Crowd[T any] struct {
	networks map[string]*group[T]
	largest  largest[T]
	added    uint64 // members so far
}

// Member is what waits in a crowd.
type Member[T any] struct {
	Value T

	group *group[T]
	place *list.Element
	order uint64 // in which the members of the crowd were added
}

// group has the members of one network, the longest first. It is never empty.
type group[T any] struct {
	network string
	members list.List // of *Member[T]
	place   int       // in Crowd.largest
}

func (g *group[T]) first() *Member[T] { return g.members.Front().Value.(*Member[T]) }

// Add adds what begins to wait.
func (c *Crowd[T]) Add(network string, value T) *Member[T] {
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
	m.place = g.members.PushBack(m)
	if isNew {
		heap.Push(&c.largest, g)
	} else {
		heap.Fix(&c.largest, g.place)
	}
	return m
}

// Remove removes a member that is in the crowd.
func (c *Crowd[T]) Remove(m *Member[T]) {
	g := m.group
	if g.members.Len() == 1 {
		heap.Remove(&c.largest, g.place)
		delete(c.networks, g.network)
		return
	}
	g.members.Remove(m.place)
	heap.Fix(&c.largest, g.place)
}

// Next returns the member that is to make room: that which has waited longest of the network
// that has the most members. Where several networks have as many, it is the one that has waited
// longest of all of theirs. It returns nil if the crowd is empty.
func (c *Crowd[T]) Next() *Member[T] {
	if len(c.largest) == 0 {
		return nil
	}
	return c.largest[0].first()
}

// largest is a heap whose first group has the most members.
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
	l[i].place, l[j].place = i, j
}

// Push implements heap.Interface.
func (l *largest[T]) Push(g any) {
	added := g.(*group[T])
	added.place = len(*l)
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
