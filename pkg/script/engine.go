package script

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// EngineVersion is the npm package, with its version, that quickjs.wasm is from.
const EngineVersion = "quickjs-wasi 3.6.2"

// Engine runs programs. It is safe for concurrent use.
type Engine struct {
	limits func() Limits
	slots  chan struct{} // one for each program that runs

	mu     sync.Mutex
	idle   *list.List // of *unused; the one that was unused for longest first
	byKey  map[string][]*list.Element
	timer  *time.Timer // closes unused runtimes; nil if there are none
	closed bool
}

// unused is a runtime that is not in use.
type unused struct {
	*instance
	key   string
	since time.Time
}

// New returns an engine. limits is read again for each call, except for Instances.
func New(limits func() Limits) *Engine {
	return &Engine{
		limits: limits, slots: make(chan struct{}, max(1, limits().Instances)),
		idle: list.New(), byKey: map[string][]*list.Element{},
	}
}

// Close closes all runtimes that are not in use. The others are closed when their calls end.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for e.idle.Len() > 0 {
		e.drop(e.idle.Front())
	}
	if e.timer != nil {
		e.timer.Stop()
	}
}

// Call calls a program with a JSON text in UTF-8, and returns its result as a string in UTF-8. The errors wrap ErrTime,
// ErrMemory, ErrStack, ErrEngine, ErrBusy, an [Exception], ctx's error or that of Program.Config. They have the
// program's name.
func (e *Engine) Call(ctx context.Context, p *Program, argument string) (string, error) {
	result, err := e.call(ctx, p, argument)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.Name, err)
	}
	return result, nil
}

func (e *Engine) call(ctx context.Context, p *Program, argument string) (string, error) {
	limits := e.limits()
	if err := e.enter(ctx, limits.Time); err != nil {
		return "", err
	}
	defer func() { <-e.slots }()
	i := e.take(p.Key)
	if i == nil {
		var err error
		if i, err = newInstance(ctx, p, limits); err != nil {
			return "", err
		}
	}
	result, err := i.call(ctx, argument, limits)
	if err != nil || !i.reset() {
		i.close()
		return result, err
	}
	e.keep(i, p.Key, limits.Idle)
	return result, nil
}

// enter waits until a program may run.
func (e *Engine) enter(ctx context.Context, limit time.Duration) error {
	select {
	case e.slots <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case e.slots <- struct{}{}:
		return nil
	case <-timer.C:
		return ErrBusy
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take returns an unused runtime of a program, or nil if there is none. Then there is room for a new one.
func (e *Engine) take(key string) *instance {
	e.mu.Lock()
	defer e.mu.Unlock()
	if of := e.byKey[key]; len(of) > 0 {
		return e.remove(of[len(of)-1])
	}
	// The caller's slot is one of those in use.
	if e.idle.Len() > 0 && e.idle.Len()+len(e.slots) > cap(e.slots) {
		e.drop(e.idle.Front())
	}
	return nil
}

// remove takes an unused runtime out of the lists.
func (e *Engine) remove(element *list.Element) *instance {
	u, _ := e.idle.Remove(element).(*unused)
	of := e.byKey[u.key]
	for i := range of {
		if of[i] == element {
			of = append(of[:i], of[i+1:]...)
			break
		}
	}
	if e.byKey[u.key] = of; len(of) == 0 {
		delete(e.byKey, u.key)
	}
	return u.instance
}

func (e *Engine) drop(element *list.Element) { e.remove(element).close() }

// keep keeps a runtime for later calls.
func (e *Engine) keep(i *instance, key string, limit time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || key == "" {
		i.close()
		return
	}
	e.byKey[key] = append(e.byKey[key], e.idle.PushBack(&unused{i, key, time.Now()}))
	if e.timer == nil {
		e.timer = time.AfterFunc(limit, e.tidy)
	}
}

// tidy closes the runtimes that were unused for too long.
func (e *Engine) tidy() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timer = nil
	limit := e.limits().Idle
	for element := e.idle.Front(); element != nil && !e.closed; element = e.idle.Front() {
		u, _ := element.Value.(*unused)
		if left := limit - time.Since(u.since); left > 0 {
			e.timer = time.AfterFunc(left, e.tidy)
			return
		}
		e.drop(element)
	}
}
