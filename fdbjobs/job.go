package fdbjobs

import (
	"bytes"
	"cmp"
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
	// MaxListedSize is the limit of [Spec].Listed, in bytes of JSON.
	MaxListedSize = 20_000
	// MaxNameSize is the limit of an id and of an owner, in bytes. A key may contain both, and has at most 10,000
	// bytes.
	MaxNameSize = 2_000
)

// maxLabelSize is the limit of a label and of a tag, in bytes.
const maxLabelSize = 100

// The errors that callers decide on.
var (
	// ErrNotFound: the job does not exist.
	ErrNotFound = errors.New("no such job")
	// ErrHalt: the job is no longer held. It was removed, added again with new args, or queued again because its holder
	// did not update it in time. The processor must stop working on it.
	ErrHalt = errors.New("the job is no longer held")
	// ErrExpired is an ErrHalt: no update has succeeded in time, so another process may hold the job.
	ErrExpired = fmt.Errorf("%w: it was not kept alive", ErrHalt)
	// ErrTooLarge: the args, the state or a name are over their limit.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid: an argument cannot be stored.
	ErrInvalid = errors.New("invalid job")
	// ErrSealed: the Sealer has no key that opens the args.
	ErrSealed = errors.New("opening the args")
	// ErrClosed: the layer is closed.
	ErrClosed = errors.New("the job layer is closed")
)

// Status is the status of a job in the queue.
type Status string

// The statuses of a job.
const (
	Pending  Status = "pending"
	Running  Status = "running"
	Finished Status = "finished"
)

// Part selects jobs of a queue in lists and counts.
type Part struct {
	Status Status
	// Label is from [Spec].Label, Tag from [Spec].Tag or [Held].Tag.
	Label, Tag string
}

// Spec describes a job for [Queue.Add].
type Spec struct {
	ID    string
	Owner string
	// Scheduled is the time from which the job may run, rounded down to seconds. A time in the past, such as the zero
	// time, means now.
	Scheduled time.Time
	// Args is a JSON object of at most MaxArgsSize bytes; nil means {}.
	Args json.RawMessage `json:"-"`
	// State is the state of a job that is new or has finished, a JSON object of at most MaxStateSize bytes. nil means
	// {}. A pending or running job keeps its state.
	State json.RawMessage
	// Label selects jobs of the queue in lists and counts: see [Part]. A running job keeps its label.
	Label string
	// Listed is what lists show of the job besides its state, because they do not read the args. It is a JSON object of
	// at most MaxListedSize bytes, or nil.
	Listed json.RawMessage
	// Token is a random text, drawn outside the transaction's function. A second Add with the same token, as in a
	// repetition after an unknown result, changes nothing. An empty token does nothing.
	Token string
	// Tag is the job's tag until it is due ([Derivation].Due) or runs. A running job is queued without it.
	Tag string
	// Ended adds the job as finished, with State and Tag, so that work that was done elsewhere is listed. A pending or
	// running job with the id is removed first.
	Ended bool
}

func (s Spec) check() error {
	if s.ID == "" {
		return fmt.Errorf("%w: its id is empty", ErrInvalid)
	}
	return cmp.Or(
		checkSize("id", len(s.ID), MaxNameSize), checkSize("owner", len(s.Owner), MaxNameSize),
		checkSize("token", len(s.Token), MaxNameSize), checkSize("label", len(s.Label), maxLabelSize), checkTag(s.Tag),
		checkObject("args", s.Args, MaxArgsSize), checkObject("listed part", s.Listed, MaxListedSize), checkState(s.State))
}

func checkTag(tag string) error { return checkSize("tag", len(tag), maxLabelSize) }

func checkState(state json.RawMessage) error { return checkObject("state", state, MaxStateSize) }

func checkSize(name string, size, limit int) error {
	if size > limit {
		return fmt.Errorf("%w: the job's %s: %d bytes, at most %d", ErrTooLarge, name, size, limit)
	}
	return nil
}

func checkObject(name string, text json.RawMessage, limit int) error {
	if err := checkSize(name, len(text), limit); err != nil {
		return err
	}
	if text != nil && (!bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) || !json.Valid(text)) {
		return fmt.Errorf("%w: no JSON object in its %s", ErrInvalid, name)
	}
	return nil
}

// Job is a job as a transaction read it.
type Job struct {
	ID     string
	Owner  string
	Status Status
	// Scheduled is the time from which the job may run. For a job that runs or has run it is the time that it had
	// waited for.
	Scheduled time.Time
	// Label and Tag select the job in lists and counts: see [Part].
	Label, Tag string
	// Args, State and Listed are JSON objects, which belong to the caller. Lists and removals of several jobs leave out
	// Args, all other reads leave out Listed.
	Args, State, Listed json.RawMessage `json:"-"`
	// ArgsErr says why Args are missing. It is an ErrSealed. Another process may have the key.
	ArgsErr error
	// Lock is the lock of a running job's holder, which no other holding has. It is empty unless the job is Running.
	Lock string
	// Evicted is the id of the job that makes room for a job that was accepted: see [AcceptOptions].Evictable.
	Evicted string

	generation int64 // grows whenever the job is added again while it runs
	version    int64 // of the job's row
}

// Format writes the job's status, id and owner for every verb. It leaves out the args, which may hold secrets.
func (j Job) Format(f fmt.State, verb rune) {
	text := fmt.Sprintf("%s job %q of %q", j.Status, j.ID, j.Owner)
	redact.Format(f, verb, text, "fdbjobs.Job("+text+")")
}

// Format writes the job's id and owner for every verb. It leaves out the args, which may hold secrets.
func (s Spec) Format(f fmt.State, verb rune) {
	text := fmt.Sprintf("job %q of %q", s.ID, s.Owner)
	redact.Format(f, verb, text, "fdbjobs.Spec("+text+")")
}
