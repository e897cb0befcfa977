package worker

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"settee/pkg/couch"
	"settee/pkg/redact"
)

var (
	// ErrStopped is how a run ends that was asked to stop. If its last checkpoint failed, the error wraps
	// the reason too: nothing is lost but the way since the checkpoint before.
	ErrStopped = errors.New("the run was stopped")
	// ErrIDChanged says that the filter function at the source is not the one anymore whose replication
	// id the run has: the job is to start anew, with fresh statistics.
	ErrIDChanged = errors.New("the replication id has changed")
)

// The codes of errors, which are CouchDB's. Others come from a database as they are.
const (
	codePlain        = "error"                     // CouchDB's word where it has no other
	codeNoDatabase   = "db_not_found"              // source or target does not exist
	codeUnauthorized = "unauthorized"              // credentials are needed
	codeAuth         = "replication_auth_error"    // credentials are wrong
	codeForbidden    = "forbidden"                 // credentials are not enough
	codeUnresolved   = "nxdomain"                  // no such host
	codeMaxBackoff   = "max_backoff"               // told to slow down until no retry was left
	codeFilter       = "filter_fetch_error"        // the filter function's code could not be read
	codeCheckpoint   = "checkpoint_commit_failure" // a checkpoint could not be written
	codeMissingDoc   = "missing_doc"               // the source announced what it does not have
	codeRevsDiff     = "revs_diff_failed"
	codeBulkDocs     = "bulk_docs_failed"
)

// leastRetryAfter is how long an endpoint is left alone that answers 429 and does not say for how long.
const leastRetryAfter = 10 * time.Second

// Error is why a run failed. Its texts have no credentials in them.
type Error struct {
	// Code and Reason are CouchDB's "error" and "reason", for replicator.JobState.SetError. The code is
	// "error" where CouchDB has no word for the kind of failure.
	Code, Reason string
	// RetryAfter is how long the endpoint is to be left alone: after 429 always, after 503 if it asked for
	// that; else 0.
	RetryAfter time.Duration
	// Err is the cause, if there is one.
	Err error
}

// Error gives the code, unless it says nothing, and the reason.
func (e *Error) Error() string {
	if e.Code == codePlain {
		return e.Reason
	}
	return e.Code + ": " + e.Reason
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// newError makes an Error with a code of its own. What err knows of the endpoint's wishes stays known: with
// any other status than these, Retry-After is not about being left alone.
func newError(code string, err error, format string, args ...any) *Error {
	e := &Error{Code: code, Reason: redact.Text(fmt.Sprintf(format, args...)), Err: err}
	request, ok := errors.AsType[*couch.Error](err)
	switch {
	case !ok:
	case errors.Is(request, couch.ErrTooManyRequests):
		e.RetryAfter = max(request.RetryAfter, leastRetryAfter)
	case request.Status == http.StatusServiceUnavailable:
		e.RetryAfter = request.RetryAfter
	}
	return e
}

// failed says, in CouchDB's words, why a request to this database failed for good. code is for what has
// no word of its own. An *Error stays what it is.
func (p *peer) failed(code string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	var unresolved *net.DNSError
	switch {
	case errors.Is(err, couch.ErrNoDatabase):
		return newError(codeNoDatabase, err, "could not open %s", p.uri)
	case errors.Is(err, couch.ErrUnauthorized) && p.user != "":
		return newError(codeAuth, err, "unauthorized to access or create database %s as %q%s", p.uri, p.user, serverSaid(err))
	case errors.Is(err, couch.ErrUnauthorized):
		return newError(codeUnauthorized, err, "unauthorized to access or create database %s%s", p.uri, serverSaid(err))
	case errors.Is(err, couch.ErrForbidden):
		return newError(codeForbidden, err, "forbidden to access database %s%s", p.uri, serverSaid(err))
	case errors.As(err, &unresolved) && unresolved.IsNotFound && !byProxy(err):
		return newError(codeUnresolved, err, "could not resolve %s", p.uri)
	case errors.Is(err, couch.ErrTooManyRequests):
		return newError(codeMaxBackoff, err, "%s: %s", p.side, err)
	case code == codePlain:
		// CouchDB's word for it, in front of what it prints as a term.
		return newError(code, err, "http_request_failed: %s: %s", p.side, err)
	}
	return newError(code, err, "%s: %s", p.side, err)
}

// byProxy reports whether err is about a proxy, or about a connection through one.
func byProxy(err error) bool {
	e, ok := errors.AsType[*couch.ConnectError](err)
	return ok && e.Proxy != ""
}

// serverSaid is what a server gave as its reason.
func serverSaid(err error) string {
	if e, ok := errors.AsType[*couch.Error](err); ok && e.Reason != "" {
		return ": " + e.Reason
	}
	return ""
}
