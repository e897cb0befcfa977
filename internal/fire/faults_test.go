//go:build fdb && fire

package fire

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
)

// group is the nodes or fdbservers that a kind of fault affects: count of them, at most atOnce at
// a time.
type group struct {
	first, count, atOnce int
}

// One node of each group is always healthy, and two of three fdbservers: the cluster must survive
// that.
var (
	replicationNodes = &group{frontends, replicators, replicators - 1}
	frontendNodes    = &group{0, frontends, frontends - 1}
	databases        = &group{0, fdbservers, 1}
)

// kind is a kind of fault.
type kind struct {
	name        string
	share       int // its probability is share divided by the sum of all shares
	group       *group
	least, most time.Duration
	begin, end  func(c *cluster, index int) error
}

// A node that is frozen or cut off for longer than the activity timeout loses its jobs without
// noticing.
const shortest, longest = activityTimeout / 2, activityTimeout * 9 / 5

var kinds = []kind{
	{"kill", 18, replicationNodes, time.Second, 8 * time.Second, kill, start},
	{"end", 8, replicationNodes, time.Second, 4 * time.Second, terminate, start},
	{"freeze", 20, replicationNodes, shortest, longest, freeze, thaw},
	{"cut", 20, replicationNodes, shortest, longest, cut, mend},
	{"kill", 8, frontendNodes, time.Second, 4 * time.Second, kill, start},
	{"freeze", 6, frontendNodes, time.Second, 8 * time.Second, freeze, thaw},
	{"cut", 6, frontendNodes, time.Second, 8 * time.Second, cut, mend},
	{"kill fdbserver", 8, databases, time.Second, 8 * time.Second,
		func(c *cluster, index int) error { c.fdb.Kill(index); return nil },
		func(c *cluster, index int) error { return c.fdb.Start(index) }},
	{"freeze fdbserver", 6, databases, time.Second, 8 * time.Second,
		func(c *cluster, index int) error { return c.fdb.Freeze(index) },
		func(c *cluster, index int) error { return c.fdb.Thaw(index) }},
}

func kill(c *cluster, index int) error      { c.nodes[index].kill(); return nil }
func terminate(c *cluster, index int) error { return c.nodes[index].terminate() }
func start(c *cluster, index int) error     { return c.nodes[index].start() }
func freeze(c *cluster, index int) error    { return c.nodes[index].freeze() }
func thaw(c *cluster, index int) error      { return c.nodes[index].thaw() }
func cut(c *cluster, index int) error       { return c.nodes[index].cut() }
func mend(c *cluster, index int) error      { return c.nodes[index].mend() }

// fault is something done to the cluster at one time since the start, and undone at another.
type fault struct {
	kind
	at, until time.Duration
	index     int // of the node or the fdbserver
}

func (b fault) String() string {
	target := fmt.Sprint("frontend", b.index)
	switch b.group {
	case replicationNodes:
		target = fmt.Sprint("replication", b.index-frontends)
	case databases:
		target = fmt.Sprint(b.index)
	}
	return fmt.Sprintf("%s %s from %.1f s to %.1f s", b.name, target, b.at.Seconds(), b.until.Seconds())
}

// rest is the least time between two faults of one node or server.
const rest = 5 * time.Second

// plan draws the faults for a period, all of which end within it.
func plan(seed uint64, length time.Duration) (faults []fault) {
	random := rand.New(rand.NewPCG(seed, 0))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(random.Int64N(int64(1+most-least)))
	}
	shares := 0
	for _, k := range kinds {
		shares += k.share
	}
	for at := between(0, 2*time.Second); at < length; at += between(500*time.Millisecond, 3*time.Second) {
		drawn, n := random.IntN(shares), 0
		for drawn >= kinds[n].share {
			drawn -= kinds[n].share
			n++
		}
		k := kinds[n]
		b := fault{k, at, min(at+between(k.least, k.most), length), k.group.first + random.IntN(k.group.count)}
		hit, again := 0, false
		for _, other := range faults {
			if other.group == k.group && other.until+rest > at {
				hit++
				again = again || other.index == b.index
			}
		}
		if hit < k.group.atOnce && !again {
			faults = append(faults, b)
		}
	}
	return faults
}

// execute executes a plan.
func (c *cluster) execute(faults []fault) {
	type moment struct {
		at    time.Duration
		what  string
		do    func(c *cluster, index int) error
		index int
	}
	var moments []moment
	for _, b := range faults {
		moments = append(moments, moment{b.at, b.String(), b.begin, b.index}, moment{b.until, "the end of " + b.String(), b.end, b.index})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	began := time.Now()
	for _, m := range moments {
		time.Sleep(m.at - time.Since(began))
		require.NoError(c, m.do(c, m.index), m.what)
	}
}
