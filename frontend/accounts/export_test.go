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
	iterations, verify := new(atomic.Int64), a.verify
	a.verify = func(h auth.Hash, password string) bool {
		iterations.Add(int64(h.Iterations))
		return verify(h, password)
	}
	return iterations
}

// CountHashed returns how many passwords are hashed to be compared from now on.
func (a *Accounts) CountHashed() *atomic.Int64 {
	hashed, verify := new(atomic.Int64), a.verify
	a.verify = func(h auth.Hash, password string) bool {
		hashed.Add(1)
		return verify(h, password)
	}
	return hashed
}
