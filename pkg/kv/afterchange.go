package kv

import (
	"context"
	"errors"
	"sync"
	"time"
)

// AfterChange calls fn once, in a goroutine of its own, when [AwaitChange] would return, and cancels the watch before. It is
// for changes that thousands wait for: until then there is no goroutine. If a watch has no method AfterEnd, which those of
// engines have (engine.Outcome), there is one.
func AfterChange(ctx context.Context, watch Watch, fn func()) {
	ending, ok := watch.(interface{ AfterEnd(told func(error)) })
	if !ok {
		go func() {
			AwaitChange(ctx, watch, AwaitOptions{})
			fn()
		}()
		return
	}
	c := &afterChange{watch: watch, fn: fn, began: time.Now()}
	c.mu.Lock() // one may end before the other is set
	c.timer = time.AfterFunc(reread, c.end)
	c.leave = context.AfterFunc(ctx, c.end)
	c.mu.Unlock()
	ending.AfterEnd(c.ended)
}

// afterChange is a call of [AfterChange]. The first of a watch, a timer and a context to end calls fn.
type afterChange struct {
	watch Watch
	fn    func()
	began time.Time

	mu    sync.Mutex // guards the fields below; held neither in fn nor in methods of watch
	over  bool       // fn was called
	timer *time.Timer
	leave func() (stopped bool) // the context no longer ends the call
}

// ended is told how the watch has ended. It does not wait: a commit may call it.
func (c *afterChange) ended(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
	case err == nil, errors.Is(err, ErrClosed):
		go c.end()
	default:
		c.timer.Reset(time.Until(c.began.Add(poll)))
	}
}

// end calls fn, unless that was done.
func (c *afterChange) end() {
	c.mu.Lock()
	over := c.over
	c.over = true
	c.mu.Unlock()
	if over {
		return
	}
	c.timer.Stop()
	c.leave()
	c.watch.Cancel()
	c.fn()
}
