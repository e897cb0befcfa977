package replicator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"settee/pkg/redact"
)

// The most that a replication may ask for of what a node has to share among all:
// a run holds a batch for each of its workers in memory, and a connection is a
// file descriptor.
const (
	MaxWorkerProcesses = 100
	MaxWorkerBatchSize = 10_000 // changes
	MaxHTTPConnections = 1_000
	MaxRetries         = 1_000
)

// Replication is the whole definition of a replication. Its fields have the names
// that documents of replicator databases have. Pointers are nil for what was not
// given: the configuration of the node that runs the job decides then.
type Replication struct {
	Source Endpoint `json:"source"`
	Target Endpoint `json:"target"`

	// CreateTarget asks for the target database to be made if it is missing, with
	// CreateTargetParams, a JSON object of text, numbers and booleans, as the
	// query of that request (q, n, partitioned).
	CreateTarget       bool            `json:"create_target,omitempty"`
	CreateTargetParams json.RawMessage `json:"create_target_params,omitempty"`

	// Continuous replications go on when they reach the end of the changes feed.
	Continuous bool `json:"continuous,omitempty"`

	// At most one of DocIDs, Filter and Selector is given. DocIDs are decoded,
	// sorted and without doubles; an empty list that is not nil selects nothing.
	// Filter is `ddoc/name` or a built-in filter, which begins with an underscore.
	// QueryParams, a JSON object, are the filter's. Selector is a JSON object in
	// CouchDB's selector syntax, with its keys in their order.
	DocIDs      []string        `json:"doc_ids,omitzero"`
	Filter      string          `json:"filter,omitempty"`
	QueryParams json.RawMessage `json:"query_params,omitempty"`
	Selector    json.RawMessage `json:"selector,omitempty"`

	// SinceSeq is where to start in the changes feed: a JSON string, integer or
	// array, opaque.
	SinceSeq json.RawMessage `json:"since_seq,omitempty"`

	// WinningRevsOnly leaves conflicting revisions behind.
	WinningRevsOnly bool `json:"winning_revs_only,omitempty"`

	UseCheckpoints     *bool `json:"use_checkpoints,omitempty"`
	CheckpointInterval *int  `json:"checkpoint_interval,omitempty"` // milliseconds
	UseBulkGet         *bool `json:"use_bulk_get,omitempty"`
	WorkerProcesses    *int  `json:"worker_processes,omitempty"`
	WorkerBatchSize    *int  `json:"worker_batch_size,omitempty"` // changes
	HTTPConnections    *int  `json:"http_connections,omitempty"`
	ConnectionTimeout  *int  `json:"connection_timeout,omitempty"` // milliseconds
	RetriesPerRequest  *int  `json:"retries_per_request,omitempty"`

	SocketOptions *SocketOptions `json:"socket_options,omitempty"`

	// UserCtx is the user on whose behalf a document says it replicates. A body of
	// POST /_replicate has none: its user is the request's.
	UserCtx *UserCtx `json:"user_ctx,omitempty"`

	// Owner is the user who wrote the document.
	Owner *string `json:"owner,omitempty"`
}

// UserCtx is a user name, nil for an anonymous one, and roles.
type UserCtx struct {
	Name  *string  `json:"name"`
	Roles []string `json:"roles"`
}

// String returns the two URLs, without credentials.
func (r Replication) String() string {
	return r.Source.String() + " to " + r.Target.String()
}

// GoString keeps %#v from showing passwords.
func (r Replication) GoString() string {
	return fmt.Sprintf("replicator.Replication(%q)", r.String())
}

// Format writes String for every verb, and GoString for %#v. That an Endpoint
// does so is not enough: a verb that does not fit a pointer, such as %s, makes fmt
// print what it points to without asking the parts for their form.
func (r Replication) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, r.String(), r.GoString())
}

// MarshalJSON writes the replication as it may be printed: without credentials, and
// without what selects documents, which may be large, and secret.
func (r Replication) MarshalJSON() ([]byte, error) {
	type plain Replication
	r.DocIDs, r.QueryParams, r.Selector, r.CreateTargetParams = nil, nil, nil, nil
	return json.Marshal(plain(r))
}

// LogValue implements slog.LogValuer.
func (r Replication) LogValue() slog.Value { return slog.StringValue(r.String()) }

// ErrNoFilterFunction is what [Replication.FilterName] returns for a replication
// whose filter is not a function of a design document.
var ErrNoFilterFunction = errors.New("the replication has no filter function")

// NeedsFilterCode reports whether the replication's id covers the source text of
// a filter function, which has to be fetched from the source database.
func (r *Replication) NeedsFilterCode() bool {
	return r.Filter != "" && !strings.HasPrefix(r.Filter, "_")
}

// FilterName returns the names of the design document, without "_design/", and of
// the filter function in it, or ErrNoFilterFunction.
func (r *Replication) FilterName() (ddoc, filter string, err error) {
	if !r.NeedsFilterCode() {
		return "", "", ErrNoFilterFunction
	}
	ddoc, filter, found := strings.Cut(r.Filter, "/")
	if !found {
		return "", "", ErrNoFilterFunction
	}
	return ddoc, filter, nil
}

// Equal reports whether r and other ask for the same in every respect, however
// they were written: a job whose document was rewritten need not start anew then.
// Unlike ids, it covers passwords, options and the owner.
func (r *Replication) Equal(other *Replication) bool {
	if r == nil || other == nil {
		return r == other
	}
	a, errA := r.canonical()
	b, errB := other.canonical()
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// canonical returns a JSON form of r that is the same for equal replications.
func (r *Replication) canonical() ([]byte, error) {
	c := *r
	for _, raw := range []*json.RawMessage{&c.CreateTargetParams, &c.QueryParams, &c.Selector, &c.SinceSeq} {
		sorted, err := canonicalJSON(*raw)
		if err != nil {
			return nil, err
		}
		*raw = sorted
	}
	for _, e := range []*Endpoint{&c.Source, &c.Target} {
		e.URL = e.canonicalURL()
		e.Headers = e.canonicalHeaders()
		e.WrittenUsername = ""
	}
	return json.Marshal(c.stored())
}
