package frontend

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"settee/pkg/redact"
)

const (
	// receiveTimeout is how long a client may take to send a request's body, and
	// sendTimeout how long it may take to receive an answer.
	receiveTimeout = time.Minute
	sendTimeout    = time.Minute
	// maxLogged is how many bytes are logged of what a client chooses.
	maxLogged = 500
)

// An action answers a request, or returns why it cannot: see fail.
type action func(http.ResponseWriter, *http.Request) error

// methods are the methods of a path. HEAD is GET's.
type methods map[string]action

func (m methods) find(method string) (action, bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	act, found := m[method]
	return act, found
}

// allowed lists the methods as CouchDB does: GET,HEAD.
func (m methods) allowed() string {
	var names []string
	for name := range m {
		names = append(names, name)
		if name == http.MethodGet {
			names = append(names, http.MethodHead)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// endpoint serves one path.
func (h *Handler) endpoint(m methods) http.Handler {
	return h.action(func(w http.ResponseWriter, r *http.Request) error {
		act, found := m.find(r.Method)
		if !found {
			w.Header().Set("Allow", m.allowed())
			return &failure{http.StatusMethodNotAllowed, "method_not_allowed", "Only " + m.allowed() + " allowed"}
		}
		return act(w, r)
	})
}

func (h *Handler) action(act action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := act(w, r); err != nil {
			h.fail(w, r, err)
		}
	})
}

// ServeHTTP answers a request, and logs it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began, id := time.Now(), newRequestID()
	log := h.log.With().Str("request_id", id).Logger()
	out := &answer{ResponseWriter: w}
	header := out.Header()
	header.Set("Cache-Control", "must-revalidate")
	header.Set("Server", "settee") // the version is for whoever asks at /
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Couch-Request-ID", id)
	if !framesClearly(r) {
		header.Set("Connection", "close")
	}
	// A writer without deadlines is one of a test.
	control := http.NewResponseController(w)
	var receiveBy time.Time // none: the connection is read only to notice that the client hangs up
	if r.Body != http.NoBody {
		receiveBy = time.Now().Add(receiveTimeout)
	}
	_ = control.SetReadDeadline(receiveBy)
	_ = control.SetWriteDeadline(time.Time{})

	served := r.WithContext(context.WithValue(log.WithContext(r.Context()), requestIDKey{}, id))
	served.URL = canonical(r.URL)
	if h.observe != nil {
		defer func() { h.observe(r.Method, out.status, time.Since(began)) }()
	}
	defer logAccess(&log, out, served, began)
	defer recoverPanic(out, served)
	served, ok, end := h.connections.begin(served)
	defer end()
	defer out.leaveRest(served)
	out.begins = func() { out.passRest(served) }
	if !ok {
		respondError(out, served, unavailable("too many requests are being answered: try again later"))
		return
	}
	if h.crossOrigin(out, served) {
		return
	}
	known, err := h.known(out, served)
	if err != nil {
		h.fail(out, known, err)
		return
	}
	h.router.ServeHTTP(out, known)
}

// framesClearly reports whether every reader of a connection finds the same end of a request. One
// that has both a Content-Length and chunks may be made of two requests, of which something in
// front of this node has seen one: its connection has to end with the answer (RFC 9112, 6.1 and
// 11.2). net/http reads the chunks, and hides the length; of HTTP/1.0 it hides the chunks. So it is
// all requests with chunks, and all of HTTP/1.0, that end their connections.
func framesClearly(r *http.Request) bool {
	return r.ProtoMajor != 1 || r.ProtoAtLeast(1, 1) && len(r.TransferEncoding) == 0
}

// recoverPanic answers a request whose action panicked. What was sent already cannot
// be taken back: the connection is cut then.
func recoverPanic(out *answer, r *http.Request) {
	reason := recover()
	if reason == nil {
		return
	}
	if err, ok := reason.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(reason)
	}
	zerolog.Ctx(r.Context()).Error().
		Str("panic", redact.Text(fmt.Sprint(reason))).
		Str("stack", string(debug.Stack())).
		Msg("request panicked")
	if out.status != 0 {
		panic(http.ErrAbortHandler)
	}
	respondError(out, r, internalError(r))
}

// logAccess writes the line of a request that was answered.
func logAccess(log *zerolog.Logger, out *answer, r *http.Request, began time.Time) {
	level := zerolog.InfoLevel
	if r.URL.Path == "/_up" || strings.HasSuffix(r.URL.Path, "/_prometheus") { // asked for all the time
		level = zerolog.DebugLevel
	}
	log.WithLevel(level).
		Str("remote", r.RemoteAddr).
		Str("method", cut(r.Method)).
		Str("path", cut(redact.Text(r.URL.Path))).
		Str("user", cut(out.user)).
		Int("status", out.status).
		Int64("bytes", out.bytes).
		Dur("duration", time.Since(began)).
		Msg("request")
}

func cut(text string) string { return text[:min(len(text), maxLogged)] }

// canonical returns u with one slash where several stand together, none at the end
// of the path, and each segment percent-encoded in one way: CouchDB does not tell
// these apart.
func canonical(u *url.URL) *url.URL {
	// Not EscapedPath: for a path with a raw bar, as job ids have one, it forgets
	// which slashes were encoded.
	raw := cmp.Or(u.RawPath, u.EscapedPath())
	segments := strings.FieldsFunc(raw, func(c rune) bool { return c == '/' })
	plain := make([]string, len(segments))
	for i, segment := range segments {
		decoded, err := url.PathUnescape(segment)
		if err != nil { // then u could not have been parsed
			decoded = segment
		}
		plain[i], segments[i] = decoded, url.PathEscape(decoded)
	}
	out := *u
	out.Path, out.RawPath = "/"+strings.Join(plain, "/"), "/"+strings.Join(segments, "/")
	return &out
}

type requestIDKey struct{}

// newRequestID returns ten hex digits, as CouchDB's X-Couch-Request-ID has.
func newRequestID() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// answer notes what was answered, for the log.
type answer struct {
	http.ResponseWriter
	status int // 0: nothing was sent, as to a client that hung up
	bytes  int64
	user   string // who made the request, if that is known
	begins func() // is called once, before the answer begins
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) begin(status int) {
	if a.status != 0 {
		return
	}
	a.status = status
	if a.begins != nil {
		a.begins()
	}
}

func (a *answer) WriteHeader(status int) {
	a.begin(status)
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(text []byte) (int, error) {
	a.begin(http.StatusOK)
	n, err := a.ResponseWriter.Write(text)
	a.bytes += int64(n)
	return n, err
}
