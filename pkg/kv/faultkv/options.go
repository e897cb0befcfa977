package faultkv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Rates are the probabilities of faults, from 0 to 1, for each call that they can
// hit. Those of a commit except Delay's are at most 1 together, and so are those of
// a watch.
type Rates map[Fault]float64

// Options of a DB. Its zero value makes no faults.
type Options struct {
	// Seed is where all that is drawn comes from.
	Seed uint64
	// Rates say how often each fault is drawn.
	Rates Rates
	// Script is asked at each call, if it is not nil. The fault that it returns
	// hits the call in place of a drawn one, apart from a drawn Delay, which
	// stays; None leaves everything to the draws.
	Script Script
	// Observe, if it is not nil, is told of each fault when it hits: a Delay
	// and a watch's at the call, the others when they are reported. It may be
	// called by several goroutines at once.
	Observe func(Event)

	// Delays returns how long a Delay is; nil is an exponential distribution
	// with a mean of 5 ms. It draws from the source that it is given, which is
	// made for this one delay.
	Delays func(*rand.Rand) time.Duration
	// MaxLag is how late a LateWatch can be; 0 is 30 seconds, after which
	// whoever waits reads again anyway.
	MaxLag time.Duration

	// Now and Sleep are the clock; nil is the machine's, which in a bubble of
	// testing/synctest is that bubble's. Sleep returns when d is over by Now, or
	// when ctx ends. One is not set without the other.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration)
	// Pause is kv.Retrier's: what passes between two attempts. It is set with Now and
	// Sleep where a seed is to decide everything.
	Pause func(ctx context.Context, most time.Duration)
}

// defaultMaxLag is how long a waiter relies on its watch (package kv, "Watches").
const defaultMaxLag = 30 * time.Second

const meanDelay = 5 * time.Millisecond

func exponential(random *rand.Rand) time.Duration {
	return time.Duration(random.ExpFloat64() * float64(meanDelay))
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// withDefaults returns opts with nothing left open. It panics when opts make no
// sense.
func (opts Options) withDefaults() Options {
	for fault, rate := range opts.Rates {
		if fault <= None || fault >= faults {
			panic(fmt.Sprintf("faultkv: a rate for %d, which is no fault", int(fault)))
		}
		if !(rate >= 0 && rate <= 1) {
			panic(fmt.Sprintf("faultkv: the rate of %v is %v, not from 0 to 1", fault, rate))
		}
	}
	for op, of := range possible {
		sum := 0.0
		for _, fault := range of {
			sum += opts.Rates[fault]
		}
		if sum > 1+1e-9 {
			panic(fmt.Sprintf("faultkv: the rates of a %v are %v together, more than 1", Op(op), sum))
		}
	}
	if (opts.Now == nil) != (opts.Sleep == nil) {
		panic("faultkv: Now and Sleep are one clock: set both or neither")
	}
	if opts.Now == nil {
		opts.Now, opts.Sleep = time.Now, sleep
	}
	if opts.Delays == nil {
		opts.Delays = exponential
	}
	if opts.MaxLag == 0 {
		opts.MaxLag = defaultMaxLag
	}
	return opts
}
