package accounts

import (
	"sync/atomic"

	"settee/frontend/internal/auth"
)

// Occupy takes all that passwords are hashed with, until it is given back.
func (a *Accounts) Occupy() (giveBack func()) {
	for range cap(a.hashing) {
		a.hashing <- struct{}{}
	}
	return func() {
		for range cap(a.hashing) {
			<-a.hashing
		}
	}
}

// CountIterations returns how many iterations passwords are hashed with from now on.
func (a *Accounts) CountIterations() *atomic.Int64 {
	return a.count(func(h auth.Hash) int { return h.Iterations })
}

// CountHashed returns how many passwords are hashed to be compared from now on.
func (a *Accounts) CountHashed() *atomic.Int64 {
	return a.count(func(auth.Hash) int { return 1 })
}

// count adds up what passwords that are compared from now on count.
func (a *Accounts) count(each func(auth.Hash) int) *atomic.Int64 {
	sum, verify := new(atomic.Int64), a.verify
	a.verify = func(h auth.Hash, password string) bool {
		sum.Add(int64(each(h)))
		return verify(h, password)
	}
	return sum
}

// ParseUser reads the document of a user, as a login does.
func ParseUser(name string, body []byte, maxIterations int) (auth.User, auth.Hash, bool) {
	found, known := parseUser(name, body, maxIterations)
	return found.User, found.hash, known
}
