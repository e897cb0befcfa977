package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/redact"
)

// respond sends a value as JSON.
func respond(w http.ResponseWriter, r *http.Request, status int, value any) error {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("encoding an answer: %w", err)
	}
	send(w, r, status, body.Bytes())
	return nil
}

// send sends JSON. As CouchDB's bodies do, this one ends in a line feed.
func send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTimeout)) // see ServeHTTP
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	if _, err := w.Write(body); err != nil { //nolint:gosec // no browser takes JSON for a page, with nosniff
		zerolog.Ctx(r.Context()).Debug().Err(err).Msg("the client did not take the answer")
	}
}

// failure is what a request is refused with. It holds nothing that a client may not
// see.
type failure struct {
	status int
	code   string // CouchDB's word for it
	reason string
}

// Error returns the reason.
func (f *failure) Error() string { return f.reason }

func badRequest(reason string) error {
	return &failure{http.StatusBadRequest, "bad_request", reason}
}

func notFound(reason string) error {
	return &failure{http.StatusNotFound, "not_found", reason}
}

func unavailable(reason string) *failure {
	return &failure{http.StatusServiceUnavailable, "service_unavailable", reason}
}

func internalError(r *http.Request) *failure {
	return &failure{http.StatusInternalServerError, "internal_server_error",
		"the request failed; the log of this node says why under request_id " + requestID(r.Context())}
}

func respondError(w http.ResponseWriter, r *http.Request, f *failure) {
	// Two strings can be encoded.
	_ = respond(w, r, f.status, struct {
		Error  string `json:"error"`
		Reason string `json:"reason"`
	}{f.code, f.reason})
}

// fail answers a request that an action could not answer, or cuts the connection if the
// answer has begun already, or the client is gone.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var refused *failure
	log := zerolog.Ctx(r.Context())
	out, _ := w.(*answer)
	switch {
	case out != nil && out.status != 0:
		if errors.Is(err, errClientGone) || r.Context().Err() != nil {
			log.Debug().Msg("the client hung up")
		} else {
			log.Error().Str("reason", redact.Text(err.Error())).Msg("an answer could not be finished")
		}
		panic(http.ErrAbortHandler) // what was sent is not whole, and shall not look so
	case errors.As(err, &refused):
	case r.Context().Err() != nil:
		log.Debug().Msg("the client hung up")
		// net/http would answer with an empty 200. A client that has closed no more than its
		// own side of the connection would take that for what it asked for.
		panic(http.ErrAbortHandler)
	default:
		log.Error().Str("reason", redact.Text(err.Error())).Msg("request failed")
		refused = storeFailure(r, err)
	}
	h.challenge(w, refused)
	for _, name := range []string{"ETag", "Content-Encoding"} { // of the answer that could not be made
		w.Header().Del(name)
	}
	respondError(w, r, refused)
}

// storeFailure is what a client sees of an error of the store.
func storeFailure(r *http.Request, err error) *failure {
	switch {
	case errors.Is(err, fdbjobs.ErrClosed), errors.Is(err, kv.ErrClosed):
		return unavailable(errGoingAway.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(fmt.Sprintf("the store did not answer within %s", storeTimeout))
	}
	return internalError(r)
}
