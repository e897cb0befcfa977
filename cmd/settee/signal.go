package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// signalled is the cause of the end of a context that a signal has ended.
type signalled syscall.Signal

func (s signalled) Error() string { return syscall.Signal(s).String() }

// stopOnSignal returns a context that ends with ctx, and at the first SIGINT or SIGTERM: see stopped. A second signal ends the
// process. release stops waiting for signals.
func stopOnSignal(ctx context.Context) (stop context.Context, release func()) {
	stop, end := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case got := <-signals:
			signal.Stop(signals) // the next signal ends the process
			end(signalled(got.(syscall.Signal)))
		case <-stop.Done():
			signal.Stop(signals)
		}
	}()
	return stop, func() { end(nil) }
}

// stopped returns the error with the exit status of a command that a signal has stopped. stop is the context of stopOnSignal, and
// err has the text.
func stopped(stop context.Context, err error) error {
	by, _ := errors.AsType[signalled](context.Cause(stop))
	return &exitError{128 + int(by), err}
}
