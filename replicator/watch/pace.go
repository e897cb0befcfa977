package watch

import (
	"context"
	"net/url"
	"sync"
	"time"

	"settee/pkg/retry"
	"settee/pkg/route"
)

// paces space out the requests that the watches of one owner on one host make from a node: a prefix in the URL, a header or a
// proxy makes another server, and not another host.
type paces struct {
	questions, tries pacer
	users            int // guarded by Watcher.mu
}

type paceKey struct{ owner, host string }

// paceOf returns the key of the paces of a watch.
func paceOf(owner, server string) paceKey {
	server, _ = route.Server(server)
	u, err := url.Parse(server)
	if err != nil {
		return paceKey{owner, server}
	}
	return paceKey{owner, u.Host}
}

// acquirePaces returns the paces of a key. The caller releases them.
func (w *Watcher) acquirePaces(key paceKey) *paces {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.paces[key]
	if p == nil {
		p = &paces{}
		w.paces[key] = p
	}
	p.users++
	return p
}

func (w *Watcher) releasePaces(key paceKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.paces[key]; p != nil {
		if p.users--; p.users == 0 {
			delete(w.paces, key)
		}
	}
}

// pacer spaces out requests.
type pacer struct {
	mu   sync.Mutex
	next time.Time
}

// awaitTurn waits until the next request may be made, at a number of requests per second. It reports whether ctx has not
// ended.
func (p *pacer) awaitTurn(ctx context.Context, perSecond int) bool {
	p.mu.Lock()
	now := time.Now()
	at := p.next
	if at.Before(now) {
		at = now
	}
	p.next = at.Add(time.Second / time.Duration(max(perSecond, 1)))
	p.mu.Unlock()
	if at.After(now) {
		_ = retry.Wait(ctx, at.Sub(now))
	}
	return ctx.Err() == nil
}
