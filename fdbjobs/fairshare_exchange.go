package fdbjobs

import "settee/pkg/kv"

// Yielding is a running job of this process that can make room for another.
type Yielding struct{ ID, Owner string }

// exchange decides which running jobs make room for the jobs that a claim takes. A job of the owner with the highest
// usage per weight goes, if that owner's usage stays at least that of the owner that is served. If no owner's usage is
// too high, the jobs of each owner take turns.
//
// Each swap counts at once, so each owner gets its share when one claim exchanges many jobs.
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
	jobs         []string // in the order in which they go
}

// Yield returns the ids of up to n jobs that go first when there is less room. Each is a job of the owner with the
// highest usage per weight after the previous ones have gone. The jobs of one owner go in the given order.
func (q *Queue) Yield(tx kv.ReadTransaction, jobs []Yielding, n int) ([]string, error) {
	e, err := q.share.newExchange(tx, jobs)
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

// newExchange reads the usage of the jobs' owners.
func (f *fairShare) newExchange(tx kv.ReadTransaction, jobs []Yielding) (*exchange, error) {
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
	rolled := f.readRollup(tx)
	reads := make([]usageRead, len(e.owners))
	for i, o := range e.owners {
		reads[i] = f.readUsage(tx, tx, o.name)
	}
	r, err := awaitRollup(rolled)
	if err != nil {
		return nil, err
	}
	e.unit = float64(r.running)
	for i, o := range e.owners {
		u, err := reads[i].await()
		if err != nil {
			return nil, err
		}
		o.used, o.weight = u.perWeight(r), u.weight
		o.offset = offset(o.name, r.generation)
	}
	return e, nil
}

// first returns the owner whose job goes next, or nil if no job is left.
func (e *exchange) first() *yieldingOwner {
	var first *yieldingOwner
	for _, o := range e.owners {
		if len(o.jobs) > 0 && (first == nil || o.left(e.unit) > first.left(e.unit)) {
			first = o
		}
	}
	return first
}

// left returns the owner's usage per weight after its next job has gone.
func (o *yieldingOwner) left(unit float64) float64 { return o.used + (o.offset-1)*unit/o.weight }

// swap chooses the running job that goes for a job of next, the owner to serve, or for another job of its own owner. It
// returns the owner that is served and the job, or nil if no job is to go.
func (e *exchange) swap(next *candidate, candidates []*candidate) (*candidate, *goer) {
	first := e.first()
	if first == nil {
		return nil, nil
	}
	if next.owner == first.name || next.would(e.unit) <= first.left(e.unit) {
		return next, e.take(first, next)
	}
	var most *yieldingOwner
	var served *candidate
	for _, o := range candidates {
		y := e.byName[o.owner]
		if y == nil || len(o.rows) == 0 || len(y.jobs) == 0 {
			continue
		}
		if most == nil || y.left(e.unit) > most.left(e.unit) {
			most, served = y, o
		}
	}
	if most == nil {
		return nil, nil
	}
	return served, e.take(most, served)
}

// take makes the next job of an owner go for a job of served.
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
	waits *candidate // its owner, if it waits too
}

// undo reverts a swap whose new job was gone.
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
