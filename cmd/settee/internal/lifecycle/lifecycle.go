// Package lifecycle starts the parts of a program in order, and ends them in reverse order: they
// leave what they share with other programs, drain, and stop.
package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Part is a part of a program: a store, a server, a loop. A function that is nil does nothing.
type Part struct {
	// Start starts the part and returns when it works. It gives up when ctx ends, but ctx
	// does not end what it has started. If it fails, it leaves nothing running.
	Start func(ctx context.Context) error
	// Leave tells the part that the program is about to end. The part hands its work to other
	// programs and asks clients to go elsewhere. It still serves the clients that come. Leave
	// returns at once. It is not called when a part has failed.
	Leave func()
	// Drain tells the part that its end is near: it takes no new work, and sends away the
	// clients that wait. It returns at once.
	Drain func()
	// Stop ends the part and returns when it has ended. When ctx ends, it cuts off what is
	// still running and returns ctx's error.
	Stop func(ctx context.Context) error
}

// Options are the options of [Run].
type Options struct {
	// Failed receives the error of a part that has ended by itself. It ends the program.
	Failed <-chan error
	// Grace returns how long stopping may take before the parts are cut off. It is called once,
	// when the parts are drained.
	Grace func() time.Duration
	// Ending is called when the context of Run has ended, before the parts leave. The parts are
	// drained when the context ends that it returns, or when a part fails. A program whose
	// context ends with a signal stops catching signals here or then, so that a second signal
	// ends the process. Ending is not called when a part has failed.
	Ending func() (drain context.Context)
	// CutOff is called once if a part was cut off. That is no failure.
	CutOff func()
}

// Run starts the parts in order and returns when they have ended. They end when ctx ends, when
// a part cannot be started, or when a part fails. In the first case they leave. Then all parts that
// have started are drained, and after that stopped one after the other, each in reverse order.
//
// The error is the first failure, joined with the errors of Stop. It is nil if ctx ended the
// program and all parts stopped well.
func Run(ctx context.Context, parts []Part, opts Options) (err error) {
	started := 0
	defer func() { err = errors.Join(err, end(parts[:started], opts)) }()
	for _, part := range parts {
		if part.Start != nil {
			if err := part.Start(ctx); err != nil {
				return err
			}
		}
		started++
	}
	select {
	case <-ctx.Done():
		return leave(parts, opts)
	case err := <-opts.Failed:
		return err
	}
}

// leave lets parts leave, and returns when they are to be drained.
func leave(parts []Part, opts Options) error {
	drain := opts.Ending()
	for _, part := range slices.Backward(parts) {
		if part.Leave != nil {
			part.Leave()
		}
	}
	select {
	case <-drain.Done():
		return nil
	case err := <-opts.Failed:
		return err
	}
}

// end drains and stops parts.
func end(parts []Part, opts Options) error {
	ctx, cancel := context.WithTimeout(context.Background(), opts.Grace())
	defer cancel()
	for _, part := range slices.Backward(parts) {
		if part.Drain != nil {
			part.Drain()
		}
	}
	var failures []error
	cutOff := sync.OnceFunc(opts.CutOff)
	for _, part := range slices.Backward(parts) {
		if part.Stop == nil {
			continue
		}
		err := part.Stop(ctx)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			cutOff()
			continue
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// Worker returns a part that calls run in a goroutine. The context of run ends when the part
// is drained.
func Worker(run func(ctx context.Context)) Part {
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	return Part{
		Start: func(context.Context) error {
			running.Go(func() { run(ctx) })
			return nil
		},
		Drain: end,
		Stop: func(context.Context) error {
			end()
			running.Wait()
			return nil
		},
	}
}

// Background returns a part that calls run in a goroutine. The context of run ends when the
// part is stopped: the parts that were started after it can rely on run until they have ended.
func Background(run func(ctx context.Context)) Part {
	part := Worker(run)
	part.Drain = nil
	return part
}
