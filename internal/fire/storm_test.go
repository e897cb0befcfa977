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

// group is what blows hit: so many nodes or fdbservers, of which so many at a time.
type group struct {
	first, count, atOnce int
}

// One of each group is always left alone, and of three fdbservers two: so much the cluster is made to bear.
var (
	replicationNodes = &group{frontends, replicators, replicators - 1}
	frontendNodes    = &group{0, frontends, frontends - 1}
	databases        = &group{0, fdbservers, 1}
)

// kind is a kind of blow.
type kind struct {
	name        string
	share       int // how often it is drawn, of all shares together
	group       *group
	least, most time.Duration
	begin, end  func(c *cluster, whom int) error
}

// Who is frozen or cut off for longer than the activity timeout loses its jobs, and does not know.
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
		func(c *cluster, whom int) error { c.fdb.Kill(whom); return nil },
		func(c *cluster, whom int) error { return c.fdb.Start(whom) }},
	{"freeze fdbserver", 6, databases, time.Second, 8 * time.Second,
		func(c *cluster, whom int) error { return c.fdb.Freeze(whom) },
		func(c *cluster, whom int) error { return c.fdb.Thaw(whom) }},
}

func kill(c *cluster, whom int) error      { c.nodes[whom].kill(); return nil }
func terminate(c *cluster, whom int) error { return c.nodes[whom].terminate() }
func start(c *cluster, whom int) error     { return c.nodes[whom].start() }
func freeze(c *cluster, whom int) error    { return c.nodes[whom].freeze() }
func thaw(c *cluster, whom int) error      { return c.nodes[whom].thaw() }
func cut(c *cluster, whom int) error       { return c.nodes[whom].cut() }
func mend(c *cluster, whom int) error      { return c.nodes[whom].mend() }

// blow is something that is done to the cluster at a time since the beginning, and undone at another.
type blow struct {
	kind
	at, until time.Duration
	whom      int // of its group
}

func (b blow) String() string {
	whom := fmt.Sprint("frontend", b.whom)
	switch b.group {
	case replicationNodes:
		whom = fmt.Sprint("replication", b.whom-frontends)
	case databases:
		whom = fmt.Sprint(b.whom)
	}
	return fmt.Sprintf("%s %s from %.1f s to %.1f s", b.name, whom, b.at.Seconds(), b.until.Seconds())
}

// rest is how long what was hit is left alone afterwards.
const rest = 5 * time.Second

// plan draws blows for a time, at the end of which all are undone.
func plan(seed uint64, length time.Duration) (blows []blow) {
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
		b := blow{k, at, min(at+between(k.least, k.most), length), k.group.first + random.IntN(k.group.count)}
		hit, again := 0, false
		for _, other := range blows {
			if other.group == k.group && other.until+rest > at {
				hit++
				again = again || other.whom == b.whom
			}
		}
		if hit < k.group.atOnce && !again {
			blows = append(blows, b)
		}
	}
	return blows
}

// strike does what a plan says.
func (c *cluster) strike(blows []blow) {
	type moment struct {
		at   time.Duration
		what string
		do   func(c *cluster, whom int) error
		whom int
	}
	var moments []moment
	for _, b := range blows {
		moments = append(moments, moment{b.at, b.String(), b.begin, b.whom}, moment{b.until, "the end of " + b.String(), b.end, b.whom})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	began := time.Now()
	for _, m := range moments {
		time.Sleep(m.at - time.Since(began))
		require.NoError(c, m.do(c, m.whom), m.what)
	}
}
