//go:build fdb

package fdbkv

import (
	"sync"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/engine"
)

// watch is one watch of one transaction.
type watch struct {
	*engine.Outcome
	changed fdb.FutureNil // nil if the watch was never set
}

func newWatch(changed fdb.FutureNil) *watch { return &watch{engine.NewOutcome(), changed} }

func failedWatch(err error) *watch {
	w := newWatch(nil)
	w.Finish(err)
	return w
}

func (w *watch) Cancel() { w.giveUp(kv.ErrWatchCancelled) }

// giveUp ends the watch with err here and in the client.
func (w *watch) giveUp(err error) {
	w.Finish(err)
	if w.changed != nil {
		w.changed.Cancel()
	}
}

// follow waits for the client's watch.
func (w *watch) follow() {
	err := asKV(w.changed.Get())
	if kv.Retryable(err) {
		// The client lost track of the key, which may have changed: the caller reads it again.
		err = nil
	}
	w.Finish(err)
}

// watches are the armed watches, which outlive their transactions. Each has a goroutine that ends with it.
type watches struct {
	mu     sync.Mutex
	armed  map[*watch]struct{}
	follow sync.WaitGroup
}

// arm arms a watch of a committed transaction.
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

// close ends all watches, and prevents new ones.
func (ws *watches) close() {
	ws.mu.Lock()
	for w := range ws.armed {
		w.giveUp(kv.ErrClosed)
	}
	ws.mu.Unlock()
	ws.follow.Wait()
}
