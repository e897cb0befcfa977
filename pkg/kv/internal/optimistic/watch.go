package optimistic

import (
	"bytes"
	"context"
	"sync"

	"github.com/tidwall/btree"

	"settee/pkg/kv"
)

// watch is one watch of one transaction.
type watch struct {
	db   *DB
	key  string
	seen []byte // the value that its transaction saw
	once sync.Once
	done chan struct{}
	err  error // set before done is closed
}

func newWatch(db *DB, key string) *watch {
	return &watch{db: db, key: key, done: make(chan struct{})}
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
	default:
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *watch) Cancel() {
	w.db.watches.remove(w)
	w.finish(kv.ErrWatchCancelled)
}

// watches are the armed watches, by key: a commit finds those that it ends
// without looking at the others.
type watches struct {
	mu    sync.Mutex
	max   int
	count int
	byKey btree.Map[string, map[*watch]struct{}]
}

// add reports whether there was room.
func (ws *watches) add(w *watch) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count >= ws.max {
		return false
	}
	ws.count++
	set, ok := ws.byKey.Get(w.key)
	if !ok {
		set = map[*watch]struct{}{}
		ws.byKey.Set(w.key, set)
	}
	set[w] = struct{}{}
	return true
}

func (ws *watches) remove(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	set, ok := ws.byKey.Get(w.key)
	if !ok {
		return
	}
	if _, ok := set[w]; !ok {
		return
	}
	delete(set, w)
	ws.count--
	if len(set) == 0 {
		ws.byKey.Delete(w.key)
	}
}

// written ends the watches on the keys of s.
func (ws *watches) written(s span) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count == 0 {
		return
	}
	var hit []string
	ws.byKey.Ascend(s.begin, func(key string, _ map[*watch]struct{}) bool {
		if key >= s.end {
			return false
		}
		hit = append(hit, key)
		return true
	})
	for _, key := range hit {
		set, _ := ws.byKey.Delete(key)
		ws.count -= len(set)
		for w := range set {
			w.finish(nil)
		}
	}
}

// close ends all watches.
func (ws *watches) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.byKey.Scan(func(_ string, set map[*watch]struct{}) bool {
		for w := range set {
			w.finish(kv.ErrClosed)
		}
		return true
	})
	ws.byKey.Clear()
	ws.count, ws.max = 0, 0
}

// arm puts a watch of a transaction that committed into force. A change that
// was published before is seen by the comparison, one after by written.
func (db *DB) arm(w *watch) {
	if !db.watches.add(w) {
		w.finish(kv.ErrTooManyWatches)
		return
	}
	v := db.published()
	defer v.release()
	value, err := v.snapshot.Get([]byte(w.key))
	if err != nil || (value == nil) != (w.seen == nil) || !bytes.Equal(value, w.seen) {
		db.watches.remove(w)
		w.finish(err)
	}
	w.seen = nil // an armed watch need not keep it
}
