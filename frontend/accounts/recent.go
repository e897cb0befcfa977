package accounts

import (
	"container/list"
	"sync"
	"time"
)

const (
	// remembered is how long a login is remembered after it was last made.
	remembered = time.Minute
	// maxRecent is the most logins that are remembered.
	maxRecent = 10_000
)

// recent has the MACs of recent successful logins, over the name, the password and the hash, with
// a key of this process. If an account changes, its MACs change.
type recent struct {
	mu     sync.Mutex
	logins map[[32]byte]*list.Element
	oldest *list.List // of *recentLogin, by the time of their last use
}

type recentLogin struct {
	login [32]byte
	until time.Time
}

func newRecent() *recent { return &recent{logins: map[[32]byte]*list.Element{}, oldest: list.New()} }

// has reports whether a login is remembered, and remembers it for longer.
func (r *recent) has(login [32]byte, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	known, found := r.logins[login]
	if found {
		known.Value.(*recentLogin).until = now.Add(remembered)
		r.oldest.MoveToBack(known)
	}
	return found
}

func (r *recent) add(login [32]byte, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, found := r.logins[login]; found {
		r.oldest.Remove(known)
	}
	r.logins[login] = r.oldest.PushBack(&recentLogin{login, now.Add(remembered)})
	r.forget(now)
}

// forget removes logins that have expired, and the oldest ones if there are too many.
func (r *recent) forget(now time.Time) {
	for first := r.oldest.Front(); first != nil; first = r.oldest.Front() {
		oldest := first.Value.(*recentLogin)
		if r.oldest.Len() <= maxRecent && now.Before(oldest.until) {
			return
		}
		delete(r.logins, oldest.login)
		r.oldest.Remove(first)
	}
}
