package replicator

import (
	"encoding/json"
	"time"

	"settee/pkg/redact"
)

// Doing is what a run is doing, in a word.
type Doing string

// What a run may be doing. Of those that apply, the first of this list is told:
// what holds a run up is worth more than what it is busy with.
const (
	// DoingStopping: it ends as soon as it can, to let others run.
	DoingStopping Doing = "stopping"
	// DoingRateLimited: an endpoint wants requests to wait, see Activity.Waiting.
	DoingRateLimited Doing = "rate_limited"
	// DoingRetrying: a request failed and is repeated, see Activity.Waiting.
	DoingRetrying Doing = "retrying"
	// DoingStarting: it opens the databases and finds out where to go on.
	DoingStarting Doing = "starting"
	// DoingRefused: it copies, but the target takes nothing, see Activity.Refusing.
	DoingRefused Doing = "target_refusing"
	// DoingCopying: it copies what the changes feed had.
	DoingCopying Doing = "copying"
	// DoingFiltering: the source has more changes, but nothing passes the filter.
	DoingFiltering Doing = "filtering"
	// DoingReading: it waits for the next of the changes that the source has.
	DoingReading Doing = "reading_changes"
	// DoingWaiting: it has copied all there is, and waits for changes.
	DoingWaiting Doing = "waiting_for_changes"
	// DoingFinishing: it has copied all there is, and writes the last checkpoint.
	DoingFinishing Doing = "finishing"
)

// Activity says what a run is doing at the moment: why a replication does not move.
// Its JSON form is that of `activity` in the `info` object of listings.
type Activity struct {
	Doing Doing     `json:"doing"`
	Since time.Time `json:"since"`
	// BatchesInFlight is how many batches of changes are being copied.
	BatchesInFlight int `json:"batches_in_flight"`
	// LastProgress is when the latest batch was done with; zero if none was yet.
	LastProgress time.Time `json:"last_progress,omitzero"`
	// Waiting are requests that failed and are repeated, or that are held back
	// because the endpoint refused others: of each endpoint at most one, which is one
	// that the endpoint asked to wait if there is such, else the one whose turn comes
	// last.
	Waiting []Wait `json:"waiting,omitempty"`
	// Refusing is there while the target takes nothing.
	Refusing *Refusing `json:"refusing,omitempty"`
}

// Wait is a request that failed and is repeated, or that is held back.
type Wait struct {
	// Endpoint is "source" or "target".
	Endpoint string `json:"endpoint"`
	// Method and Path say which request it is. The path has neither credentials
	// nor a query.
	Method string `json:"method"`
	Path   string `json:"path"`
	// Error is how its latest try failed.
	Error string `json:"error"`
	// RateLimited says that the endpoint asked to be left alone, with the status 429
	// or with a Retry-After header.
	RateLimited bool `json:"rate_limited"`
	// Attempt is the number of the try that waits, 1 if it is held back, 2 for the
	// first repetition, and Attempts how many there are at most, 0 if there is no such
	// limit.
	Attempt  int `json:"attempt"`
	Attempts int `json:"attempts,omitempty"`
	// Since is when the first try failed. Until is when the next one is made; if
	// that is over, it is under way.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Refusing are revisions that the target refused, with none that it took after
// the first of them.
type Refusing struct {
	Count int64     `json:"count"`
	Since time.Time `json:"since"`
	// Latest is the latest one.
	Latest Failure `json:"latest"`
}

// maxActivityText is how many bytes of a text an activity has room for.
const maxActivityText = 300

// MarshalJSON writes times in UTC and whole seconds, masks credentials in texts,
// and cuts long ones, so that it all takes less than 20,000 bytes.
func (a Activity) MarshalJSON() ([]byte, error) {
	type plain Activity
	a.Since, a.LastProgress = wholeSeconds(a.Since), wholeSeconds(a.LastProgress)
	waiting := make([]Wait, len(a.Waiting))
	for i, w := range a.Waiting {
		w.Path = cut(redact.Text(w.Path), maxActivityText)
		w.Error = cut(redact.Text(w.Error), maxActivityText)
		w.Since, w.Until = wholeSeconds(w.Since), wholeSeconds(w.Until)
		waiting[i] = w
	}
	a.Waiting = waiting
	if a.Refusing != nil {
		refusing := *a.Refusing
		refusing.Since = wholeSeconds(refusing.Since)
		for _, text := range []*string{
			&refusing.Latest.ID, &refusing.Latest.Rev, &refusing.Latest.Code, &refusing.Latest.Reason,
		} {
			*text = cut(redact.Text(*text), maxActivityText)
		}
		a.Refusing = &refusing
	}
	return json.Marshal(plain(a))
}
