package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Arrivals tracks documents from their writing until they are at all their targets. The zero value tracks none.
type Arrivals struct {
	mu      sync.Mutex
	open    map[string]*arrival // by the document's id
	counts  Counts
	from    time.Time
	delays  Delays        // of documents that were written since from
	settled chan struct{} // closed when all have arrived; nil if nothing waits for that
}

// Counts are numbers of documents.
type Counts struct {
	Written int
	Due     int // arrivals of these: one at each target
	Arrived int
}

// arrival is a document that is not both written and at all its targets. Either may be noticed first.
type arrival struct {
	written time.Time
	early   int // arrivals that were noticed before the answer to the write
	left    int // arrivals to come
}

// expect begins to track a document that is about to be written, and has a number of targets.
func (a *Arrivals) expect(id string, targets int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = map[string]*arrival{}
	}
	a.open[id] = &arrival{left: targets}
	a.counts.Written++
	a.counts.Due += targets
}

// wrote notes that the write of a document was answered.
func (a *Arrivals) wrote(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.open[id]
	d.written = time.Now()
	a.delays = append(a.delays, make(Delays, d.early)...)
	a.settle(id, d)
}

// Arrive notes that a document is at a target. Other documents are ignored.
func (a *Arrivals) Arrive(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.open[id]
	if d == nil || d.left == 0 {
		return
	}
	d.left--
	a.counts.Arrived++
	switch {
	case d.written.IsZero():
		d.early++
	case !d.written.Before(a.from):
		a.delays = append(a.delays, time.Since(d.written))
	}
	a.settle(id, d)
}

// settle forgets a document that is written and has arrived. The caller holds a.mu.
func (a *Arrivals) settle(id string, d *arrival) {
	if d.written.IsZero() || d.left > 0 {
		return
	}
	delete(a.open, id)
	if len(a.open) == 0 && a.settled != nil {
		close(a.settled)
		a.settled = nil
	}
}

// Await returns when all documents have arrived. If ctx ends before, the error names one that has not.
func (a *Arrivals) Await(ctx context.Context) error {
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
		return fmt.Errorf("%d of %d documents have not arrived everywhere, among them %s: %w", len(a.open), a.counts.Written, id, context.Cause(ctx))
	}
	return nil
}

// Take returns the delays from the answers to writes until the arrivals, of the documents that were written since it was last
// called.
func (a *Arrivals) Take() Delays {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.delays
	a.delays, a.from = nil, time.Now()
	return all
}

// Counts returns the numbers until now.
func (a *Arrivals) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

// Both calls f, and meanwhile beside, whose context ends when f returns. That beside was cancelled is no error.
func Both(ctx context.Context, beside, f func(context.Context) error) error {
	both, working := errgroup.WithContext(ctx)
	until, end := context.WithCancel(working)
	defer end()
	both.Go(func() error {
		err := beside(until)
		if until.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil // f has returned, or failed
		}
		return err
	})
	both.Go(func() error {
		defer end()
		return f(working)
	})
	return both.Wait()
}
