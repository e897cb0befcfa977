//go:build fdb

package fdbkv

import (
	"context"
	"sync"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
)

// watch is one watch of one transaction.
type watch struct {
	changed fdb.FutureNil // nil when there never was one
	once    sync.Once
	done    chan struct{}
	err     error // set before done is closed
}

func newWatch(changed fdb.FutureNil) *watch {
	return &watch{changed: changed, done: make(chan struct{})}
}

func failedWatch(err error) *watch {
	w := newWatch(nil)
	w.finish(err)
	return w
}

// finish ends the watch with err; only the first end counts.
func (w *watch) finish(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.done)
	})
}

func (w *watch) Wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *watch) Cancel() { w.giveUp(kv.ErrWatchCancelled) }

// giveUp ends the watch with err here and in the client.
func (w *watch) giveUp(err error) {
	w.finish(err)
	if w.changed != nil {
		w.changed.Cancel()
	}
}

// follow waits for the client's watch.
func (w *watch) follow() {
	err := asKV(w.changed.Get())
	if kv.Retryable(err) {
		// The client lost sight of the key, which may have changed: whoever
		// waits reads it again.
		err = nil
	}
	w.finish(err)
}

// watches are the armed watches, which outlive their transactions. Each has a
// goroutine that ends with it.
type watches struct {
	mu     sync.Mutex
	armed  map[*watch]struct{}
	follow sync.WaitGroup
}

// arm puts a watch of a transaction that committed into force.
func (ws *watches) arm(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.armed == nil {
		ws.armed = map[*watch]struct{}{}
	}
	ws.armed[w] = struct{}{}
	ws.follow.Go(func() {
		w.follow()
		ws.mu.Lock()
		defer ws.mu.Unlock()
		delete(ws.armed, w)
	})
}

// close ends all watches. No more are armed.
func (ws *watches) close() {
	ws.mu.Lock()
	for w := range ws.armed {
		w.giveUp(kv.ErrClosed)
	}
	ws.mu.Unlock()
	ws.follow.Wait()
}
