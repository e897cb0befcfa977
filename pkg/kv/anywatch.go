package kv

import (
	"cmp"
	"context"
	"sync"
)

// AnyWatch returns several watches as one: it ends when one of them does.
func AnyWatch(watches ...Watch) Watch { return anyWatch(watches) }

type anyWatch []Watch

// Wait implements [Watch].
func (w anyWatch) Wait(ctx context.Context) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var first sync.Once // the others end only because it did
	var err error
	for _, one := range w {
		all.Go(func() {
			ended := one.Wait(waiting)
			first.Do(func() { err = ended })
			cancel()
		})
	}
	all.Wait()
	return cmp.Or(ctx.Err(), err)
}

// Cancel implements [Watch].
func (w anyWatch) Cancel() {
	for _, one := range w {
		one.Cancel()
	}
}
