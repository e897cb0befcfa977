package fdbjobs

import (
	"cmp"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"settee/pkg/kv"
)

// candidate is an owner as a claim has read it: its usage, its ready rows, and its running jobs that can make room.
type candidate struct {
	owner  string
	rank   float64 // in the line
	used   float64 // usage per weight
	weight float64
	offset float64 // from 0 to 1, see choose

	partition partition
	rows      [][]byte // keys in ready, in the order in which to take them
	others    [][]byte // keys that are in other partitions
	unread    bool     // rows have not been read
	empty     bool     // the owner had no ready rows when they were read

	yields []string // ids of its jobs that can make room, in the order in which they go
}

// effective returns the owner's usage per weight by which it is compared with others. A running job counts unit.
func (p *candidate) effective(unit float64) float64 { return p.used + p.offset*unit/p.weight }

// afterYield returns what effective returns after the next of its jobs has gone.
func (p *candidate) afterYield(unit float64) float64 { return p.effective(unit) - unit/p.weight }

// yield gives up the next of its jobs that can make room, and returns its id.
func (p *candidate) yield(unit float64) string {
	id := p.yields[0]
	p.yields = p.yields[1:]
	p.used -= unit / p.weight
	return id
}

// choice is a row that is to be taken.
type choice struct {
	of      *candidate
	key     []byte
	instead string // the id of the job that makes room for it; "" if there is room
}

// decision is what choose decides.
type decision struct {
	chosen []choice
	// unread are the owners that would be served next, if their rows were known. No more is chosen before them.
	unread []*candidate
	// last is the usage of the owner of the last choice, without its offset, before that choice.
	last float64
	// outbid says that no running job is to go for any waiting job.
	outbid bool
}

// choose chooses up to n rows, each from the owner with the lowest usage per weight. Earlier choices count. It changes
// nothing: what it needs was read before, and is written after it.
//
// The number of an owner's running jobs is whole, and its share of the slots need not be. With few slots one owner
// would always have too many and another too few. So each owner has an offset of up to what one running job counts,
// which changes with time. Then each owner has its share on average.
//
// If there is no room (exchange), a running job makes room for each row: a job of the owner with the highest usage per
// weight, if that owner's usage stays at least as high as the usage of the served owner. If no owner's usage is too high,
// the jobs of each owner take turns. Each swap counts at once, so each owner gets its share when one claim exchanges many
// jobs.
func choose(candidates []*candidate, unit float64, exchange bool, n int) (d decision) {
	now, picks := make([]candidate, len(candidates)), make([]int, len(candidates))
	for i, p := range candidates {
		now[i] = *p
	}
	for len(d.chosen) < n {
		next := -1
		for i := range now {
			p := &now[i]
			if len(p.rows) == 0 && !p.unread {
				continue
			}
			if next < 0 || p.effective(unit) < now[next].effective(unit) || p.effective(unit) == now[next].effective(unit) && picks[i] < picks[next] {
				next = i
			}
		}
		if next < 0 {
			return d
		}
		if now[next].unread {
			for _, i := range unread(now, unit) {
				d.unread = append(d.unread, candidates[i])
			}
			return d
		}
		instead := ""
		if exchange {
			serves, goes := swap(now, next, unit)
			if goes < 0 {
				d.outbid = true
				return d
			}
			next = serves
			instead = now[goes].yield(unit)
		}
		p := &now[next]
		d.last = p.used
		d.chosen = append(d.chosen, choice{candidates[next], p.rows[0], instead})
		p.rows = p.rows[1:]
		p.used += unit / p.weight
		picks[next]++
	}
	return d
}

// unread returns the indexes of the owners whose rows must be read before any other row is chosen, the next first.
func unread(candidates []candidate, unit float64) (found []int) {
	known := math.Inf(1)
	for i := range candidates {
		if p := &candidates[i]; len(p.rows) > 0 {
			known = min(known, p.effective(unit))
		}
	}
	for i := range candidates {
		if p := &candidates[i]; p.unread && p.effective(unit) <= known {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int { return cmp.Compare(candidates[a].effective(unit), candidates[b].effective(unit)) })
	return found
}

// swap chooses the owner that gives up a job, and the owner that is served: next, or the same owner if no usage is too
// high. The results are indexes of candidates. goes is -1 if no job makes room.
func swap(candidates []candidate, next int, unit float64) (serves, goes int) {
	goes = highest(candidates, unit, func(p *candidate) bool { return true })
	if goes < 0 || goes == next || candidates[next].effective(unit) <= candidates[goes].afterYield(unit) {
		return next, goes
	}
	goes = highest(candidates, unit, func(p *candidate) bool { return len(p.rows) > 0 })
	return goes, goes
}

// highest returns the index of the owner that gives up a job first, among the owners that match, or -1.
func highest(candidates []candidate, unit float64, match func(*candidate) bool) int {
	found := -1
	for i := range candidates {
		p := &candidates[i]
		if len(p.yields) > 0 && match(p) && (found < 0 || p.afterYield(unit) > candidates[found].afterYield(unit)) {
			found = i
		}
	}
	return found
}

// Yield returns the ids of up to n jobs that go first when a process is to hold fewer. Each is a job of the owner with the
// highest usage per weight after the previous ones have gone. The jobs of one owner go in the given order.
func (f *Fair) Yield(tx kv.ReadTransaction, jobs []*Held, n int) ([]string, error) {
	owners := yielders(jobs)
	unit, err := f.loadUsage(tx, f.readRollup(tx), owners, true)
	if err != nil {
		return nil, err
	}
	candidates := make([]candidate, len(owners))
	for i, p := range owners {
		candidates[i] = *p
	}
	var ids []string
	for len(ids) < n {
		first := highest(candidates, unit, func(*candidate) bool { return true })
		if first < 0 {
			break
		}
		ids = append(ids, candidates[first].yield(unit))
	}
	return ids, nil
}

// yielders returns the owners of jobs that can make room.
func yielders(held []*Held) (owners []*candidate) {
	byName := map[string]*candidate{}
	for _, h := range held {
		job := h.job
		p := byName[job.Owner]
		if p == nil {
			p = &candidate{owner: job.Owner}
			byName[job.Owner] = p
			owners = append(owners, p)
		}
		p.yields = append(p.yields, job.ID)
	}
	return owners
}

// offsetFor is the number of roll-ups for which an owner's offset stays the same. In that time most slots must change
// jobs: otherwise an owner that waits would get one at its best offset.
const offsetFor = 16

// offset returns a number from 0 to 1 for an owner, a new one every offsetFor roll-ups. It is the same in all
// processes.
func offset(owner string, generation int64) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner)) // never fails
	seed := h.Sum64()
	return rand.New(rand.NewPCG(seed, (uint64(generation)+seed%offsetFor)/offsetFor)).Float64()
}
