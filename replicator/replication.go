package replicator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"settee/pkg/redact"
	"settee/pkg/sockopt"
)

// Limits of what a replication has, whatever it asks for. They protect resources that all jobs of a
// node share: a run holds a batch in memory for each of its workers, and a connection is a file
// descriptor.
const (
	MaxWorkerProcesses = 100
	MaxWorkerBatchSize = 10_000 // changes
	MaxHTTPConnections = 1_000
	MaxRetries         = 1_000
)

// Replication is the definition of a replication. Its fields have the names of those in documents
// of replicator databases. A nil pointer means not given: the configuration of the node that runs
// the job decides.
type Replication struct {
	Source Endpoint `json:"source"`
	Target Endpoint `json:"target"`

	// CreateTarget asks to create the target database if it is missing. CreateTargetParams, a
	// JSON object of strings, numbers and booleans, is the query of that request (q, n,
	// partitioned).
	CreateTarget       bool            `json:"create_target,omitempty"`
	CreateTargetParams json.RawMessage `json:"create_target_params,omitempty"`

	// Continuous replications wait for changes at the end of the changes feed.
	Continuous bool `json:"continuous,omitempty"`

	// Schedule is a cron expression of five fields about the time in Timezone, which is UTC if it is empty. Every is in
	// seconds. One of the two makes the replication of a document run again and again: see [Replication.NextRun].
	Schedule string `json:"schedule,omitempty"`
	Timezone string `json:"timezone,omitempty"`
	Every    int    `json:"every,omitempty"`

	// At most one of DocIDs, Filter and Selector is given. DocIDs are decoded, sorted and without
	// duplicates; an empty list that is not nil selects nothing. Filter is `ddoc/name` or a
	// built-in filter, which begins with an underscore. QueryParams, a JSON object, are the
	// parameters of the filter. Selector is a JSON object in CouchDB's selector syntax, with its
	// keys in their order.
	DocIDs      []string        `json:"doc_ids,omitzero"`
	Filter      string          `json:"filter,omitempty"`
	QueryParams json.RawMessage `json:"query_params,omitempty"`
	Selector    json.RawMessage `json:"selector,omitempty"`

	// SinceSeq is where to start in the changes feed: an opaque JSON string, integer or array.
	SinceSeq json.RawMessage `json:"since_seq,omitempty"`

	// WinningRevsOnly skips conflicting revisions.
	WinningRevsOnly bool `json:"winning_revs_only,omitempty"`

	UseCheckpoints     *bool `json:"use_checkpoints,omitempty"`
	CheckpointInterval *int  `json:"checkpoint_interval,omitempty"` // milliseconds
	UseBulkGet         *bool `json:"use_bulk_get,omitempty"`
	WorkerProcesses    *int  `json:"worker_processes,omitempty"`
	WorkerBatchSize    *int  `json:"worker_batch_size,omitempty"` // changes
	HTTPConnections    *int  `json:"http_connections,omitempty"`
	ConnectionTimeout  *int  `json:"connection_timeout,omitempty"` // milliseconds
	RetriesPerRequest  *int  `json:"retries_per_request,omitempty"`

	SocketOptions *sockopt.Options `json:"socket_options,omitempty"`

	// Mirror, if not nil, makes this a mirror of a server. Mirrored, if not nil, says that a mirror has made it. At most one
	// of them is given.
	Mirror   *Mirror   `json:"mirror,omitempty"`
	Mirrored *Mirrored `json:"mirrored,omitempty"`

	// Doubtful are the fields that were probably not meant as they were read: those of `source`, `target` and `doc_ids` whose
	// text was decoded, and members of `auth` that are not used, such as `source.auth.plugin`. See [Replication.Warnings].
	Doubtful []string `json:"doubtful,omitempty"`

	// UserCtx is the user on whose behalf a document replicates. It is nil for POST /_replicate,
	// where the user is the request's.
	UserCtx *UserCtx `json:"user_ctx,omitempty"`

	// Owner is the user that wrote the document.
	Owner *string `json:"owner,omitempty"`
}

// UserCtx is a user name and roles. A nil name means the anonymous user.
type UserCtx struct {
	Name  *string  `json:"name"`
	Roles []string `json:"roles"`
}

// String returns the two URLs, without credentials.
func (r Replication) String() string {
	return r.Source.String() + " to " + r.Target.String()
}

// Format writes String for every verb. Endpoint.Format alone is not enough: for a verb that does
// not fit a pointer, such as %s, fmt prints the value that it points to without calling the
// methods of its fields.
func (r Replication) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, r.String(), fmt.Sprintf("replicator.Replication(%q)", r.String()))
}

// MarshalJSON writes the replication without credentials and without what selects documents,
// which may be large or secret.
func (r Replication) MarshalJSON() ([]byte, error) {
	type plain Replication
	r.DocIDs, r.QueryParams, r.Selector, r.CreateTargetParams = nil, nil, nil, nil
	return json.Marshal(plain(r))
}

// Warnings returns a sentence for each option that asks for more than the limits, in the order of the
// options' names, and for each field that was probably not meant as it was read.
func (r *Replication) Warnings() []string {
	var list []string
	for _, option := range []struct {
		name  string
		asked *int
		most  int
	}{
		{"http_connections", r.HTTPConnections, MaxHTTPConnections},
		{"retries_per_request", r.RetriesPerRequest, MaxRetries},
		{"worker_batch_size", r.WorkerBatchSize, MaxWorkerBatchSize},
		{"worker_processes", r.WorkerProcesses, MaxWorkerProcesses},
	} {
		if option.asked != nil && *option.asked > option.most {
			list = append(list, fmt.Sprintf("`%s` is %d, which is the most", option.name, option.most))
		}
	}
	for _, field := range r.Doubtful {
		text, known := doubtfulText[field]
		if !known {
			text = unusedAuth(field)
		}
		list = append(list, text)
	}
	return list
}

var doubtfulText = map[string]string{
	"source": "`source` has a user name or password with escapes that need not be escaped, and they were decoded: write `%25` for a percent sign",
	"target": "`target` has a user name or password with escapes that need not be escaped, and they were decoded: write `%25` for a percent sign",
	"doc_ids": "`doc_ids` has ids with a plus sign, which means a space, or with escapes that need not be escaped: " +
		"write `%2B` for a plus sign and `%25` for a percent sign",
}

// ErrNoFilterFunction is the error of [Replication.FilterName] for a replication whose filter is
// not a function of a design document.
var ErrNoFilterFunction = errors.New("the replication has no filter function")

// NeedsFilterCode reports whether the replication id covers the source text of a filter function,
// which has to be fetched from the source. A mirror's does not: each of its databases has a filter function of its own.
func (r *Replication) NeedsFilterCode() bool {
	return r.Mirror == nil && r.Filter != "" && !strings.HasPrefix(r.Filter, "_")
}

// FilterName returns the names of the design document, without "_design/", and of its filter
// function. It returns ErrNoFilterFunction if there is none.
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

// Equal reports whether r and other ask for the same in every respect, in whatever spelling. If
// they do, a job whose document was rewritten need not start anew. Unlike ids, Equal covers
// passwords, options and the owner.
func (r *Replication) Equal(other *Replication) bool {
	if r == nil || other == nil {
		return r == other
	}
	a, errA := r.canonical()
	b, errB := other.canonical()
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// canonical returns a JSON form that is the same for equal replications.
func (r *Replication) canonical() ([]byte, error) {
	c := *r
	c.Doubtful = nil // it is about the spelling
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
