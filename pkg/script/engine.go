package script

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"settee/pkg/turns"
)

// EngineVersion is the npm package, with its version, that quickjs.wasm is from.
const EngineVersion = "quickjs-wasi 3.6.2"

// Reserve reserves memory before it is used, and returns a function that gives it back. It may wait. bytes is the most
// that will be used.
type Reserve func(ctx context.Context, bytes int64) (release func(), err error)

const (
	// smallPasses is how many passes through loops a small call may make: some 25 ms.
	smallPasses = 2_500_000
	// smallMemory is the least memory of a small call, in bytes. It may have an eighth of [Limits].Memory, if that is
	// more.
	smallMemory = 4 << 20
	// waitingMost is how many calls may wait for a place for small calls, and for one for large calls.
	waitingMost = 1000
)

// Engine runs programs. It is safe for concurrent use.
type Engine struct {
	limits       func() Limits
	reserve      Reserve
	instances    int          // the most runtimes
	small, large *turns.Turns // places for calls
	breaker      *breaker

	mu      sync.Mutex
	running int        // runtimes in use
	idle    *list.List // of *unused; the one that was unused for longest first
	byKey   map[string][]*list.Element
	timer   *time.Timer // closes unused runtimes; nil if there are none
	closed  bool
}

// unused is a runtime that is not in use.
type unused struct {
	*instance
	key   string
	since time.Time
}

// New returns an engine. limits is read again for each call, except for Instances. reserve is called before memory is
// used; nil means that there is no bound for all calls together.
func New(limits func() Limits, reserve Reserve) *Engine {
	if reserve == nil {
		reserve = func(context.Context, int64) (func(), error) { return func() {}, nil }
	}
	instances := max(2, limits().Instances)
	small, large := places(instances, runtime.GOMAXPROCS(0))
	return &Engine{
		limits: limits, reserve: reserve, instances: instances, breaker: newBreaker(),
		small: turns.New(small, waitingMost), large: turns.New(large, waitingMost),
		idle: list.New(), byKey: map[string][]*list.Element{},
	}
}

// places returns how many small calls and how many large ones run at a time. A call needs a processor all the time, so
// more calls than processors would only wait for one another. Large calls leave half of the processors to the rest
// of the process, and take memory, so they are at most a quarter of all.
func places(instances, processors int) (small, large int) {
	large = max(1, min(processors/2, instances/4))
	return max(1, min(processors, instances-large)), large
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
// ErrMemory, ErrStack, ErrEngine, ErrBusy, an [Exception], ctx's error or the error of Program.Config. They have the
// program's name.
func (e *Engine) Call(ctx context.Context, p *Program, argument string) (string, error) {
	result, err := e.call(ctx, p, argument)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.Name, err)
	}
	return result, nil
}

func (e *Engine) call(ctx context.Context, p *Program, argument string) (result string, err error) {
	trial, err := e.breaker.begin(p.Key)
	if err != nil {
		return "", err
	}
	said := none
	defer func() { e.breaker.end(p.Key, trial, said, err) }()
	c := call{Program: p, argument: argument, limits: e.limits(), trial: trial}

	c.allowed = &allowance{memory: uint64(max(smallMemory, c.limits.Memory/8)), passes: smallPasses}
	result, err = e.run(ctx, c, e.small)
	if !c.allowed.more || ctx.Err() != nil {
		if said = verdictOf(err); errors.Is(err, ErrTime) {
			said = none // it had no processor
		}
		return result, err
	}
	// What the call has done so far is lost, with its runtime: a program has no effects.
	c.allowed = &allowance{memory: uint64(c.limits.Memory), all: true}
	result, err = e.run(ctx, c, e.large)
	if said = verdictOf(err); c.allowed.more && said == passed {
		said = failed // it has caught the error, or returns it
	}
	return result, err
}

// call is one call of a program.
type call struct {
	*Program
	argument string
	limits   Limits
	trial    bool // the breaker tries it
	allowed  *allowance
}

// run runs a call once there is a place.
func (e *Engine) run(ctx context.Context, c call, places *turns.Turns) (string, error) {
	leave, err := enter(ctx, places, c.Owner, c.limits.Time)
	if err != nil {
		return "", err
	}
	defer leave()
	if !c.trial {
		if err := e.breaker.refuses(c.Key); err != nil {
			return "", err
		}
	}
	release, err := e.reserve(ctx, int64(c.allowed.memory))
	if err != nil {
		return "", err
	}
	defer release()
	i := e.take(c.Key)
	defer e.left()
	if i == nil {
		if i, err = newInstance(ctx, c.Program, c.limits, c.allowed); err != nil {
			return "", err
		}
	}
	result, err := i.call(ctx, c.argument, c.limits, c.allowed)
	if err != nil || c.allowed.more || !i.reset() {
		i.close()
		return result, err
	}
	e.keep(i, c.Key, c.limits.Idle)
	return result, nil
}

// enter waits until a call has a place. It waits no longer than limit.
func enter(ctx context.Context, places *turns.Turns, owner string, limit time.Duration) (leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrBusy)
	defer cancel()
	leave, err = places.Enter(ctx, owner)
	if errors.Is(err, turns.ErrFull) {
		err = ErrBusy
	}
	return leave, err
}

// left notes that a runtime is no longer in use.
func (e *Engine) left() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
}

// take returns an unused runtime of a program, or nil if there is none. Then there is room for a new one. In either case
// one more runtime is in use.
func (e *Engine) take(key string) *instance {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running++
	if of := e.byKey[key]; len(of) > 0 {
		return e.remove(of[len(of)-1])
	}
	if e.idle.Len() > 0 && e.idle.Len()+e.running > e.instances {
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
