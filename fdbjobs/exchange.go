package fdbjobs

import "settee/pkg/kv"

// Yielding is a running job of this process's that can make room for another one.
type Yielding struct{ ID, Owner string }

// exchange finds out which running jobs make room for those that a claim takes. One of the
// owner that has used the most for its weight goes, if its owner will still have no less than
// the one that is served then. Where nobody has too much, the jobs of each owner take turns.
//
// What a claim takes and what goes for it count at once, so that of many jobs that are
// exchanged at a time each owner gets its part.
type exchange struct {
	unit   float64 // what a running job counts
	owners []*yieldingOwner
	byName map[string]*yieldingOwner
}

// yieldingOwner is an owner with jobs that can make room.
type yieldingOwner struct {
	used, weight float64
	offset       float64 // see pick
	name         string
	jobs         []string // the one that goes first before the others
}

// Yield returns the ids of up to n jobs that are to go first when there is less room: each
// of the owner that has used the most for its weight, as if what went before were not
// running any more. Those of one owner go in the order in which they are given.
func (t *Type) Yield(tx kv.ReadTransaction, jobs []Yielding, n int) ([]string, error) {
	e, err := t.newExchange(tx, jobs)
	if err != nil {
		return nil, err
	}
	var ids []string
	for first := e.first(); first != nil && len(ids) < n; first = e.first() {
		ids = append(ids, first.jobs[0])
		first.jobs = first.jobs[1:]
		first.used -= e.unit / first.weight
	}
	return ids, nil
}

// newExchange reads what the owners of some jobs have used.
func (t *Type) newExchange(tx kv.ReadTransaction, jobs []Yielding) (*exchange, error) {
	e := &exchange{byName: map[string]*yieldingOwner{}}
	for _, job := range jobs {
		o := e.byName[job.Owner]
		if o == nil {
			o = &yieldingOwner{name: job.Owner}
			e.byName[job.Owner] = o
			e.owners = append(e.owners, o)
		}
		o.jobs = append(o.jobs, job.ID)
	}
	rolled := tx.Get(t.keys.rollup)
	reads := make([]usageRead, len(e.owners))
	for i, o := range e.owners {
		reads[i] = t.readUsage(tx, o.name)
	}
	r, err := awaitRollup(rolled)
	if err != nil {
		return nil, err
	}
	e.unit = float64(r.running)
	for i, o := range e.owners {
		if o.used, o.weight, err = reads[i].await(r); err != nil {
			return nil, err
		}
		o.offset = offset(o.name, r.generation)
	}
	return e, nil
}

// first returns the owner whose job goes next, nil if there is none left.
func (e *exchange) first() *yieldingOwner {
	var first *yieldingOwner
	for _, o := range e.owners {
		if len(o.jobs) > 0 && (first == nil || o.left(e.unit) > first.left(e.unit)) {
			first = o
		}
	}
	return first
}

// left is what the owner has used when its next job has gone.
func (o *yieldingOwner) left(unit float64) float64 { return o.used + (o.offset-1)*unit/o.weight }

// swap has one job go for one of the owner next, which is the one to be served, or for another
// one of its own owner. It returns who is served, and the job; nil if none is to go.
func (e *exchange) swap(next *candidate, candidates []*candidate) (*candidate, *goer) {
	first := e.first()
	if first == nil {
		return nil, nil
	}
	if next.owner == first.name || next.would(e.unit) <= first.left(e.unit) {
		return next, e.take(first, next)
	}
	var turns *yieldingOwner
	var served *candidate
	for _, o := range candidates {
		y := e.byName[o.owner]
		if y == nil || len(o.queue) == 0 || len(y.jobs) == 0 {
			continue
		}
		if turns == nil || y.left(e.unit) > turns.left(e.unit) {
			turns, served = y, o
		}
	}
	if turns == nil {
		return nil, nil
	}
	return served, e.take(turns, served)
}

// take takes the next job of an owner for one of another owner.
func (e *exchange) take(from *yieldingOwner, served *candidate) *goer {
	goes := &goer{of: from, id: from.jobs[0]}
	from.jobs = from.jobs[1:]
	e.add(from.name, -e.unit/from.weight)
	e.add(served.owner, e.unit/served.weight)
	return goes
}

// goer is a job that makes room.
type goer struct {
	of    *yieldingOwner
	id    string
	waits *candidate // its owner, if that waits for something, too
}

// undo takes a swap back whose job was not there any more.
func (e *exchange) undo(served *candidate, g *goer) {
	g.of.jobs = append([]string{g.id}, g.of.jobs...)
	e.add(g.of.name, e.unit/g.of.weight)
	e.add(served.owner, -e.unit/served.weight)
}

func (e *exchange) add(owner string, used float64) {
	if o := e.byName[owner]; o != nil {
		o.used += used
	}
}
