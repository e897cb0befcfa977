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
	part  float64 // from 0 to below 1: where or how much of something
}

// draws are what is drawn at each call: always all of it, so that what becomes of
// one call does not depend on what came of those before it.
type draws struct {
	fault, delay, part float64
	seed               [2]uint64 // for Options.Delays
}

// decide numbers a call, and draws or asks the script what is to hit it.
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

// drawn returns the fault that u, from 0 to below 1, stands for.
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

// Hits returns how often a fault has hit so far.
func (db *DB) Hits(f Fault) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.hits[f]
}

// Calls returns how many calls of a kind there have been so far.
func (db *DB) Calls(op Op) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.calls[op]
}

// pairs returns after how many pairs a faulty range read fails: from 0 to 254, one
// in two within the first 15.
func (p plan) pairs() int { return int(math.Exp2(8*p.part)) - 1 }

// split returns the part of a commit's delay that passes before the commit is made,
// and the rest.
func (p plan) split() (before, after time.Duration) {
	before = time.Duration(p.part * float64(p.delay))
	return before, p.delay - before
}
