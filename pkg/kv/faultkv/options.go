package faultkv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"settee/pkg/retry"
)

// Rates are the probabilities of faults, from 0 to 1, for each call that they can hit. The sum over the faults of a
// commit except Delay is at most 1, and so is the sum over the faults of a watch.
type Rates map[Fault]float64

// Options of a DB. The zero value makes no faults.
type Options struct {
	// Seed seeds all that is drawn.
	Seed uint64
	// Rates are the probabilities of the faults.
	Rates Rates
	// Script, if not nil, is called at each call. Its fault replaces a drawn one, except a drawn Delay, which stays.
	// None keeps what was drawn.
	Script Script
	// Observe, if not nil, is called with each fault that hits: for a Delay or a watch at the call, for others when
	// they are reported. Several goroutines may call it at the same time.
	Observe func(Event)

	// Delays returns the length of a Delay, drawn from random, which is made for this delay only. nil means an
	// exponential distribution with a mean of 5 ms.
	Delays func(*rand.Rand) time.Duration
	// MaxLag is the longest lag of a LateWatch. 0 is 30 seconds, after which callers read again anyway.
	MaxLag time.Duration

	// Now and Sleep are the clock. nil means the machine's clock, or the clock of a bubble of testing/synctest. Sleep
	// returns when d has passed by Now, or when ctx ends. Either both are set or none.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration)
	// Pause is the Pause of kv.Retrier, between two attempts. It is set together with Now and Sleep if a seed is to
	// decide everything.
	Pause func(ctx context.Context, most time.Duration)
}

// defaultMaxLag is how long a caller waits for its watch (package kv, "Watches").
const defaultMaxLag = 30 * time.Second

const meanDelay = 5 * time.Millisecond

func exponential(random *rand.Rand) time.Duration {
	return time.Duration(random.ExpFloat64() * float64(meanDelay))
}

// withDefaults returns opts with all defaults. It panics if opts are not valid.
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
		opts.Now, opts.Sleep = time.Now, func(ctx context.Context, d time.Duration) { _ = retry.Wait(ctx, d) }
	}
	if opts.Delays == nil {
		opts.Delays = exponential
	}
	if opts.MaxLag == 0 {
		opts.MaxLag = defaultMaxLag
	}
	return opts
}
