package couch

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"settee/pkg/jsontext"
	"settee/pkg/outbound"
	"settee/pkg/redact"
)

// These are the sentinels for [errors.Is]. An [*Error] or a [DocError] matches those that apply.
var (
	// ErrNotFound: 404, of a database, a document, a revision or a filter.
	ErrNotFound = errors.New("not found")
	// ErrNoDatabase: 404 of a missing database. It implies ErrNotFound.
	ErrNoDatabase = errors.New("database does not exist")
	// ErrUnauthorized: 401, wrong or missing credentials.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrForbidden: 403, refused by a validation function or for a locked account.
	ErrForbidden = errors.New("forbidden")
	// ErrConflict: 409.
	ErrConflict = errors.New("conflict")
	// ErrExists: 412 file_exists, the database exists.
	ErrExists = errors.New("database exists")
	// ErrMissingStub: 412 missing_stub, the document has a stub of an attachment that the database does not have.
	ErrMissingStub = errors.New("attachment stub without its attachment")
	// ErrTooLarge: 413, a document or request that is too large for the server.
	ErrTooLarge = errors.New("too large for the server")
	// ErrTooManyRequests: 429, or a request that was not sent because of earlier 429s.
	ErrTooManyRequests = errors.New("too many requests")
	// ErrBackedOff implies ErrTooManyRequests: the server has refused requests for so long that it should be left
	// alone. [Error.RetryAfter] says for how long.
	ErrBackedOff = errors.New("backed off")
	// ErrSession goes with ErrUnauthorized or ErrForbidden: the session failed, not the request. The login was refused,
	// or the session had expired and the request could not be repeated because its body was consumed.
	ErrSession = errors.New("session at fault")

	// ErrNoBulkGet: the server has no _bulk_get. Use [Database.OpenRevs].
	ErrNoBulkGet = errors.New("_bulk_get is not supported")
	// ErrNoUpdates: the server has no feed of the updates of its databases, or not for this user. The error says which.
	ErrNoUpdates = errors.New("no feed of database updates")
	// ErrUnknownSince: the server does not know the sequence with which a feed was to begin.
	ErrUnknownSince = errors.New("unknown sequence")
	// ErrStalled: no bytes were transferred for too long. The error names the step.
	ErrStalled = errors.New("stalled")
	// ErrTooSlow implies ErrStalled: an answer comes so slowly that it might never end.
	ErrTooSlow = fmt.Errorf("%w: too slow", ErrStalled)
	// ErrMalformed: the answer does not follow CouchDB's protocol.
	ErrMalformed = errors.New("malformed answer")
	// ErrNotDatabase implies ErrMalformed: a server answers at the database's URL, with JSON that does not describe a
	// database. The URL may be the server's own.
	ErrNotDatabase = fmt.Errorf("%w: it does not describe a database", ErrMalformed)
	// ErrLimit: something in the answer is larger than this client accepts.
	ErrLimit = errors.New("larger than this client takes")
	// ErrDigest: the bytes of an attachment do not match its digest.
	ErrDigest = errors.New("its bytes do not match its digest")
	// ErrRedirect: the server redirects outside of the database's origin, or in a circle.
	ErrRedirect = errors.New("redirect not followed")
)

// Error is the error of a request that the server refused (Status is not 0) or that failed on the way.
type Error struct {
	Method string
	URL    string // without credentials and query
	// Status is 0 if there was no answer. For an answer that began with success and ended with an error, it is the
	// status of that error.
	Status int

	// Code and Reason are the members "error" and "reason" of CouchDB's answer, each at most 200 bytes. They are empty for
	// any other answer: a user who chooses the URL must not be able to read what another service says.
	Code, Reason string

	// RetryAfter is the value of the Retry-After header. With ErrBackedOff it is never 0.
	RetryAfter time.Duration

	// Err is the cause, unless it is the server's answer.
	Err error

	as         string // for a 403: as which user the request was made, such as "without a user"; "" means not known
	database   bool   // the request was for the database itself
	challenged bool   // the answer has a WWW-Authenticate header
	session    bool   // it is ErrSession
	proxy      string // the URL of the proxy that the request goes through, without credentials; "" for none
}

// Error names the request and the cause: "GET http://host/db: 404 not_found: missing". It cuts a long URL.
func (e *Error) Error() string { return e.Method + " " + shortened(e.URL) + ": " + e.Cause() }

// LongURL reports whether the server, or a proxy, may have refused the request for the length of its URL. Some of them close the
// connection.
func (e *Error) LongURL() bool {
	refused := e.Status >= 400 && e.Status < 500 && !e.Temporary()
	return len(e.URL) > maxPath && (refused || e.Status == 0 && e.Temporary())
}

// Cause returns the cause without the request: "404 not_found: missing".
func (e *Error) Cause() string {
	words := []string{e.Code, e.Reason}
	if e.Err != nil {
		words = append(words, inWords(e.Err))
	}
	what := strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ": ")
	if e.Status >= 300 {
		what = strconv.Itoa(e.Status) + " " + cmp.Or(what, http.StatusText(e.Status))
	}
	if e.as != "" {
		what += " (" + e.as + ")"
	}
	if e.LongURL() {
		what += " (the URL may be too long)"
	}
	return what
}

// inWords returns an error's text, with plain words for Go's errors of closed connections, and with the setting for
// certificates of an unknown authority.
func inWords(err error) string {
	text := err.Error()
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return text + " (if you trust it, add its authority's certificate to the file of [replicator] ssl_trusted_certificates_file)"
	}
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

// Is reports whether target is a sentinel that applies to the status and code.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrNoDatabase:
		return e.Status == http.StatusNotFound && (e.database || isNoDatabase(e.Reason))
	case ErrUnauthorized:
		return e.Status == http.StatusUnauthorized || errors.Is(e.Err, ErrTokenRefused)
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

// Temporary reports whether the same request may succeed later. It is true for 408, 429, 5xx except 501, and network
// failures.
func (e *Error) Temporary() bool {
	token, ofToken := errors.AsType[*tokenError](e.Err)
	switch {
	case ofToken:
		return token.temporary()
	case e.Status == http.StatusRequestTimeout, e.Status == http.StatusTooManyRequests:
		return true
	case e.Status == http.StatusNotImplemented:
		return false
	case e.Status >= 500:
		return true
	case e.Status >= 300, e.Err == nil:
		return false
	}
	for _, final := range []error{ErrRedirect, ErrLimit, ErrMalformed, ErrTooSlow, ErrBackedOff} {
		if errors.Is(e.Err, final) {
			return false
		}
	}
	return !outbound.Final(e.Err)
}

// isNoDatabase knows the reasons of CouchDB 2 and 3, and of CouchDB 1 and PouchDB Server.
func isNoDatabase(reason string) bool {
	return strings.HasPrefix(reason, "Database does not exist") || reason == "no_db_file"
}

// DocError is the server's refusal of one document, in an answer to a request that otherwise succeeded.
type DocError struct {
	ID  string
	Rev string // empty if the server does not send it

	// Code and Reason are CouchDB's "error" and "reason": "not_found" and "missing", or "forbidden" and the message of
	// a validation function.
	Code, Reason string
}

// Error names the document, the code and the reason.
func (e *DocError) Error() string {
	name := strconv.Quote(shortened(e.ID))
	if e.Rev != "" {
		name += " " + e.Rev
	}
	return fmt.Sprintf("document %s: %s: %s", name, e.Code, e.Reason)
}

// Is reports whether target is a sentinel that applies to the code.
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

// say fills in e from an answer whose status is an error.
func (e *Error) say(header http.Header, body []byte, hidden redact.Set) {
	var answer struct {
		Error  string          `json:"error"`
		Reason json.RawMessage `json:"reason"` // servers have sent null and objects
	}
	if err := json.Unmarshal(body, &answer); err == nil && answer.Error != "" && answer.Reason != nil {
		e.Code = excerpt(said(hidden, answer.Error))
		var reason any
		if json.Unmarshal(answer.Reason, &reason) == nil && reason != nil {
			e.Reason = excerpt(said(hidden, fmt.Sprint(reason)))
		}
	}
	e.RetryAfter = retryAfter(header.Get("Retry-After"), time.Now())
	e.challenged = header.Get("WWW-Authenticate") != ""
}

// gaveUp is a server's error in the middle of a successful answer. status is the status for that error, or 0 if
// unknown.
type gaveUp struct {
	status       int
	code, reason string
}

// isRefusal reports whether the request is at fault, so that repeating it does not help.
func (g *gaveUp) isRefusal() bool { return g.status >= 400 && g.status < 500 }

var errGaveUp = errors.New("the server gave up in the middle of its answer")

func (g *gaveUp) Error() string        { return errGaveUp.Error() }
func (g *gaveUp) Is(target error) bool { return target == errGaveUp }

// words returns a server's error or reason, a JSON value of any kind, as text.
func words(raw []byte) string {
	if text, err := unquote(raw); err == nil {
		return excerpt(text)
	}
	return excerpt(string(raw))
}

// docError reads a valid JSON object with error and reason. It returns false if there is no "error".
func docError(raw []byte) (*DocError, bool) {
	var e DocError
	if !isObject(raw) {
		return nil, false
	}
	for m := range jsontext.Members(raw) {
		switch value := raw[m.Value:m.End]; string(m.Key) {
		case "id":
			e.ID, _ = unquote(value)
		case "rev":
			e.Rev = words(value)
		case "error":
			e.Code = words(value)
		case "reason":
			e.Reason = words(value)
		}
	}
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

// secretsOf returns what must not appear in errors. A server or a proxy may quote the request that it refuses.
func secretsOf(cfg Config, proxy *url.URL) redact.Set {
	set := cfg.Secrets.Beside(cfg.URL, cfg.Username)
	if cfg.Username != "" || cfg.Password != "" {
		set = set.WithBasic(cfg.Username, cfg.Password)
	}
	if proxy != nil && proxy.User != nil {
		password, _ := proxy.User.Password()
		set = set.WithBasic(proxy.User.Username(), password)
	}
	if t := cfg.Token; t != nil {
		set = set.WithBasic(url.QueryEscape(t.ClientID), url.QueryEscape(t.ClientSecret)).With(t.ClientSecret)
	}
	for name, values := range cfg.Header {
		for _, value := range values {
			set = set.WithHeader(name, value)
		}
	}
	return set
}

// clean returns err without the URL that net/http puts into its errors, without what it quotes of an answer that is not
// HTTP, and without secrets.
func clean(hidden redact.Set, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return masked(hidden, unquoted(err))
}

// quotes matches the beginning of what net/http and its packages say of an answer that is not HTTP, up to what they quote.
var quotes = regexp.MustCompile(`^([^"]*(?:malformed|HTTP|ransfer encoding|Content-Length|railer|header|[Dd]ebug)[^"]*?)[ :=]*"`)

// unquoted returns an error of net/http without what it quotes of an answer. Any service may have sent that, such as one
// that does not speak HTTP. Errors of connections and certificates stay as they are.
func unquoted(err error) error {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return err
	}
	if m := quotes.FindStringSubmatch(err.Error()); m != nil {
		return notHTTP{redact.Replaced(err, m[1])}
	}
	return err
}

// errNotHTTP goes with an answer that is not HTTP.
var errNotHTTP = errors.New("not HTTP")

type notHTTP struct{ error }

func (e notHTTP) Unwrap() error        { return e.error }
func (e notHTTP) Is(target error) bool { return target == errNotHTTP }

// masked returns err without secrets.
func masked(hidden redact.Set, err error) error {
	text := err.Error()
	if quoted, ok := errors.AsType[quote](err); ok {
		text = strings.ReplaceAll(text, string(quoted), said(hidden, string(quoted)))
	}
	return redact.Replaced(err, hidden.Text(text))
}

// said returns a server's text without secrets. What servers say in the same words whatever the secrets are stays:
// without it, a secret that is one of these words would be known.
func said(hidden redact.Set, text string) string {
	if slices.Contains(usual, text) {
		return text
	}
	return hidden.Said(text)
}

// usual are the codes and reasons that CouchDB and PouchDB Server send for requests of replications, as they are in their
// sources, except those that quote the request.
var usual = []string{
	"attachment_too_large", "bad_content_type", "bad_request", "badarg", "conflict", "db_not_found", "doc_validation",
	"document_too_large", "error", "expectation_failed", "file_exists", "forbidden", "gone", "illegal_database_name",
	"illegal_docid", "internal_server_error", "invalid_replication", "method_not_allowed", "missing_stub",
	"not_acceptable", "not_found", "not_implemented", "query_parse_error", "service unavailable", "service_unavailable",
	"timeout", "too_large", "unauthorized", "unknown_error", "write_quorum_not_met",

	"deleted", "missing", "missing_rev", "no_db_file", "invalid UTF-8 JSON",
	"Account is temporarily locked due to multiple authentication failures",
	"Authentication required.",
	"Database does not exist.", "Database not found",
	"Document update conflict", "Document update conflict.",
	"Name or password is incorrect", "Name or password is incorrect.",
	"The database could not be created, the file already exists.",
	"The request could not be processed in a reasonable amount of time.",
	"You are not a db or server admin.",
	"You are not a server admin.",
	"You are not allowed to access this db.",
	"You are not authorized to access this db.",
	"the request entity is too large",
}

// redacted returns e without secrets.
func (e *DocError) redacted(hidden redact.Set) *DocError {
	return &DocError{ID: e.ID, Rev: hidden.Text(e.Rev), Code: said(hidden, e.Code), Reason: said(hidden, e.Reason)}
}
