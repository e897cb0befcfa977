package fdbjobs

import (
	"context"
	"time"
)

// turnstile lets a simulation (simulation_test.go) run one goroutine at a time, in an
// order that it draws. In production there is none, and nothing is held up.
//
// The rule that makes a simulation repeatable: a goroutine that was just started, or
// that has waited for anything but the store, passes before it does anything else.
// What it waited for, it asks only then and in a fixed order: which case of a select
// woke it is chance.
type turnstile interface {
	// Name returns a context for a goroutine that passes under a name of its own.
	Name(ctx context.Context, name string) context.Context
	// Pass returns when it is the turn of the goroutine that ctx belongs to, also
	// when ctx has ended.
	Pass(ctx context.Context)
}

// named returns the context of a goroutine of the layer's.
func (l *Layer) named(ctx context.Context, name string) context.Context {
	if l.turnstile == nil {
		return ctx
	}
	return l.turnstile.Name(ctx, name)
}

// pass is what a goroutine does that has waited.
func (l *Layer) pass(ctx context.Context) {
	if l.turnstile != nil {
		l.turnstile.Pass(ctx)
	}
}

// afterFunc is [time.AfterFunc]. ctx and name tell the timer from all others.
func (l *Layer) afterFunc(ctx context.Context, name string, d time.Duration, f func()) *time.Timer {
	if l.turnstile == nil {
		return time.AfterFunc(d, f)
	}
	return time.AfterFunc(d, func() {
		l.pass(l.named(ctx, name))
		f()
	})
}
