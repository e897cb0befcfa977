package kv

import "sync"

// OnOwnStack calls fn on a stack of its own, and waits for it. It is for goroutines of which there are thousands, and which
// mostly wait: a transaction needs a much larger stack than that, and Go gives a stack back late. A panic of fn is the
// caller's.
func OnOwnStack(fn func()) {
	var panics any
	var calling sync.WaitGroup
	calling.Go(func() {
		defer func() { panics = recover() }()
		fn()
	})
	calling.Wait()
	if panics != nil {
		panic(panics)
	}
}
