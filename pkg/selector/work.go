package selector

import (
	"context"
	"fmt"
	"math"
)

// Costs of some work, in steps: measured, and rounded up.
const (
	bytesPerStep     = 16 // copied or scanned
	stepsPerNumber   = 5  // compared
	stepsPerMember   = 10 // of a compared object
	stepsPerDivision = 10
	stepsPerSyllable = 50 // of Hangul, which the collation decomposes
)

// ErrTooMuchWork is the error of a match that would take more than [MaxSteps].
var ErrTooMuchWork = fmt.Errorf("the selector takes more than %d steps to match the document", MaxSteps)

// work counts the steps of one match, and says why it ends early.
type work struct {
	ctx      context.Context
	left     int64
	unlooked int64 // steps since the last check of the context
	err      error // why the match ends; nil while it continues
	text     []byte
}

// stopped is the panic value of spend. do turns it into work.err.
type stopped struct{}

func newWork(ctx context.Context) *work { return &work{ctx: ctx, left: MaxSteps} }

// unlimited returns a work for comparisons that are bounded by other means.
func unlimited() *work { return &work{ctx: context.Background(), left: math.MaxInt64} }

// take spends steps, and reports whether the match may continue.
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

// spend spends steps, and ends the match if it may not continue.
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
