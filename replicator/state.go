package replicator

import (
	"errors"
	"fmt"
	"strings"
)

// State is the state of a replication job (RFC 016, "Replicator Job States").
//
//	State      job layer  meaning
//	pending    pending    waits in the queue, or for the next time of a periodic replication
//	running    running    held by a node
//	crashing   pending    has not run since a failed run: waits for its next try, or for a slot
//	completed  finished   a one-shot replication that has copied everything
//	failed     finished   cannot run, or is not run again
type State string

// The states of replication jobs.
const (
	StatePending   State = "pending"
	StateRunning   State = "running"
	StateCrashing  State = "crashing"
	StateCompleted State = "completed"
	StateFailed    State = "failed"
)

// ErrUnknownState is wrapped by the error of ParseState.
var ErrUnknownState = errors.New("must be one of initializing, error, running, pending, crashing, completed, failed")

// ParseState returns the state of that name, in lower or upper case. CouchDB 3.x had two more
// states: initializing is pending, error is crashing (RFC 016, "State Differences From CouchDB <=
// 3.x"). The error wraps ErrUnknownState.
func ParseState(name string) (State, error) {
	switch state := State(strings.ToLower(name)); state {
	case StatePending, StateRunning, StateCrashing, StateCompleted, StateFailed:
		return state, nil
	case "initializing":
		return StatePending, nil
	case "error":
		return StateCrashing, nil
	}
	return "", fmt.Errorf("state %q: %w", name, ErrUnknownState)
}

// Terminal reports whether a job in this state has ended: it does not run again unless it is
// added again.
func (s State) Terminal() bool {
	return s == StateCompleted || s == StateFailed
}
