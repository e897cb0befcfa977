package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"settee/fdbjobs"
)

// ErrEnding is an fdbjobs.ErrHalt: the job was removed or has a new definition, and the run may go on to write its last
// checkpoint. No other run begins with its replication id before [Run.Release]. [Run.Context] ends if that takes too
// long.
var ErrEnding = fmt.Errorf("%w: it was removed or changed", fdbjobs.ErrHalt)

// lease is how long a run may work on its job.
type lease struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	deciding chan struct{} // holds a token while the store is asked whether the run may go on

	mu    sync.Mutex // guards the fields below; never held during I/O
	ids   []string   // replication ids whose row in endings may name the run
	begun bool       // Identify has succeeded
	lost  error      // ErrEnding or ErrHalt, once the job is lost
	until time.Time  // of an ErrEnding
	timer *time.Timer
}

// expire ends the lease of a run whose job was not kept alive, unless the run may go on.
func (t *lease) expire(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil {
		t.end(cause)
	}
}

// end ends the lease. The caller holds mu.
func (t *lease) end(cause error) {
	t.lost = fdbjobs.ErrHalt
	t.cancel(cause)
}

// may returns nil while an ErrEnding lets the run go on, and else ErrHalt. Both clocks count, as for a hold. The caller
// holds mu.
func (t *lease) may() error {
	now := time.Now()
	if t.ctx.Err() == nil && (t.until.Before(now) || t.until.Round(0).Before(now.Round(0))) {
		t.end(fdbjobs.ErrExpired)
	}
	return context.Cause(t.ctx)
}

// identifying notes that the run is about to reserve a replication id.
func (t *lease) identifying(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id != "" && !slices.Contains(t.ids, id) {
		t.ids = append(t.ids, id)
	}
}

// identified notes that the run begins.
func (t *lease) identified() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = true
}

// close ends the lease, and waits for a decision that is being made.
func (t *lease) close() {
	t.mu.Lock()
	if t.timer != nil {
		t.timer.Stop()
	}
	t.end(context.Canceled)
	t.mu.Unlock()
	t.deciding <- struct{}{}
	<-t.deciding
}
