package fdbjobs

import (
	"cmp"
	"math"
	"slices"
)

// contender is an owner as a claim has read it: its usage, its ready rows, and its running jobs that can be evicted.
type contender struct {
	owner  string
	rank   float64 // among the waiting owners
	used   float64 // usage per weight
	weight float64
	dither float64 // from 0 to 1: see fairShare

	partition partition
	rows      [][]byte // keys in ready, in the order in which to take them
	others    [][]byte // keys that are in other partitions
	unread    bool     // it waits, and its rows have not been read
	read      bool     // they have
	empty     bool     // it had no ready rows when they were read

	evictable []string // ids of its jobs, in the order in which they go
}

// effective returns the usage per weight by which the owner is compared with others. A running job counts jobCost.
func (p *contender) effective(jobCost float64) float64 { return p.used + p.dither*jobCost/p.weight }

// afterEviction returns what effective returns after the next of its jobs has gone.
func (p *contender) afterEviction(jobCost float64) float64 {
	return p.effective(jobCost) - jobCost/p.weight
}

// evict gives up the next of its jobs that can be evicted, and returns its id.
func (p *contender) evict(jobCost float64) string {
	id := p.evictable[0]
	p.evictable = p.evictable[1:]
	p.used -= jobCost / p.weight
	return id
}

// pick is a ready row whose job is to be taken.
type pick struct {
	of     *contender
	key    []byte
	evicts string // the id of the job that goes for it; "" if there is room
}

// choice is what choose chooses.
type choice struct {
	picks []pick
	// unread are the owners that would be served next, if their rows were known. No more is chosen before them.
	unread []*contender
	// settled says that no running job is to go for any other waiting job.
	settled bool
}

// choose chooses up to n rows, each from the owner with the lowest usage per weight. Earlier choices count. It changes
// nothing: what it needs was read before, and is written after it.
//
// If there is no room (full), a running job is evicted for each row: a job of the owner with the highest usage per weight, if
// that owner's usage stays at least as high as the usage of the served owner. If no owner's usage is too high, the jobs of
// each owner take turns. Each exchange counts at once, so each owner gets its share when one claim exchanges many jobs.
func choose(owners []*contender, jobCost float64, full bool, n int) (c choice) {
	now, served := make([]contender, len(owners)), make([]int, len(owners))
	for i, p := range owners {
		now[i] = *p
	}
	for len(c.picks) < n {
		next := lowest(now, served, jobCost)
		if next < 0 {
			return c
		}
		if now[next].unread {
			for _, i := range unread(now, jobCost) {
				c.unread = append(c.unread, owners[i])
			}
			return c
		}
		evicts := ""
		if full {
			serves, goes := exchange(now, next, jobCost)
			if goes < 0 {
				c.settled = true
				return c
			}
			next = serves
			evicts = now[goes].evict(jobCost)
		}
		p := &now[next]
		c.picks = append(c.picks, pick{owners[next], p.rows[0], evicts})
		p.rows = p.rows[1:]
		p.used += jobCost / p.weight
		served[next]++
	}
	return c
}

// lowest returns the index of the owner that is served next, or -1: of those that have ready rows, or may have, the one with
// the lowest usage. Of several it is the one that was served least.
func lowest(owners []contender, served []int, jobCost float64) int {
	next := -1
	for i := range owners {
		p := &owners[i]
		if len(p.rows) == 0 && !p.unread {
			continue
		}
		if next < 0 || cmp.Or(cmp.Compare(p.effective(jobCost), owners[next].effective(jobCost)), served[i]-served[next]) < 0 {
			next = i
		}
	}
	return next
}

// unread returns the indexes of the owners whose rows must be read before any other row is chosen, the next first.
func unread(owners []contender, jobCost float64) (found []int) {
	known := math.Inf(1)
	for i := range owners {
		if p := &owners[i]; len(p.rows) > 0 {
			known = min(known, p.effective(jobCost))
		}
	}
	for i := range owners {
		if p := &owners[i]; p.unread && p.effective(jobCost) <= known {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int {
		return cmp.Compare(owners[a].effective(jobCost), owners[b].effective(jobCost))
	})
	return found
}

// exchange chooses the owner that gives up a job, and the owner that is served: next, or the same owner if no usage is too
// high. The results are indexes of owners. goes is -1 if no job is to go.
func exchange(owners []contender, next int, jobCost float64) (serves, goes int) {
	goes = highest(owners, jobCost, func(*contender) bool { return true })
	if goes < 0 || goes == next || owners[next].effective(jobCost) <= owners[goes].afterEviction(jobCost) {
		return next, goes
	}
	goes = highest(owners, jobCost, func(p *contender) bool { return len(p.rows) > 0 })
	return goes, goes
}

// highest returns the index of the owner that gives up a job first, among the owners that match, or -1.
func highest(owners []contender, jobCost float64, match func(*contender) bool) int {
	found := -1
	for i := range owners {
		p := &owners[i]
		if len(p.evictable) > 0 && match(p) && (found < 0 || p.afterEviction(jobCost) > owners[found].afterEviction(jobCost)) {
			found = i
		}
	}
	return found
}

// evictFirst returns the ids of up to n jobs that go first: each a job of the owner with the highest usage per weight after
// the previous ones have gone.
func evictFirst(owners []*contender, jobCost float64, n int) (ids []string) {
	now := make([]contender, len(owners))
	for i, p := range owners {
		now[i] = *p
	}
	for len(ids) < n {
		first := highest(now, jobCost, func(*contender) bool { return true })
		if first < 0 {
			break
		}
		ids = append(ids, now[first].evict(jobCost))
	}
	return ids
}

// ownersOf returns the owners of jobs that can be evicted. The jobs of one owner are in the order in which they go.
func ownersOf(held []*Held) (owners []*contender) {
	byName := map[string]*contender{}
	for _, h := range held {
		p := byName[h.job.Owner]
		if p == nil {
			p = &contender{owner: h.job.Owner}
			byName[p.owner] = p
			owners = append(owners, p)
		}
		p.evictable = append(p.evictable, h.job.ID)
	}
	return owners
}
