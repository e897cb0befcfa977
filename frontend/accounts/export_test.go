package accounts

import (
	"sync/atomic"

	"settee/frontend/internal/auth"
)

// Occupy blocks all hashing until the returned function is called.
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

// CountIterations counts the iterations of hashes from now on.
func (a *Accounts) CountIterations() *atomic.Int64 {
	return a.count(func(h auth.Hash) int { return h.Iterations })
}

// CountHashed counts the hashed passwords from now on.
func (a *Accounts) CountHashed() *atomic.Int64 {
	return a.count(func(auth.Hash) int { return 1 })
}

// count sums each over the hashes that are computed from now on.
func (a *Accounts) count(each func(auth.Hash) int) *atomic.Int64 {
	sum, verify := new(atomic.Int64), a.verify
	a.verify = func(h auth.Hash, password string) bool {
		sum.Add(int64(each(h)))
		return verify(h, password)
	}
	return sum
}

// ParseUser parses the document of a user as a login does.
func ParseUser(name string, body []byte, maxIterations int) (auth.User, auth.Hash, bool) {
	found, known := parseUser(name, body, maxIterations)
	return found.User, found.hash, known
}
