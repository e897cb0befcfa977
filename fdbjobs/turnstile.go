package fdbjobs

import (
	"context"
	"time"

	"settee/pkg/kv"
	"settee/pkg/retry"
)

// turnstile lets a simulation (simulation_test.go) run one goroutine at a time, in an order that it draws. It is nil in
// production.
//
// To keep a simulation repeatable, a goroutine passes before anything else when it has started, and after it has waited
// for anything except the store. Only after that it checks what it waited for, in a fixed order: the case of a select
// that woke it is random.
type turnstile interface {
	// Name returns a context for a goroutine that passes under a name of its own.
	Name(ctx context.Context, name string) context.Context
	// Pass returns when it is the turn of ctx's goroutine, even if ctx has ended.
	Pass(ctx context.Context)
}

// named returns the context of a goroutine of the layer.
func (l *Layer) named(ctx context.Context, name string) context.Context {
	if l.turnstile == nil {
		return ctx
	}
	return l.turnstile.Name(ctx, name)
}

// pass is called by a goroutine that has waited.
func (l *Layer) pass(ctx context.Context) {
	if l.turnstile != nil {
		l.turnstile.Pass(ctx)
	}
}

// afterFunc is [time.AfterFunc]. ctx and name identify the timer.
func (l *Layer) afterFunc(ctx context.Context, name string, d time.Duration, f func()) *time.Timer {
	if l.turnstile == nil {
		return time.AfterFunc(d, f)
	}
	return time.AfterFunc(d, func() {
		l.pass(l.named(ctx, name))
		f()
	})
}

// await waits for a watch, a time, which may be zero, or a token in wake. It reports whether the watch has ended.
func (l *Layer) await(ctx context.Context, watch kv.Watch, until time.Time, wake <-chan struct{}) (changed bool) {
	return kv.AwaitChange(ctx, watch, kv.AwaitOptions{Until: until, Wake: wake, Pass: l.pass})
}

// pause waits for a time, a token in wake, or the end of ctx. It reports false if ctx has ended.
func (l *Layer) pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	if d > 0 && ctx.Err() == nil {
		_ = retry.WaitOr(ctx, d, wake)
		l.pass(ctx)
	}
	return ctx.Err() == nil
}
