package worker

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"settee/pkg/couch"
	"settee/pkg/outbound"
	"settee/pkg/redact"
)

var (
	// ErrStopped is the error of a run that was asked to stop. If its last checkpoint failed, the error wraps the
	// reason as well. Only the progress since the checkpoint before is lost.
	ErrStopped = errors.New("the run was stopped")
	// ErrIDChanged means that the code of the filter function at the source has changed, and the replication id with
	// it. The job must start anew, with fresh statistics.
	ErrIDChanged = errors.New("the replication id has changed")
)

// The codes of errors are CouchDB's. Codes that a database returns are passed on unchanged.
const (
	codePlain        = "error"                     // CouchDB's word where it has no other
	codeNoDatabase   = "db_not_found"              // source or target does not exist
	codeUnauthorized = "unauthorized"              // credentials are needed
	codeAuth         = "replication_auth_error"    // credentials are wrong
	codeForbidden    = "forbidden"                 // credentials are not enough
	codeUnresolved   = "nxdomain"                  // no such host
	codeMaxBackoff   = "max_backoff"               // 429 until no retry was left
	codeFilter       = "filter_fetch_error"        // the filter function's code could not be read
	codeCheckpoint   = "checkpoint_commit_failure" // a checkpoint could not be written
	codeMissingDoc   = "missing_doc"               // the source lacks a revision that it announced
	codeRevsDiff     = "revs_diff_failed"
	codeBulkDocs     = "bulk_docs_failed"
	codeMirror       = "mirror_refused" // a mirror may not write to the target, or read the source; CouchDB has no mirrors
)

// leastRetryAfter is the wait after a 429 without Retry-After.
const leastRetryAfter = 10 * time.Second

// Error is the error of a failed run. Its texts contain no credentials.
type Error struct {
	// Code and Reason are CouchDB's "error" and "reason", for replicator.JobState.SetError. The code is
	// "error" where CouchDB has no word for the kind of failure.
	Code, Reason string
	// RetryAfter is the time to wait before the next request to the endpoint. It is set after every 429, and after a
	// 503 with Retry-After. Otherwise it is 0.
	RetryAfter time.Duration
	// Err is the cause, if there is one.
	Err error
}

// Error returns the code, unless it is "error", and the reason.
func (e *Error) Error() string {
	if e.Code == codePlain {
		return e.Reason
	}
	return e.Code + ": " + e.Reason
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// newError returns an Error with the given code. It keeps Retry-After only of a 429 or 503: with other statuses the
// header does not ask for a pause.
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

// failed returns the error, with CouchDB's code and words, for a request to this database that failed for good. code is
// used if CouchDB has none for err. An *Error is returned unchanged.
func (p *peer) failed(code string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	var unresolved *net.DNSError
	request, answered := errors.AsType[*couch.Error](err)
	// A request below the database comes after its opening, so its refusal is about that request.
	below := false
	if answered {
		path, inside := strings.CutPrefix(request.URL, p.db.URL()+"/")
		below = inside && path != "" && path != "_session"
	}
	refused := errors.Is(err, couch.ErrUnauthorized) || errors.Is(err, couch.ErrForbidden)
	switch {
	case below && refused && code != codePlain:
		return newError(code, err, "%s: %s", p.side, err)
	case below && errors.Is(err, couch.ErrUnauthorized):
		return newError(p.unauthorized(), err, "%s: %s", p.side, err)
	case below && errors.Is(err, couch.ErrForbidden):
		return newError(codeForbidden, err, "%s: %s", p.side, err)
	case errors.Is(err, couch.ErrNoDatabase), errors.Is(err, couch.ErrNotDatabase):
		return newError(codeNoDatabase, err, "could not open %s", p.uri)
	case errors.Is(err, couch.ErrUnauthorized):
		// As in CouchDB, only a refused login says that the credentials are wrong.
		code, as := codeUnauthorized, ""
		if strings.HasSuffix(request.URL, "/_session") {
			code = codeAuth
		}
		if p.user != "" {
			as = fmt.Sprintf(" as %q", p.user)
		}
		return newError(code, err, "unauthorized to access or create database %s%s%s", p.uri, as, serverSaid(err))
	case errors.Is(err, couch.ErrForbidden):
		return newError(codeForbidden, err, "forbidden to access database %s%s", p.uri, serverSaid(err))
	case errors.As(err, &unresolved) && unresolved.IsNotFound && !byProxy(err):
		return newError(codeUnresolved, err, "could not resolve %s", p.uri)
	case errors.Is(err, couch.ErrTooManyRequests):
		return newError(codeMaxBackoff, err, "%s: %s", p.side, err)
	case code == codePlain:
		// CouchDB puts this word before an Erlang term.
		return newError(code, err, "http_request_failed: %s: %s", p.side, err)
	}
	return newError(code, err, "%s: %s", p.side, err)
}

// unauthorized returns the code for a 401.
func (p *peer) unauthorized() string {
	if p.user != "" {
		return codeAuth
	}
	return codeUnauthorized
}

// byProxy reports whether err comes from a proxy or from a connection through one.
func byProxy(err error) bool {
	e, ok := errors.AsType[*outbound.ConnectError](err)
	return ok && e.Proxy != ""
}

// serverSaid returns ": " and the server's reason, or "".
func serverSaid(err error) string {
	if e, ok := errors.AsType[*couch.Error](err); ok && e.Reason != "" {
		return ": " + e.Reason
	}
	return ""
}
