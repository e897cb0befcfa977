package fdbjobs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// slotWorld has four nodes with eight slots, and owners whose jobs never end. Once in a minute each node offers the jobs that
// have run for two minutes, and exchanges three of them at most.
type slotWorld struct {
	owners  []string
	used    map[string]float64
	waiting []*slotJob
	held    [4][]*slotJob
	late    []lateAccept

	stops    map[string]int     // of jobs, by owner
	restarts int                // jobs that were stopped and are next again
	slots    map[string]float64 // the slots that each owner has on average
}

type slotJob struct {
	owner, key string
	since      int
}

// lateAccept is an accept of a node, after the jobs that it has stopped have ended.
type lateAccept struct {
	node, at int
	stopped  []string
}

const (
	slotsOfNode = 8
	slotCost    = 3_600.0
	slotStop    = 3 // seconds until a job that is stopped has written its last checkpoint
)

func newSlotWorld(jobs ...int) *slotWorld {
	w := &slotWorld{used: map[string]float64{}, stops: map[string]int{}, slots: map[string]float64{}}
	for i, n := range jobs {
		owner := fmt.Sprint("owner ", i)
		w.owners = append(w.owners, owner)
		for id := range n {
			w.waiting = append(w.waiting, &slotJob{owner: owner, key: fmt.Sprint(owner, " ", id)})
		}
	}
	return w
}

// contenders returns the owners as a claim reads them, with some jobs that can be evicted.
func (w *slotWorld) contenders(now int, offered []*slotJob) (all []*contender) {
	for _, owner := range w.owners {
		p := &contender{owner: owner, weight: 1, used: w.used[owner], dither: dither(owner, int64(now/60))}
		for _, j := range slices.Concat(w.held[:]...) {
			if j.owner == owner {
				p.used += slotCost
			}
		}
		for _, j := range w.waiting {
			if j.owner == owner {
				p.rows = append(p.rows, []byte(j.key))
			}
		}
		for _, j := range offered {
			if j.owner == owner {
				p.evictable = append(p.evictable, j.key)
			}
		}
		all = append(all, p)
	}
	return all
}

func moveJob(from, to *[]*slotJob, key string, now int) {
	i := slices.IndexFunc(*from, func(j *slotJob) bool { return j.key == key })
	j := (*from)[i]
	j.since = now
	*from, *to = slices.Delete(*from, i, i+1), append(*to, j)
}

// start starts the jobs that were chosen.
func (w *slotWorld) start(node, now int, picks []pick) {
	for _, p := range picks {
		moveJob(&w.waiting, &w.held[node], string(p.key), now)
		if p.evicts != "" {
			w.stop(node, now, p.evicts)
		}
	}
}

func (w *slotWorld) stop(node, now int, key string) {
	moveJob(&w.held[node], &w.waiting, key, now)
	w.stops[w.waiting[len(w.waiting)-1].owner]++
}

// tick is the look of a node, once in a minute.
func (w *slotWorld) tick(node, now int, exchanges bool) {
	if free := slotsOfNode - len(w.held[node]); now < 60 {
		w.start(node, now, choose(w.contenders(now, nil), slotCost, false, free).picks)
		return
	}
	var offered []*slotJob
	for _, j := range w.held[node] {
		if now-j.since >= 120 {
			offered = append(offered, j)
		}
	}
	if exchanges {
		w.start(node, now, choose(w.contenders(now, offered), slotCost, true, 3).picks)
		return
	}
	ids := evictFirst(w.contenders(now, offered), slotCost, 3)
	for _, id := range ids {
		w.stop(node, now, id)
	}
	w.late = append(w.late, lateAccept{node, now + slotStop, ids})
}

// run runs the world for some hours. If exchanges is not set, nodes yield jobs first, and accept others afterwards.
func (w *slotWorld) run(hours int, exchanges bool) {
	r := rand.New(rand.NewPCG(1, 2))
	var ticks [len(w.held)]int
	for i := range ticks {
		ticks[i] = r.IntN(60)
	}
	for now := range hours * 3_600 {
		for _, j := range slices.Concat(w.held[:]...) {
			w.used[j.owner]++
			w.slots[j.owner]++
		}
		if now%60 == 0 {
			for owner := range w.used {
				w.used[owner] *= 0.98
			}
		}
		for len(w.late) > 0 && w.late[0].at == now {
			a := w.late[0]
			w.late = w.late[1:]
			picks := choose(w.contenders(now, nil), slotCost, false, len(a.stopped)).picks
			for _, p := range picks {
				if slices.Contains(a.stopped, string(p.key)) {
					w.restarts++
				}
			}
			w.start(a.node, now, picks)
		}
		for node, at := range ticks {
			if now%60 == at {
				w.tick(node, now, exchanges)
			}
		}
	}
	for owner := range w.slots {
		w.slots[owner] /= float64(hours * 3_600)
	}
}

// TestExchange: nodes that are full exchange their jobs so that each owner has its share of the slots, and stop no job that is
// next again. Nodes that yield jobs first, and accept then, do not, and have idle slots meanwhile.
func TestExchange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		jobs   []int
		shares []float64
		few    []string // owners with fewer jobs than their share of the slots
	}{
		"more jobs than slots": {[]int{100, 20, 20}, []float64{10.67, 10.67, 10.67}, nil},
		"owners with few jobs": {[]int{100, 12, 3}, []float64{17, 12, 3}, []string{"owner 1", "owner 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, yields := newSlotWorld(c.jobs...), newSlotWorld(c.jobs...)
			w.run(12, true)
			yields.run(12, false)
			for i, share := range c.shares {
				assert.InDelta(t, share, w.slots[w.owners[i]], 0.05*share)
			}
			for _, owner := range c.few {
				assert.Zero(t, w.stops[owner])
				assert.NotZero(t, yields.stops[owner], "otherwise the exchange is not needed")
			}
			t.Logf("with exchanges jobs stop %v, slots %v; with yields %v, of which %d are next again, slots %v",
				w.stops, w.slots, yields.stops, yields.restarts, yields.slots)
		})
	}
}
