package serverbudget

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
)

// MinConnections is the fewest connections that a node can work with: those of a job and its feed, and the feed of the watch of
// its server. Nodes take connections in groups of so many.
const MinConnections = 4

// Need is what a node says about a server that has a budget, in its row of the store.
type Need struct {
	Jobs int64 `json:"jobs"`
	// Want is the most that the node can use. 0 is as much as it gets.
	Want Limit `json:"want"`
	// Part is what it has taken.
	Part Limit `json:"part"`
	// Limit is the limit of all nodes, as this one knows it.
	Limit Limit `json:"limit"`
	// Used is what it has used in a second lately, and the connections that it has open.
	Used Limit `json:"used"`
}

// contender is a node in a division.
type contender struct {
	name       string
	jobs, want int64
	part       int64
}

// divide divides units among nodes by their jobs. A node that wants less than its part gets what it wants, and the others share
// the rest. If all have what they want, the rest is divided among all, so that a node has some when it wants more. Parts are
// whole numbers. turn decides which nodes get the remainders.
func divide(units int64, nodes []contender, turn int64) {
	slices.SortFunc(nodes, func(a, b contender) int {
		return cmp.Or(cmp.Compare(place(a.name, turn), place(b.name, turn)), cmp.Compare(a.name, b.name))
	})
	all := make([]*contender, len(nodes))
	for i := range nodes {
		all[i] = &nodes[i]
		nodes[i].part = 0
	}
	open, left := all, units
	for {
		jobs := sum(open)
		modest := func(n *contender) bool { return n.want > 0 && n.want*jobs <= left*n.jobs }
		if !slices.ContainsFunc(open, modest) {
			break
		}
		var others []*contender
		given := int64(0)
		for _, n := range open {
			if modest(n) {
				n.part = n.want
				given += n.want
			} else {
				others = append(others, n)
			}
		}
		left -= given
		open = others
	}
	if len(open) == 0 {
		open = all
	}
	spread(left, open)
}

// spread divides units by jobs, with the largest remainders rounded up.
func spread(units int64, nodes []*contender) {
	jobs, left := sum(nodes), units
	if jobs == 0 {
		return
	}
	rest := func(n *contender) int64 { return units * n.jobs % jobs }
	for _, n := range nodes {
		part := units * n.jobs / jobs
		n.part += part
		left -= part
	}
	order := slices.Clone(nodes)
	slices.SortStableFunc(order, func(a, b *contender) int { return cmp.Compare(rest(b), rest(a)) })
	for _, n := range order[:min(left, int64(len(order)))] {
		n.part++
	}
}

func sum(nodes []*contender) (jobs int64) {
	for _, n := range nodes {
		jobs += n.jobs
	}
	return jobs
}

// place is where a node comes when remainders are given out in a turn.
func place(name string, turn int64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.FormatInt(turn, 10) + name)) // hashes do not fail
	return h.Sum64()
}

// dimension is one of the three numbers of a limit.
type dimension struct {
	of   func(*Limit) *int64
	unit int64
}

var dimensions = []dimension{
	{func(l *Limit) *int64 { return &l.Requests }, 1},
	{func(l *Limit) *int64 { return &l.Bytes }, 1},
	{func(l *Limit) *int64 { return &l.Connections }, MinConnections},
}

// partOf returns the part of a limit for the node with the name own: what divide gives it, but no more than the parts of the others
// leave. needs has the needs of all nodes by their names.
func partOf(limit Limit, needs map[string]Need, own string, turn int64) (part Limit) {
	for _, d := range dimensions {
		most := *d.of(&limit)
		if most == 0 {
			continue
		}
		var nodes []contender
		taken := int64(0)
		for name, need := range needs {
			want := *d.of(&need.Want)
			nodes = append(nodes, contender{name: name, jobs: max(need.Jobs, 1), want: (want + d.unit - 1) / d.unit})
			if name != own {
				taken += *d.of(&need.Part)
			}
		}
		divide(most/d.unit, nodes, turn)
		i := slices.IndexFunc(nodes, func(n contender) bool { return n.name == own })
		if i >= 0 {
			*d.of(&part) = max(0, min(nodes[i].part*d.unit, most-taken))
		}
	}
	return part
}
