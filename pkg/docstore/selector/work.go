package selector

import (
	"context"
	"fmt"
	"math"
)

// What some work counts as, in steps: measured, and rounded up.
const (
	bytesPerStep     = 16 // that are copied or scanned
	stepsPerNumber   = 5  // that is compared
	stepsPerMember   = 10 // of an object that is compared
	stepsPerDivision = 10
	stepsPerSyllable = 50 // of Hangul: the collation takes each apart
)

// ErrTooMuchWork is the error of a match that takes more than [MaxSteps].
var ErrTooMuchWork = fmt.Errorf("the selector takes more than %d steps to match the document", MaxSteps)

// work is what is left of the steps that a match may take, and why it ends
// early. It is for one match.
type work struct {
	ctx      context.Context
	left     int64
	unlooked int64 // steps since the context was looked at
	err      error // why the match ends: nil while it goes on
	text     []byte
}

// stopped is what spend panics with. It leaves the package as work.err.
type stopped struct{}

func newWork(ctx context.Context) *work { return &work{ctx: ctx, left: MaxSteps} }

// unlimited is the work of a comparison that is bounded by other means.
func unlimited() *work { return &work{ctx: context.Background(), left: math.MaxInt64} }

// take takes steps, and reports whether the match may go on.
func (w *work) take(steps int) bool {
	const look = 1 << 16 // about a millisecond
	w.left -= int64(steps)
	w.unlooked += int64(steps)
	switch {
	case w.err != nil:
	case w.left < 0:
		w.err = ErrTooMuchWork
	case w.unlooked >= look:
		w.unlooked, w.err = 0, context.Cause(w.ctx)
	}
	return w.err == nil
}

// spend takes steps. It ends the match if it may not go on.
func (w *work) spend(steps int) {
	if !w.take(steps) {
		panic(stopped{})
	}
}

// do matches a value.
func (w *work) do(n node, v value) (matched bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ours := p.(stopped); !ours {
				panic(p)
			}
			matched, err = false, w.err
		}
	}()
	if err := context.Cause(w.ctx); err != nil {
		return false, err
	}
	return n.match(w, v), nil
}
