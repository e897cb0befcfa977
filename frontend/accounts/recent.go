package accounts

import (
	"container/list"
	"sync"
	"time"
)

const (
	// remembered is how long a login is good for without its password being hashed again, since
	// it was last made.
	remembered = time.Minute
	// maxRecent is how many are.
	maxRecent = 10_000
)

// recent is the logins that succeeded not long ago: their MACs, under a key that this process
// alone has, over the name, the password and what that was compared with. An account that changes
// has other ones.
type recent struct {
	mu     sync.Mutex
	logins map[[32]byte]*list.Element
	oldest *list.List // of *recentLogin, in the order in which they were last made
}

type recentLogin struct {
	login [32]byte
	until time.Time
}

func newRecent() *recent { return &recent{logins: map[[32]byte]*list.Element{}, oldest: list.New()} }

// has reports whether a login is remembered, and goes on remembering it: whoever does not pause
// for long is not held up by the guesses of others.
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

// forget forgets what was not made for long, and what is too much.
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
