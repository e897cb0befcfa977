package optimistic

import (
	"bytes"
	"sync"

	"github.com/tidwall/btree"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/engine"
)

// watch is one watch of one transaction.
type watch struct {
	*engine.Outcome
	db   *DB
	key  string
	seen []byte // the value that the transaction saw
}

func newWatch(db *DB, key string) *watch {
	return &watch{Outcome: engine.NewOutcome(), db: db, key: key}
}

func (w *watch) Cancel() {
	w.db.watches.remove(w)
	w.Finish(kv.ErrWatchCancelled)
}

// watches are the armed watches by key, so that a commit finds those that it ends without looking at the others.
type watches struct {
	mu    sync.Mutex
	max   int
	count int
	byKey btree.Map[string, map[*watch]struct{}]
}

// add adds a watch, and reports whether there was room.
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
			w.Finish(nil)
		}
	}
}

// close ends all watches.
func (ws *watches) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.byKey.Scan(func(_ string, set map[*watch]struct{}) bool {
		for w := range set {
			w.Finish(kv.ErrClosed)
		}
		return true
	})
	ws.byKey.Clear()
	ws.count, ws.max = 0, 0
}

// arm arms a watch of a committed transaction. The comparison sees earlier published changes, written sees later ones.
func (db *DB) arm(w *watch) {
	if !db.watches.add(w) {
		w.Finish(kv.ErrTooManyWatches)
		return
	}
	v := db.published()
	defer v.release()
	value, err := v.snapshot.Get([]byte(w.key))
	if err != nil || (value == nil) != (w.seen == nil) || !bytes.Equal(value, w.seen) {
		db.watches.remove(w)
		w.Finish(err)
	}
	w.seen = nil // an armed watch need not keep it
}
