package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"settee/scripts/internal/lab"
)

// arrivals tracks documents from their writing to their arrival at a target. The zero value tracks none.
type arrivals struct {
	mu      sync.Mutex
	open    map[string]*arrival // by the document's id
	delays  []time.Duration     // since take was last called
	settled chan struct{}       // closed when all have arrived; nil: nobody waits for that
}

// arrival is a document that is not both written and arrived. Either may be noticed first.
type arrival struct{ written, arrived time.Time }

// expect begins to track a document that is about to be written.
func (a *arrivals) expect(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = map[string]*arrival{}
	}
	a.open[id] = &arrival{}
}

// wrote notes that the write of a document was answered.
func (a *arrivals) wrote(id string) { a.note(id, func(d *arrival, now time.Time) { d.written = now }) }

// arrive notes that a document is in the feed of its target. Other documents are ignored.
func (a *arrivals) arrive(id string) { a.note(id, func(d *arrival, now time.Time) { d.arrived = now }) }

func (a *arrivals) note(id string, set func(d *arrival, now time.Time)) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.open[id]
	if d == nil {
		return
	}
	set(d, now)
	if d.written.IsZero() || d.arrived.IsZero() {
		return
	}
	a.delays = append(a.delays, max(0, d.arrived.Sub(d.written)))
	delete(a.open, id)
	if len(a.open) == 0 && a.settled != nil {
		close(a.settled)
		a.settled = nil
	}
}

// await returns when all documents have arrived. If ctx ends before, the error names one that has not.
func (a *arrivals) await(ctx context.Context) error {
	a.mu.Lock()
	if len(a.open) == 0 {
		a.mu.Unlock()
		return nil
	}
	if a.settled == nil {
		a.settled = make(chan struct{})
	}
	settled := a.settled
	a.mu.Unlock()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.open {
		return fmt.Errorf("%d documents have not arrived, among them %s: %w", len(a.open), id, context.Cause(ctx))
	}
	return nil
}

// take returns the delays since the last call.
func (a *arrivals) take() delays {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.delays
	a.delays = nil
	slices.Sort(all)
	return percentiles(all)
}

// percentiles returns the percentiles of sorted times.
func percentiles(all []time.Duration) delays {
	ms := func(percent int) float64 { return float64(lab.Percentile(all, percent).Microseconds()) / 1000 }
	return delays{Documents: len(all), P50: ms(50), P90: ms(90), P99: ms(99), Max: ms(100)}
}

// missing returns the number of documents that have not arrived.
func (a *arrivals) missing() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open)
}

// delays are percentiles, in milliseconds.
type delays struct {
	Documents int     `json:"documents"`
	P50       float64 `json:"p50"`
	P90       float64 `json:"p90"`
	P99       float64 `json:"p99"`
	Max       float64 `json:"max"`
}
