package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"settee/pkg/config"
	"settee/pkg/redact"
)

// Settings is the configuration of a node, which may change while the node runs.
type Settings interface {
	Current() *config.Config
}

// sendTimeout is how long a client may take to receive an answer, or a piece of one that is sent in pieces.
const sendTimeout = time.Minute

// Action answers a request, or returns why it cannot. What the client sees of the error, Server.fail says.
type Action func(http.ResponseWriter, *http.Request) error

// Methods are the actions of a path by method. HEAD uses the action of GET.
type Methods map[string]Action

func (m Methods) find(method string) (Action, bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	act, found := m[method]
	return act, found
}

// allowed lists the methods as CouchDB does: GET,HEAD.
func (m Methods) allowed() string {
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

// Server does what all requests have in common: ids, logging, deadlines, limits, and the answers to errors.
type Server struct {
	Settings    Settings
	Connections *Connections
	Log         zerolog.Logger
	// observe, if it is not nil, is called with each request that has ended. The status is 0 if nothing was answered.
	Observe func(method string, status int, took time.Duration)
	// Tracer, if it is not nil, makes a span of each request.
	Tracer trace.Tracer
	// The zero value refuses requests of browsers that change something and come from another origin.
	origins http.CrossOriginProtection
}

// Endpoint serves one path.
func (s *Server) Endpoint(m Methods) http.Handler {
	return s.Action(func(w http.ResponseWriter, r *http.Request) error {
		if act, found := m.find(r.Method); found {
			return act(w, r)
		}
		return m.refuse(w)
	})
}

// refuse returns the failure of a request with another method.
func (m Methods) refuse(w http.ResponseWriter) error {
	w.Header().Set("Allow", m.allowed())
	return NewFailure(http.StatusMethodNotAllowed, "method_not_allowed", "Only "+m.allowed()+" allowed")
}

// Action serves all methods of a path with one action.
func (s *Server) Action(act Action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := act(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// forwarded are the headers in which a proxy says what the client has asked.
var forwarded = []struct {
	usual string
	name  config.Setting[string]
}{
	{"X-Forwarded-Host", config.ForwardedHost}, {"X-Forwarded-Proto", config.ForwardedProto}, {"X-Forwarded-Ssl", config.ForwardedSSL},
}

// renameForwarded gives the forwarded headers their usual names.
func (s *Server) renameForwarded(header http.Header) {
	cfg := s.Settings.Current()
	for _, f := range forwarded {
		if name := f.name.Get(cfg); !strings.EqualFold(name, f.usual) {
			header[f.usual] = header.Values(name)
		}
	}
}

// peerOf returns the address and port of the client of a request. The address is the one that a proxy states in
// [chttpd] peer_header, if that is set and the request has exactly one there.
func peerOf(r *http.Request, cfg *config.Config) string {
	name := config.PeerHeader.Get(cfg)
	if name == "" {
		return r.RemoteAddr
	}
	values := r.Header.Values(name)
	connection, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || len(values) != 1 {
		return r.RemoteAddr
	}
	stated, err := netip.ParseAddr(strings.TrimSpace(values[0]))
	if err != nil {
		return r.RemoteAddr
	}
	return netip.AddrPortFrom(stated, connection.Port()).String()
}

const methodOverride = "X-Http-Method-Override"

// methodOf returns the method of a request. As in CouchDB a POST can be one of another method, for clients that have only
// GET and POST. A HEAD that is sent so has a body in its answer.
func methodOf(r *http.Request) string {
	if r.Method != http.MethodPost {
		return r.Method
	}
	switch other := r.Header.Get(methodOverride); other {
	case http.MethodHead:
		return http.MethodGet
	case http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodTrace, http.MethodConnect, "COPY":
		return other
	}
	return r.Method
}

// Serve answers a request with an action, and logs the request. The action is not called if there are too many
// requests, or if the rules for pages of other origins refuse or answer the request.
//
// Thousands of feeds wait in their actions, so the stack below an action should be small: what Serve does before and after
// is in functions of their own.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, act Action) {
	x := s.receive(w, r)
	defer x.ended()
	defer x.recoverPanic()
	admitted := x.begin()
	defer x.end()
	defer x.leaveRest()
	if !admitted {
		respondError(x.out, x.served, Busy("too many requests are being answered: try again later"))
		return
	}
	if s.crossOrigin(x.out, x.served) {
		return
	}
	if err := act(x.out, x.served); err != nil {
		s.fail(x.out, x.served, err)
	}
}

// exchange is a request and its answer.
type exchange struct {
	server *Server
	log    *zerolog.Logger
	span   trace.Span
	out    *answer
	served *http.Request
	began  time.Time
	begins time.Duration // when the answer began, without the time in which the body came
	end    func()        // of its place among the requests
}

// receive prepares a request to be served.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{server: s, began: time.Now(), out: &answer{ResponseWriter: w}}
	id := requestIDOf(r)
	log := s.Log.Hook(logsRequest(id))
	ctx, span := s.startSpan(r)
	if own := span.SpanContext(); own.IsSampled() {
		log = log.With().Stringer("trace_id", own.TraceID()).Logger()
	}
	ctx = log.WithContext(ctx)
	x.log, x.span = zerolog.Ctx(ctx), span
	header := x.out.Header()
	header.Set("Cache-Control", "must-revalidate")
	header.Set("Server", "settee") // GET / says the version
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Couch-Request-ID", id)
	if !framesClearly(r) || s.Connections.Leaving() {
		CloseConnection(x.out)
	}
	// The writer of a test may have no deadlines.
	control := http.NewResponseController(w)
	var receiveBy time.Time // none: the connection is read only to notice that the client hangs up
	if r.Body != http.NoBody {
		receiveBy = time.Now().Add(receiveTimeout)
	}
	_ = control.SetReadDeadline(receiveBy)
	_ = control.SetWriteDeadline(time.Time{})

	x.served = r.WithContext(context.WithValue(ctx, requestIDKey{}, id))
	x.served.URL = Canonical(r.URL, config.DecodePlusToSpace.Get(s.Settings.Current()))
	x.served.Method = methodOf(r)
	x.served.RemoteAddr = peerOf(r, s.Settings.Current())
	s.renameForwarded(r.Header)
	describeSpan(span, x.served, id)
	return x
}

// begin gives the request a place, and reports whether there was one. end must be called in either case.
func (x *exchange) begin() (admitted bool) {
	x.served, admitted, x.end = x.server.Connections.begin(x.served)
	x.out.request = requestOf(x.served)
	x.out.begins = func() {
		x.out.passRest(x.served)
		took := time.Duration(0)
		if body, known := x.served.Body.(*receivedBody); known {
			took = body.took
		}
		x.begins = time.Since(x.began) - took
		x.out.Header().Set("X-CouchDB-Body-Time", strconv.FormatInt(took.Milliseconds(), 10))
	}
	return admitted
}

func (x *exchange) leaveRest() { x.out.leaveRest(x.served) }

// ended logs and counts the request.
func (x *exchange) ended() {
	defer endSpan(x.span, x.out)
	if x.server.Observe != nil {
		defer func() { x.server.Observe(x.served.Method, x.out.status, time.Since(x.began)) }()
	}
	logAccess(x.log, x.out, x.served, x.began, x.begins)
}

// framesClearly reports whether every reader of a connection finds the same end of a request. A request that has both
// a Content-Length and chunks may be two requests, of which a proxy in front of this node has seen one. Its
// connection has to end with the answer (RFC 9112, 6.1 and 11.2). net/http reads the chunks and hides the length, and
// in HTTP/1.0 it hides the chunks. So all requests with chunks, and all of HTTP/1.0, end their connections.
func framesClearly(r *http.Request) bool {
	return r.ProtoMajor != 1 || r.ProtoAtLeast(1, 1) && len(r.TransferEncoding) == 0
}

// recoverPanic answers a request whose action panicked. If the answer has begun, it cuts the connection.
func (x *exchange) recoverPanic() {
	reason := recover()
	if reason == nil {
		return
	}
	out, r := x.out, x.served
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

// maxLogged is the number of bytes that are logged, or repeated in an answer, of a text that a client chose.
const maxLogged = 500

// Cut returns the beginning of a text that a client chose.
func Cut(text string) string { return text[:min(len(text), maxLogged)] }

type requestIDKey struct{}

// logsRequest is the id of a request, which it adds to each line of a log. A context of zerolog would take half a kilobyte for
// each feed that waits.
type logsRequest string

// Run implements zerolog.Hook.
func (id logsRequest) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str("request_id", string(id))
}

var validRequestID = regexp.MustCompile(`^[0-9A-Za-z_-]{1,36}$`)

// requestIDOf returns the id that a client or a proxy gave a request, if it is one that CouchDB accepts. Otherwise it
// returns ten hexadecimal digits, as CouchDB's X-Couch-Request-ID has.
func requestIDOf(r *http.Request) string {
	if given := r.Header.Get("X-Couch-Request-ID"); validRequestID.MatchString(given) {
		return given
	}
	return NewUUID()[:10]
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
