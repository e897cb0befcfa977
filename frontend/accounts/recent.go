package accounts

import (
	"container/list"
	"sync"
	"time"
)

const (
	// remembered is how long a login is good for without its password being hashed again.
	remembered = time.Minute
	// maxRecent is how many are.
	maxRecent = 10_000
)

// recent is the logins that succeeded not long ago: their MACs, under a key that this process
// alone has, over the name, the password and what that was compared with. An account that changes
// has other ones.
type recent struct {
	mu     sync.Mutex
	logins map[[32]byte]time.Time // until when
	oldest *list.List             // of [32]byte
}

func newRecent() *recent { return &recent{logins: map[[32]byte]time.Time{}, oldest: list.New()} }

func (r *recent) has(login [32]byte, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Before(r.logins[login])
}

func (r *recent) add(login [32]byte, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.logins[login]; !there {
		r.oldest.PushBack(login)
	}
	r.logins[login] = now.Add(remembered)
	// Some that were added again are good for longer than those behind them: they are forgotten
	// early, or late, which changes nothing but when a password is hashed.
	for first := r.oldest.Front(); first != nil; first = r.oldest.Front() {
		oldest := first.Value.([32]byte)
		if r.oldest.Len() <= maxRecent && now.Before(r.logins[oldest]) {
			return
		}
		delete(r.logins, oldest)
		r.oldest.Remove(first)
	}
}
