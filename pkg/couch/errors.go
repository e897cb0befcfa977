package couch

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"settee/pkg/redact"
)

// What a caller decides on. An [*Error] or a [DocError] matches those that apply, through [errors.Is].
var (
	// ErrNotFound: 404, of a database, a document, a revision or a filter.
	ErrNotFound = errors.New("not found")
	// ErrNoDatabase: the 404 of a database that does not exist. It goes with ErrNotFound.
	ErrNoDatabase = errors.New("database does not exist")
	// ErrUnauthorized: 401, wrong credentials or none where they are needed.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrForbidden: 403, refused by a validation function, or an account that is locked.
	ErrForbidden = errors.New("forbidden")
	// ErrConflict: 409.
	ErrConflict = errors.New("conflict")
	// ErrExists: 412 file_exists, of a database that is there already.
	ErrExists = errors.New("database exists")
	// ErrMissingStub: 412 missing_stub, of a document that refers to an attachment which the database
	// does not have.
	ErrMissingStub = errors.New("attachment stub without its attachment")
	// ErrTooLarge: 413, a document or a whole request that the server does not take.
	ErrTooLarge = errors.New("too large for the server")
	// ErrTooManyRequests: 429, or a request that was not even sent because others had met that.
	ErrTooManyRequests = errors.New("too many requests")
	// ErrBackedOff goes with ErrTooManyRequests: the server has refused too much for too long, and is to be
	// left alone. [Error.RetryAfter] says for how long.
	ErrBackedOff = errors.New("backed off")
	// ErrSession goes with ErrUnauthorized and ErrForbidden: the answer is not about what was asked for, but
	// about the session. The login was refused, or the session had ended, and the request could not be made
	// again with a new one because its body is spent.
	ErrSession = errors.New("session at fault")

	// ErrNoBulkGet: the server has no _bulk_get; its documents are to be read one by one, with
	// [Database.OpenRevs].
	ErrNoBulkGet = errors.New("_bulk_get is not supported")
	// ErrStalled: nothing moved on the connection for longer than it may. The error says in which step.
	ErrStalled = errors.New("stalled")
	// ErrTooSlow goes with ErrStalled: an answer comes so slowly that it might never end.
	ErrTooSlow = fmt.Errorf("%w: too slow", ErrStalled)
	// ErrMalformed: the server's answer is not what CouchDB's protocol says.
	ErrMalformed = errors.New("malformed answer")
	// ErrLimit: something in the server's answer is larger than this client takes.
	ErrLimit = errors.New("larger than this client takes")
	// ErrDigest: the bytes of an attachment are not those that its document tells the digest of.
	ErrDigest = errors.New("its bytes do not match its digest")
	// ErrRedirect: the server sends the client elsewhere, out of the database's origin or in a circle.
	ErrRedirect = errors.New("redirect not followed")
)

// Error is a request that failed: refused by the server (Status is not 0), or broken in between.
type Error struct {
	Method string
	URL    string // without credentials and query
	// Status is 0 if there was no answer. Of an answer that began well and ended with a refusal, it is the
	// refusal's.
	Status int

	// Code and Reason are the members "error" and "reason" of CouchDB's answer. If the answer was not
	// CouchDB's, Code is empty and Reason has the first 200 bytes of its text, without markup.
	Code, Reason string

	// RetryAfter is how long the server wants to be left alone, from its Retry-After header. With
	// ErrBackedOff it is never 0.
	RetryAfter time.Duration

	// Err is what went wrong, if the server's answer did not say it.
	Err error

	database   bool // the request was for the database itself
	challenged bool // the answer asks for basic authentication, or the like
	session    bool // it is ErrSession
}

// Error says which request failed and how: "GET http://host/db: 404 not_found: missing".
func (e *Error) Error() string { return e.Method + " " + e.URL + ": " + e.Cause() }

// Cause says how the request failed, without which it was: "404 not_found: missing".
func (e *Error) Cause() string {
	words := []string{e.Code, e.Reason}
	if e.Err != nil {
		words = append(words, inWords(e.Err))
	}
	what := strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ": ")
	if e.Status >= 300 {
		what = strconv.Itoa(e.Status) + " " + cmp.Or(what, http.StatusText(e.Status))
	}
	return what
}

// inWords is an error's text. What Go says of a connection that ended is known to programmers only.
func inWords(err error) string {
	text := err.Error()
	switch {
	case strings.HasSuffix(text, io.ErrUnexpectedEOF.Error()):
		return text + " (the server ended it early)"
	case text == io.EOF.Error():
		return text + " (the server closed the connection without an answer)"
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the sentinel of this error's status and code.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrNoDatabase:
		return e.Status == http.StatusNotFound && (e.database || isNoDatabase(e.Reason))
	case ErrUnauthorized:
		return e.Status == http.StatusUnauthorized
	case ErrForbidden:
		return e.Status == http.StatusForbidden
	case ErrConflict:
		return e.Status == http.StatusConflict
	case ErrExists:
		return e.Status == http.StatusPreconditionFailed && e.Code == "file_exists"
	case ErrMissingStub:
		return e.Status == http.StatusPreconditionFailed && e.Code == "missing_stub"
	case ErrTooLarge:
		return e.Status == http.StatusRequestEntityTooLarge
	case ErrTooManyRequests:
		return e.Status == http.StatusTooManyRequests || errors.Is(e.Err, ErrBackedOff)
	case ErrSession:
		return e.session
	}
	return false
}

// isNoDatabase knows the reasons of CouchDB 2 and 3, and of CouchDB 1 and PouchDB Server.
func isNoDatabase(reason string) bool {
	return strings.HasPrefix(reason, "Database does not exist") || reason == "no_db_file"
}

// DocError is what a server says of one document of a request that, as a whole, went well.
type DocError struct {
	ID  string
	Rev string // may be empty: not every server repeats it

	// Code and Reason are CouchDB's "error" and "reason": "not_found" and "missing", "forbidden" and
	// what the validation function said.
	Code, Reason string
}

// Error names the document and gives the server's words.
func (e *DocError) Error() string {
	name := strconv.Quote(e.ID)
	if e.Rev != "" {
		name += " " + e.Rev
	}
	return fmt.Sprintf("document %s: %s: %s", name, e.Code, e.Reason)
}

// Is reports whether target is the sentinel of this error's code.
func (e *DocError) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Code == "not_found"
	case ErrUnauthorized:
		return e.Code == "unauthorized"
	case ErrForbidden:
		return e.Code == "forbidden"
	case ErrConflict:
		return e.Code == "conflict"
	case ErrMissingStub:
		return e.Code == "missing_stub"
	case ErrTooLarge:
		return e.Code == "document_too_large" || e.Code == "attachment_too_large" || e.Code == "too_large"
	}
	return false
}

// say fills e with the words of an answer whose status is not a success.
func (e *Error) say(header http.Header, body []byte, hidden redact.Set) {
	var said struct {
		Error  string `json:"error"`
		Reason any    `json:"reason"` // null and objects have been seen
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Error == "" {
		e.Reason = excerpt(hidden.Text(plainText(header.Get("Content-Type"), body)))
	} else {
		e.Code = excerpt(hidden.Text(said.Error))
		if said.Reason != nil {
			e.Reason = excerpt(hidden.Text(fmt.Sprint(said.Reason)))
		}
	}
	e.RetryAfter = retryAfter(header.Get("Retry-After"), time.Now())
	e.challenged = header.Get("WWW-Authenticate") != ""
}

// gaveUp is an error that a server met in the middle of a successful answer. The status is that of
// the answer which it would have given before, 0 if it does not say.
type gaveUp struct {
	status       int
	code, reason string
}

// isRefusal reports whether what was asked for is at fault, so that asking again is of no use.
func (g *gaveUp) isRefusal() bool { return g.status >= 400 && g.status < 500 }

var errGaveUp = errors.New("the server gave up in the middle of its answer")

func (g *gaveUp) Error() string        { return errGaveUp.Error() }
func (g *gaveUp) Is(target error) bool { return target == errGaveUp }

// words is a server's error or reason, whatever kind of JSON value it took for it.
func words(raw []byte) string {
	if text, err := unquote(raw); err == nil {
		return excerpt(text)
	}
	return excerpt(string(raw))
}

// docError reads an object with error and reason, which is known to be JSON. Without a member "error"
// it is not one.
func docError(raw []byte) (*DocError, bool) {
	var e DocError
	if !isObject(raw) {
		return nil, false
	}
	members(raw, func(m member) bool {
		switch value := raw[m.value:m.end]; string(m.key) {
		case "id":
			e.ID, _ = unquote(value)
		case "rev":
			e.Rev = words(value)
		case "error":
			e.Code = words(value)
		case "reason":
			e.Reason = words(value)
		}
		return true
	})
	return &e, e.Code != ""
}

// retryAfter reads a Retry-After header: a number of seconds or a date (RFC 9110, section 10.2.3).
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// secretsOf are what must not appear in an error: an endpoint, or a proxy, may well quote the request
// that it refuses.
func secretsOf(cfg Config, proxy *url.URL) redact.Set {
	set := cfg.Secrets
	if cfg.Username != "" || cfg.Password != "" {
		set = set.WithBasic(cfg.Username, cfg.Password)
	}
	if proxy != nil && proxy.User != nil {
		password, _ := proxy.User.Password()
		set = set.WithBasic(proxy.User.Username(), password)
	}
	for name, values := range cfg.Header {
		for _, value := range values {
			set = set.WithHeader(name, value)
		}
	}
	return set
}

// clean returns err without the URL that net/http puts into its errors, and without secrets.
func clean(hidden redact.Set, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return hidden.Error(err)
}

// redacted is what a server says of a document, without secrets.
func (e *DocError) redacted(hidden redact.Set) *DocError {
	return &DocError{ID: e.ID, Rev: hidden.Text(e.Rev), Code: hidden.Text(e.Code), Reason: hidden.Text(e.Reason)}
}
