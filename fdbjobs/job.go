package fdbjobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/pkg/redact"
)

// The limits of a job.
const (
	MaxArgsSize  = 4_000_000 // bytes of JSON
	MaxStateSize = 100_000   // bytes of JSON
	// MaxListedSize is that of [Spec].Listed, in bytes of JSON.
	MaxListedSize = 20_000
	// MaxNameSize is that of an id and of an owner, in bytes. A key may hold both,
	// and has at most 10,000.
	MaxNameSize = 2_000
)

// maxLabelSize is that of a label and of a tag, in bytes.
const maxLabelSize = 100

// The errors that callers decide on.
var (
	// ErrNotFound: there is no such job.
	ErrNotFound = errors.New("no such job")
	// ErrHalt: the job is not held any more. It was removed, or added again
	// with new args, or taken away because its holder had not updated it in time.
	// Whoever gets it stops what it does for the job.
	ErrHalt = errors.New("the job is not held any more")
	// ErrTooLarge: the args, the state or a name are over their limit.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid: something that was passed cannot be stored.
	ErrInvalid = errors.New("invalid job")
	// ErrSealed: the args are not to be had, because of the Sealer's keys.
	ErrSealed = errors.New("opening the args")
	// ErrClosed: the layer was closed.
	ErrClosed = errors.New("the job layer is closed")
)

// Status says where a job is in the job layer.
type Status string

// A job is always in one of these.
const (
	Pending  Status = "pending"
	Running  Status = "running"
	Finished Status = "finished"
)

// Part is some of the jobs of a type, as lists and counts tell them apart.
type Part struct {
	Status Status
	// Label is what [Spec] said, Tag what [Held.SetTag] did.
	Label, Tag string
}

// In returns the jobs of a status that have a label, and a tag.
func (s Status) In(label, tag string) Part { return Part{s, label, tag} }

// Parts returns the jobs of some statuses that have neither label nor tag.
func Parts(statuses ...Status) []Part {
	parts := make([]Part, len(statuses))
	for i, status := range statuses {
		parts[i].Status = status
	}
	return parts
}

// removed is what the last transition of a job says.
const removed Status = "removed"

// Spec is what [Type.Add] adds.
type Spec struct {
	ID    string
	Owner string
	// Scheduled is when the job may run, in whole seconds, rounded down. A time that
	// has passed, such as the zero one, is now.
	Scheduled time.Time
	// Args is a JSON object of at most MaxArgsSize bytes; nil is {}.
	Args json.RawMessage `json:"-"`
	// State is the state of a job that is new or had finished, a JSON object of at
	// most MaxStateSize bytes; nil is {}. That of a pending or a running job stays.
	State json.RawMessage
	// Label says which of the type's jobs this is, where lists and counts are to tell them
	// apart: see [Part]. That of a running job stays.
	Label string
	// Listed is what lists show of the job beside its state, a JSON object of at most
	// MaxListedSize bytes: they do not read the args. nil is none.
	Listed json.RawMessage
	// Token is drawn at random, outside the transaction's function. A second Add
	// of the job with the same token, as when the function runs again after a commit
	// whose result was unknown, changes nothing. Empty is none.
	Token string
	// Order is the place of the job among those that one transaction adds; no two
	// of them have the same.
	Order uint16
	// Ended adds the job as one that has finished, with State, and Tag as its tag: it was
	// done elsewhere, and is to be listed. One that is pending or running is removed before.
	Ended bool
	Tag   string
}

func (s Spec) check() error {
	if s.ID == "" {
		return fmt.Errorf("%w: its id is empty", ErrInvalid)
	}
	for _, f := range []struct {
		name  string
		size  int
		limit int
	}{
		{"id", len(s.ID), MaxNameSize},
		{"owner", len(s.Owner), MaxNameSize},
		{"token", len(s.Token), MaxNameSize},
		{"label", len(s.Label), maxLabelSize},
		{"tag", len(s.Tag), maxLabelSize},
		{"args", len(s.Args), MaxArgsSize},
		{"listed part", len(s.Listed), MaxListedSize},
	} {
		if f.size > f.limit {
			return fmt.Errorf("%w: the job's %s: %d bytes, at most %d", ErrTooLarge, f.name, f.size, f.limit)
		}
	}
	if err := checkObject("args", s.Args); err != nil {
		return err
	}
	if err := checkObject("listed part", s.Listed); err != nil {
		return err
	}
	return checkState(s.State)
}

func checkState(state json.RawMessage) error {
	if len(state) > MaxStateSize {
		return fmt.Errorf("%w: the job's state: %d bytes, at most %d", ErrTooLarge, len(state), MaxStateSize)
	}
	return checkObject("state", state)
}

func checkObject(name string, text json.RawMessage) error {
	if text != nil && (!bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) || !json.Valid(text)) {
		return fmt.Errorf("%w: no JSON object in its %s", ErrInvalid, name)
	}
	return nil
}

// Job is a job as one transaction read it.
type Job struct {
	ID     string
	Owner  string
	Status Status
	// Scheduled is when it may run, or might: of a job that is or was running it is the
	// time that it had waited for.
	Scheduled time.Time
	// Label and Tag are its [Part]'s.
	Label, Tag string
	// Args, State and Listed are JSON objects, which belong to the caller. Lists have no Args,
	// all else has no Listed.
	Args, State, Listed json.RawMessage `json:"-"`
	// ArgsErr is why there are no Args, an ErrSealed: the job is what it is nonetheless, and another
	// process may have the keys.
	ArgsErr error
	// Generation is raised whenever the job is added again while it runs.
	Generation int64
}

// String names the job. Its args, which may hold secrets, are not printed.
func (j Job) String() string { return fmt.Sprintf("%s job %q of %q", j.Status, j.ID, j.Owner) }

// Format writes String for every verb.
func (j Job) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, j.String(), "fdbjobs.Job("+j.String()+")")
}

// String names the job. Its args, which may hold secrets, are not printed.
func (s Spec) String() string { return fmt.Sprintf("job %q of %q", s.ID, s.Owner) }

// Format writes String for every verb.
func (s Spec) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, s.String(), "fdbjobs.Spec("+s.String()+")")
}
