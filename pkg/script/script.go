package script

import (
	"errors"
	"time"
)

// Program is a program to be called.
type Program struct {
	// Key identifies the program: two with one key are the same. An empty key is of a program that is called once.
	Key string
	// Owner is what the program's calls are charged to: owners take turns.
	Owner string
	// Name is what errors call the program.
	Name string
	// Source evaluates to a function. It is called with the value of the JSON text that Config returns, and returns the
	// function that is called for each call of the program. Config is called when the program is set up.
	Source string
	Config func() (string, error)
}

// Limits are the bounds of programs.
type Limits struct {
	// Time is the longest time of a call, and of setting up a program.
	Time time.Duration
	// Memory is the most memory of a program's runtime, in bytes. At least 4 MB. The processor's stack is not part of
	// it: for nested calls it grows to 16 MB at most.
	Memory int
	// Instances is the largest number of runtimes, at least 2.
	Instances int
	// Idle is how long a runtime is kept that is not used.
	Idle time.Duration
}

// Errors of calls.
var (
	// ErrTime is the error of a call that did not end in time.
	ErrTime = errors.New("it timed out")
	// ErrMemory is the error of a call that needed too much memory.
	ErrMemory = errors.New("it needed more memory than it may have")
	// ErrStack is the error of a call whose calls were nested too deeply.
	ErrStack = errors.New("its calls were nested too deeply")
	// ErrResult is the error of a call whose result has more than 1 MiB.
	ErrResult = errors.New("its result is too long")
	// ErrEngine is the error of a call that ran into a flaw of the engine.
	ErrEngine = errors.New("the engine failed")
	// ErrBusy is the error of a call that found no place in the time of a call, or too many calls that wait for one.
	ErrBusy = errors.New("too many functions are running")

	// errMore is the error of a call that needs more than a small call may have.
	errMore = errors.New("it needs more time or memory than a small call has")
)

// RefusedError is the error of a call that was not made, because calls of its program have failed repeatedly. It wraps
// ErrTime or ErrMemory.
type RefusedError struct {
	// Reason is the error of the last call.
	Reason error
	// Until is when the program is called again. It is zero while a call finds out whether the program still fails.
	Until time.Time
}

// Error returns the reason and the time.
func (e *RefusedError) Error() string {
	if e.Until.IsZero() {
		return e.Reason.Error() + " repeatedly, and is not called while one call of it is tried"
	}
	return e.Reason.Error() + " repeatedly, and is not called again until " + e.Until.UTC().Format(time.RFC3339)
}

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Reason }

// Exception is the error of a program that threw something.
type Exception struct {
	// Text is what was thrown, as a string.
	Text string
}

// Error returns the text.
func (e *Exception) Error() string { return e.Text }
