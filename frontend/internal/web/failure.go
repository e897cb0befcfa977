package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/kv/levels"
	"settee/pkg/redact"
)

// Failure is the error of a request that is refused. It holds nothing that the client may not see.
type Failure struct {
	Status int
	Code   string // CouchDB's word for the error
	Reason string
	// RetryAfter, if it is not 0, is when the client may try again. The answer says so in whole seconds.
	RetryAfter time.Duration
}

// NewFailure returns a failure with a status, CouchDB's word for the error, and a reason.
func NewFailure(status int, code, reason string) *Failure {
	return &Failure{Status: status, Code: code, Reason: reason}
}

// Error returns the reason.
func (f *Failure) Error() string { return f.Reason }

// BadRequest returns a failure with the status 400.
func BadRequest(reason string) error {
	return NewFailure(http.StatusBadRequest, "bad_request", reason)
}

// Unauthorized returns a failure with the status 401.
func Unauthorized(reason string) *Failure {
	return NewFailure(http.StatusUnauthorized, "unauthorized", reason)
}

// Forbidden returns a failure with the status 403.
func Forbidden(reason string) *Failure { return NewFailure(http.StatusForbidden, "forbidden", reason) }

// NotFound returns a failure with the status 404.
func NotFound(reason string) error { return NewFailure(http.StatusNotFound, "not_found", reason) }

// NotImplemented returns a failure with the status 501.
func NotImplemented(reason string) error {
	return NewFailure(http.StatusNotImplemented, "not_implemented", reason)
}

// Unavailable returns a failure with the status 503.
func Unavailable(reason string) *Failure {
	return NewFailure(http.StatusServiceUnavailable, "service_unavailable", reason)
}

// busyFor is when a client may try again that was refused because a limit of the node was reached, or the node stops.
const busyFor = 5 * time.Second

// Busy returns a failure with the status 503, for a request that may succeed later: a limit of the node was reached, or the
// node stops.
func Busy(reason string) *Failure {
	f := Unavailable(reason)
	f.RetryAfter = busyFor
	return f
}

func internalError(r *http.Request) *Failure {
	return NewFailure(http.StatusInternalServerError, "internal_server_error",
		"the request failed; the log of this node says why under request_id "+requestID(r.Context()))
}

// ErrClientGone is the error of an answer that the client does not receive.
var ErrClientGone = errors.New("the client does not take the answer")

// fail answers a request whose action returned an error. It cuts the connection if the answer has begun already, or
// the client is gone.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var refused *Failure
	log := zerolog.Ctx(r.Context())
	out, _ := w.(*answer)
	switch {
	case out != nil && out.status != 0:
		if errors.Is(err, ErrClientGone) || r.Context().Err() != nil {
			log.Debug().Msg("the client hung up")
		} else {
			log.Error().Str("reason", redact.Text(err.Error())).Msg("an answer could not be finished")
		}
		panic(http.ErrAbortHandler) // a truncated answer must not look whole
	case errors.As(err, &refused):
	case r.Context().Err() != nil:
		log.Debug().Msg("the client hung up")
		// net/http would answer with an empty 200. A client that has closed only its own side of the connection would
		// take that for the result.
		panic(http.ErrAbortHandler)
	default:
		log.Error().Str("reason", redact.Text(err.Error())).Msg("request failed")
		refused = unexpected(r, err)
	}
	// Browsers ask for a password where every request needs one.
	if refused.Status == http.StatusUnauthorized && config.RequireValidUser.Get(s.Settings.Current()) {
		w.Header().Set("WWW-Authenticate", `Basic realm="server"`)
	}
	for _, name := range []string{"ETag", "Content-Encoding"} { // of the answer that could not be made
		w.Header().Del(name)
	}
	respondError(w, r, refused)
}

func respondError(w http.ResponseWriter, r *http.Request, f *Failure) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
	}
	// Two strings can be encoded.
	_ = Respond(w, r, f.Status, struct {
		Error  string `json:"error"`
		Reason string `json:"reason"`
	}{f.Code, f.Reason})
}

// unexpected returns the failure for an error that is not about the request.
func unexpected(r *http.Request, err error) *Failure {
	var unknown *levels.UnknownLevelError // which ends the node
	switch {
	case errors.Is(err, fdbjobs.ErrClosed), errors.Is(err, kv.ErrClosed), errors.As(err, &unknown):
		return Busy(ErrGoingAway.Error()) // at another node, or at this one when it runs again
	case errors.Is(err, context.DeadlineExceeded):
		return Unavailable(fmt.Sprintf("the store did not answer within %s", StoreTimeout))
	}
	return internalError(r)
}
