package script

import (
	"errors"
	"time"
)

// Program is a program to be called.
type Program struct {
	// Key identifies the program: two with one key are the same. An empty key is of a program that is called once.
	Key string
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
	// Instances is the largest number of runtimes.
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
	// ErrEngine is the error of a call that ran into a flaw of the engine.
	ErrEngine = errors.New("the engine failed")
	// ErrBusy is the error of a call that found no free runtime in the time of a call.
	ErrBusy = errors.New("too many functions are running")
)

// Exception is the error of a program that threw something.
type Exception struct {
	// Text is what was thrown, as a string.
	Text string
}

// Error returns the text.
func (e *Exception) Error() string { return e.Text }
