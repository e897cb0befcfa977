package replicator

import (
	"encoding/json"
	"time"

	"settee/pkg/jsontext"
	"settee/pkg/redact"
)

// Doing says what a run is doing, in one word. It is the [Reason] that people are told.
type Doing string

// The values of Doing. If several apply, the first one in this list is reported: what delays a
// run matters more than what it works on.
const (
	// DoingStopping: it ends as soon as possible, to let other jobs run.
	DoingStopping Doing = "stopping"
	// DoingRateLimited: an endpoint asked for requests to wait, see Activity.Waiting.
	DoingRateLimited Doing = "rate_limited"
	// DoingRetrying: a request failed and is repeated, see Activity.Waiting.
	DoingRetrying Doing = "retrying"
	// DoingBudget: a request waits for its turn in the budget of a server, see Activity.Budget.
	DoingBudget Doing = "waiting_for_budget"
	// DoingStarting: it opens the databases and looks for the latest checkpoint.
	DoingStarting Doing = "starting"
	// DoingRefused: it copies, but the target refuses everything, see Activity.Refusing.
	DoingRefused Doing = "target_refusing"
	// DoingCopying: it copies the changes that it has read.
	DoingCopying Doing = "copying"
	// DoingFiltering: the source has more changes, but none passes the filter.
	DoingFiltering Doing = "filtering"
	// DoingReading: the source has more changes, and it waits for the next one.
	DoingReading Doing = "reading_changes"
	// DoingWaiting: it has copied everything and waits for new changes.
	DoingWaiting Doing = "idle"
	// DoingFinishing: it has copied everything and writes the last checkpoint.
	DoingFinishing Doing = "finishing"
)

// heldBack reports whether a run waits because its requests are limited.
func (d Doing) heldBack() bool { return d == DoingRateLimited || d == DoingBudget }

// Activity says what a run is doing at the moment, and so why a replication makes no progress. Its JSON form is stored; see
// [ShownActivity] for listings.
type Activity struct {
	Doing Doing     `json:"doing"`
	Since time.Time `json:"since"`
	// BatchesInFlight is the number of batches of changes being copied.
	BatchesInFlight int `json:"batches_in_flight"`
	// LastProgress is when the latest batch was completed, a document was last written or refused, or the end of the changes was
	// reached; zero before any of these.
	LastProgress time.Time `json:"last_progress,omitzero"`
	// LastMoved is when bytes of a document were last read or written; zero if none were.
	LastMoved time.Time `json:"last_moved,omitzero"`
	// Waiting has at most one request for each endpoint: one that the endpoint asked to wait, if
	// there is one, else the request that will be sent last.
	Waiting []Wait `json:"waiting,omitempty"`
	// Budget is set while a request waits for the budget of a server.
	Budget *BudgetWait `json:"budget,omitempty"`
	// Refusing is set while the target refuses everything.
	Refusing *Refusing `json:"refusing,omitempty"`
}

// BudgetWait says that a request waits for its turn in the budget of a server.
type BudgetWait struct {
	Server string    `json:"server"` // its host, with the port if the budget names one
	Since  time.Time `json:"since"`
	Before int       `json:"before"` // the jobs of the same node whose turn is before
}

// Wait is a request that failed and is repeated, or that is held back because the endpoint
// refused other requests.
type Wait struct {
	// Endpoint is "source" or "target".
	Endpoint string `json:"endpoint"`
	// Method and Path identify the request. The path has no credentials and no query.
	Method string `json:"method"`
	Path   string `json:"path"`
	// Error is the error of the latest attempt.
	Error string `json:"error"`
	// RateLimited reports whether the endpoint asked for a pause, with status 429 or a
	// Retry-After header.
	RateLimited bool `json:"rate_limited"`
	// Attempt is the number of the next attempt: 1 for a request that is held back, 2 for the
	// first repetition. Attempts is the most attempts there are, 0 for no limit.
	Attempt  int `json:"attempt"`
	Attempts int `json:"attempts,omitempty"`
	// Since is when the first attempt failed. Until is when the next one is made; if that is
	// past, the attempt is under way.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Fault is why the latest attempt failed. It is nil if an older version has written the wait.
	Fault *Fault `json:"fault,omitempty"`
}

// Refusing counts the revisions that the target refused since it last took one.
type Refusing struct {
	Count int64     `json:"count"`
	Since time.Time `json:"since"`
	// Latest is the latest of them.
	Latest Failure `json:"latest"`
}

// maxActivityText is the most bytes of one text in an activity.
const maxActivityText = 300

// MarshalJSON writes times in UTC and whole seconds, masks credentials, and truncates long texts,
// so that the result has less than 60,000 bytes.
func (a Activity) MarshalJSON() ([]byte, error) {
	type plain Activity
	a.Since, a.LastProgress, a.LastMoved = wholeSeconds(a.Since), wholeSeconds(a.LastProgress), wholeSeconds(a.LastMoved)
	waiting := make([]Wait, len(a.Waiting))
	for i, w := range a.Waiting {
		w.Path = jsontext.Cut(redact.Text(w.Path), maxActivityText)
		w.Error = jsontext.Cut(redact.Text(w.Error), maxActivityText)
		w.Since, w.Until = wholeSeconds(w.Since), wholeSeconds(w.Until)
		if w.Fault != nil {
			f := *w.Fault
			f.Detail, f.Text, f.Database = jsontext.Cut(redact.Text(f.Detail), maxActivityText), "", jsontext.Cut(f.Database, maxActivityText)
			w.Fault = &f
		}
		waiting[i] = w
	}
	a.Waiting = waiting
	if a.Budget != nil {
		budget := *a.Budget
		budget.Server, budget.Since = jsontext.Cut(budget.Server, maxActivityText), wholeSeconds(budget.Since)
		a.Budget = &budget
	}
	if a.Refusing != nil {
		refusing := *a.Refusing
		refusing.Since = wholeSeconds(refusing.Since)
		for _, text := range []*string{
			&refusing.Latest.ID, &refusing.Latest.Rev, &refusing.Latest.Code, &refusing.Latest.Reason,
		} {
			*text = jsontext.Cut(redact.Text(*text), maxActivityText)
		}
		a.Refusing = &refusing
	}
	return json.Marshal(plain(a))
}
