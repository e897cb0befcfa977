package turnstile

import (
	"context"
	"time"
)

// Process is a group of goroutines that are frozen and killed together.
type Process struct {
	turnstile *Turnstile
	name      string
	ctx       context.Context
	cancel    context.CancelFunc

	// Guarded by the turnstile's mu; dead is changed only while no goroutine runs.
	dead, frozen bool
	thaws        int // the number of timers that will thaw it
	cleanups     []func()
}

// Process returns a process with a unique name.
func (t *Turnstile) Process(name string) *Process {
	p := &Process{turnstile: t, name: name}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// String returns the process's name.
func (p *Process) String() string { return p.name }

// Go starts a goroutine of the process, which passes first. Its ctx has its name and ends when the process is killed.
func (p *Process) Go(name string, f func(ctx context.Context)) {
	t := p.turnstile
	t.mu.Lock()
	t.running++
	t.mu.Unlock()
	ctx := p.Name(p.ctx, name)
	go func() {
		defer t.ended()
		Pass(ctx, "begins")
		f(ctx)
	}()
}

func (t *Turnstile) ended() {
	t.mu.Lock()
	t.running--
	t.mu.Unlock()
	t.signal()
}

// Cleanup registers f to be called after the process was killed, in a goroutine that does not pass. It closes what
// would outlive the process, such as goroutines with other contexts. Run waits for it.
func (p *Process) Cleanup(f func()) {
	p.turnstile.mu.Lock()
	defer p.turnstile.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// Kill ends the process: its contexts end, and each of its goroutines ends when it next passes. It must be called by
// Run's between.
func (p *Process) Kill() {
	t := p.turnstile
	t.mu.Lock()
	if p.dead {
		t.mu.Unlock()
		return
	}
	p.dead, p.frozen = true, false
	for _, g := range t.parked {
		if g.process == p {
			t.dead++
		}
	}
	t.running += len(p.cleanups)
	t.mu.Unlock()
	p.cancel()
	for _, f := range p.cleanups {
		go func() {
			defer t.ended()
			f()
		}()
	}
	t.signal()
}

// Freeze stops the process for a time. Its timers fire and its requests are answered meanwhile, without its noticing.
// It must be called by Run's between.
func (p *Process) Freeze(d time.Duration) {
	t := p.turnstile
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.dead {
		return
	}
	p.frozen = true
	p.thaws++
	time.AfterFunc(d, func() {
		t.mu.Lock()
		if p.thaws--; p.thaws == 0 {
			p.frozen = false
		}
		t.mu.Unlock()
		t.signal()
	})
}

// Frozen reports whether the process is frozen.
func (p *Process) Frozen() bool {
	p.turnstile.mu.Lock()
	defer p.turnstile.mu.Unlock()
	return p.frozen
}

// Dead reports whether the process was killed.
func (p *Process) Dead() bool {
	p.turnstile.mu.Lock()
	defer p.turnstile.mu.Unlock()
	return p.dead
}

// identity identifies a goroutine.
type identity struct {
	process *Process
	name    string
}

type identityKey struct{}

func identityOf(ctx context.Context) identity {
	id, ok := ctx.Value(identityKey{}).(identity)
	if !ok {
		panic("turnstile: a goroutine without a name would pass")
	}
	return id
}

// Name returns a context for another goroutine of the process. Its name is the name in ctx, or the process's, followed
// by name.
func (p *Process) Name(ctx context.Context, name string) context.Context {
	above := p.name
	if id, ok := ctx.Value(identityKey{}).(identity); ok {
		above = id.name
	}
	return context.WithValue(ctx, identityKey{}, identity{p, above + "/" + name})
}

// NameOf returns the name in ctx, "" if there is none.
func NameOf(ctx context.Context) string {
	id, _ := ctx.Value(identityKey{}).(identity)
	return id.name
}
