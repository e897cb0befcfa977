package worker

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"settee/pkg/couch"
	"settee/replicator"
)

var (
	// ErrStopped is the error of a run that was asked to stop. If its last checkpoint failed, the error wraps the
	// reason as well. Only the progress since the checkpoint before is lost.
	ErrStopped = errors.New("the run was stopped")
	// ErrIDChanged means that the code of the filter function at the source has changed, and the replication id with
	// it. The job must start anew, with fresh statistics.
	ErrIDChanged = errors.New("the replication id has changed")
)

// The codes of documents that are not copied, where no server has said one.
const (
	codePlain      = "error"
	codeMissingDoc = "missing_doc"
)

// leastRetryAfter is the wait after a 429 without Retry-After.
const leastRetryAfter = 10 * time.Second

// Error is the error of a failed run. Its texts contain no credentials.
type Error struct {
	// Fault says what went wrong.
	Fault *replicator.Fault
	// Code and Reason are CouchDB's "error" and "reason", see [replicator.Fault.CouchText]. The code is "error" where CouchDB
	// has no word for the kind of failure.
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

// newError returns the Error of a fault. It keeps Retry-After only of a 429 or 503: with other statuses the header does not ask
// for a pause. err may be nil.
func newError(f *replicator.Fault, err error) *Error {
	e := Failed(f)
	e.RetryAfter, e.Err = pauseOf(err), err
	f.RetryAfter = wholeSeconds(e.RetryAfter)
	return e
}

// RequestFailed returns the Error of a request that concerns several databases of an endpoint's server and failed with err.
func RequestFailed(side replicator.Side, e replicator.Endpoint, request replicator.RequestCode, err error) *Error {
	return newError(newPeer(string(side), e).fault(request, err), err)
}

// Failed returns the Error of a fault alone, which it does not change.
func Failed(f *replicator.Fault) *Error {
	e := &Error{Fault: f}
	e.Code, e.Reason = f.CouchText()
	return e
}

// pauseOf returns the time for which the endpoint asked, with an answer, to be left alone, or 0.
func pauseOf(err error) time.Duration {
	request, ok := errors.AsType[*couch.Error](err)
	switch {
	case !ok:
	case errors.Is(request, couch.ErrTooManyRequests):
		return max(request.RetryAfter, leastRetryAfter)
	case request.Status == http.StatusServiceUnavailable:
		return request.RetryAfter
	}
	return 0
}

// wholeSeconds returns a time in seconds, rounded up.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// failed returns the error for a request to this database that failed for good. An *Error is returned unchanged.
func (p *peer) failed(request replicator.RequestCode, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return newError(p.fault(request, err), err)
}

// coded returns a fault of this database.
func (p *peer) coded(code replicator.FaultCode, request replicator.RequestCode, detail string) *replicator.Fault {
	return replicator.FaultAt(code, replicator.Side(p.side), p.endpoint, request, detail)
}

// fault returns the fault of a request to this database that failed with err.
func (p *peer) fault(request replicator.RequestCode, err error) *replicator.Fault {
	f := p.coded(replicator.FaultUnknown, request, err.Error())
	if refused, ok := errors.AsType[*couch.DocError](err); ok {
		f.Code, f.Word, f.Said = replicator.FaultDocumentRefused, refused.Code, refused.Reason
		f.Document = &replicator.DocRef{ID: refused.ID, Rev: refused.Rev}
		return f
	}
	e, ok := errors.AsType[*couch.Error](err)
	if !ok {
		return f
	}
	f.Code, f.Method, f.Proxy = codeOfClass(e.Class()), e.Method, e.Proxy()
	f.Status, f.Word, f.Said = e.Status, e.Code, e.Reason
	if u, err := url.Parse(e.URL); err == nil {
		f.Path = u.EscapedPath()
	}
	switch {
	case errors.Is(e, couch.ErrToken):
		f.Request, f.Host = replicator.RequestToken, hostOf(e.URL)
	case f.Code == replicator.FaultLoginRefused:
		f.Request = replicator.RequestLogin
	case !f.Request.Whole() && f.Status != 0 && p.below(e) == "":
		f.Request = replicator.RequestOpen // which came before the request that was asked for
	}
	return f
}

// hostOf returns the host and the port of a URL.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}

// below returns the part of a request's URL that follows the URL of the database and a slash, or "" if the request was about
// the database as a whole, or its server.
func (p *peer) below(e *couch.Error) string {
	path, inside := strings.CutPrefix(e.URL, p.db.URL()+"/")
	if !inside || path == "_session" {
		return ""
	}
	return path
}

// codeOfClass returns the code of a fault for the class of an error.
func codeOfClass(class couch.Class) replicator.FaultCode {
	if class == couch.ClassTooLarge {
		return replicator.FaultDocumentTooLarge
	}
	return replicator.FaultCode(class) // the words are the same
}
