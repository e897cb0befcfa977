package faultkv

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// plan is what was decided about a call.
type plan struct {
	call  Call
	fault Fault
	delay time.Duration
	part  float64 // from 0 to below 1: a position or a fraction
}

// draws are the values drawn at each call. All are always drawn, so that the result for one call does not depend on
// earlier ones.
type draws struct {
	fault, delay, part float64
	seed               [2]uint64 // for Options.Delays
}

// decide numbers a call, and draws its fault or gets it from the script.
func (db *DB) decide(call Call) plan {
	call.Key = bytes.Clone(call.Key)
	db.mu.Lock()
	db.calls[call.Op]++
	call.N = db.calls[call.Op]
	d := draws{
		fault: db.random.Float64(),
		delay: db.random.Float64(),
		part:  db.random.Float64(),
		seed:  [2]uint64{db.random.Uint64(), db.random.Uint64()},
	}
	db.mu.Unlock()

	p := plan{call: call, part: d.part, fault: db.drawn(call.Op, d.fault)}
	delayed := d.delay < db.opts.Rates[Delay]
	if db.opts.Script != nil {
		switch fault := db.opts.Script(call); {
		case fault == Delay:
			p.fault, delayed = None, true
		case slices.Contains(possible[call.Op], fault):
			p.fault = fault
		}
	}
	if delayed && call.Op != Watch {
		p.delay = max(0, db.opts.Delays(rand.New(rand.NewPCG(d.seed[0], d.seed[1]))))
		db.hit(call, Delay, p.delay)
	}
	return p
}

// drawn returns the fault for u, from 0 to below 1.
func (db *DB) drawn(op Op, u float64) Fault {
	for _, fault := range possible[op] {
		if u -= db.opts.Rates[fault]; u < 0 {
			return fault
		}
	}
	return None
}

// hit counts and reports a fault.
func (db *DB) hit(call Call, fault Fault, d time.Duration) {
	db.mu.Lock()
	db.hits[fault]++
	db.mu.Unlock()
	if db.opts.Observe != nil {
		db.opts.Observe(Event{Call: call, Fault: fault, Delay: d})
	}
}

// Hits returns the number of times that a fault has hit.
func (db *DB) Hits(f Fault) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.hits[f]
}

// Calls returns the number of calls of a kind so far.
func (db *DB) Calls(op Op) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.calls[op]
}

// pairs returns the number of pairs after which a faulty range read fails: from 0 to 254, half of them within the first
// 15.
func (p plan) pairs() int { return int(math.Exp2(8*p.part)) - 1 }

// split returns the parts of a commit's delay before and after the commit is made.
func (p plan) split() (before, after time.Duration) {
	before = time.Duration(p.part * float64(p.delay))
	return before, p.delay - before
}
