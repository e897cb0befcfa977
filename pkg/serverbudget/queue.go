package serverbudget

import (
	"cmp"
	"container/heap"
	"slices"
)

// waiter is what waits in a queue.
type waiter struct {
	flow  *Flow
	cost  float64
	ready chan struct{} // closed when it has its turn
}

// queue serves waiters by start-time fair queueing (Goyal, Vin and Cheng, 1996), in two levels: first owners by their weights,
// then the jobs of an owner. Each has a tag, which counts what it was served per weight. The lowest tag is next. When somebody
// begins to wait, its tag is raised to the tag that was served last: nobody saves up turns. The zero value is ready to use.
type queue struct {
	owners level
	length int
}

// level are the owners of a queue, or the jobs of an owner.
type level struct {
	known map[string]*member
	line  line    // those that wait
	clock float64 // the tag that was served last
	sweep int     // how many are known when those are forgotten that would begin anew in the same place
}

// member is an owner or a job.
type member struct {
	name    string
	weight  float64
	tag     float64
	at      int // in the line; -1 if it does not wait
	jobs    level
	waiters []*waiter // of a job, the oldest first
}

// line is a heap of members by their tags.
type line []*member

func (l line) Len() int           { return len(l) }
func (l line) Less(i, j int) bool { return before(l[i], l[j]) }
func (l line) Swap(i, j int)      { l[i], l[j] = l[j], l[i]; l[i].at, l[j].at = i, j }
func (l *line) Push(m any)        { m.(*member).at = len(*l); *l = append(*l, m.(*member)) } //nolint:forcetypeassert // see join
func (l *line) Pop() any {
	last := len(*l) - 1
	m := (*l)[last]
	*l, m.at = (*l)[:last], -1
	return m
}

func before(a, b *member) bool {
	return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.name, b.name)) < 0
}

// minSweep is the fewest members among which some are forgotten.
const minSweep = 64

// join returns a member that waits from now on, and need not be known yet.
func (l *level) join(name string, weight float64) *member {
	m := l.known[name]
	if m == nil {
		if len(l.known) >= max(l.sweep, minSweep) {
			l.forget()
		}
		if l.known == nil {
			l.known = map[string]*member{}
		}
		m = &member{name: name, at: -1}
		l.known[name] = m
	}
	m.weight = weight
	if m.at < 0 {
		m.tag = max(m.tag, l.clock)
		heap.Push(&l.line, m)
	}
	return m
}

func (l *level) forget() {
	for name, m := range l.known {
		if m.at < 0 && m.tag <= l.clock {
			delete(l.known, name)
		}
	}
	l.sweep = 2 * len(l.known)
}

// served charges a member that was first. waits says whether it still waits.
func (l *level) served(m *member, cost float64, waits bool) {
	l.clock = m.tag
	m.tag += cost / m.weight
	l.settle(m, waits)
}

// settle puts a member that has waited in its place.
func (l *level) settle(m *member, waits bool) {
	if waits {
		heap.Fix(&l.line, m.at)
	} else {
		heap.Remove(&l.line, m.at)
	}
}

func (q *queue) add(w *waiter) {
	owner := q.owners.join(w.flow.Owner, float64(max(w.flow.Weight, 1)))
	job := owner.jobs.join(w.flow.Job, 1)
	job.waiters = append(job.waiters, w)
	q.length++
}

// next returns the waiter whose turn it is, nil if there is none.
func (q *queue) next() *waiter {
	if q.length == 0 {
		return nil
	}
	return q.owners.line[0].jobs.line[0].waiters[0]
}

// serve takes out the waiter whose turn it is.
func (q *queue) serve() {
	owner := q.owners.line[0]
	job := owner.jobs.line[0]
	w := job.waiters[0]
	job.waiters = slices.Delete(job.waiters, 0, 1)
	q.length--
	owner.jobs.served(job, w.cost, len(job.waiters) > 0)
	q.owners.served(owner, w.cost, len(owner.jobs.line) > 0)
}

// remove takes out a waiter that gives up.
func (q *queue) remove(w *waiter) {
	owner := q.owners.known[w.flow.Owner]
	job := owner.jobs.known[w.flow.Job]
	i := slices.Index(job.waiters, w)
	job.waiters = slices.Delete(job.waiters, i, i+1)
	q.length--
	owner.jobs.settle(job, len(job.waiters) > 0)
	q.owners.settle(owner, len(owner.jobs.line) > 0)
}

// before returns the number of jobs whose turn is before that of a flow, which waits.
func (q *queue) before(f *Flow) (jobs int) {
	own := q.owners.known[f.Owner]
	if own == nil || own.jobs.known[f.Job] == nil {
		return 0
	}
	for _, owner := range q.owners.line {
		switch {
		case owner == own:
			for _, job := range own.jobs.line {
				if before(job, own.jobs.known[f.Job]) {
					jobs++
				}
			}
		case before(owner, own):
			jobs += len(owner.jobs.line)
		}
	}
	return jobs
}
