package couch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"settee/pkg/outbound"
	"settee/pkg/redact"
	"settee/pkg/serverbudget"
)

const (
	// expectOver is the body size in bytes above which a request has Expect: 100-continue. A server that refuses a
	// large body often closes the connection, and its answer may be lost.
	expectOver = 1 << 20
	// drainWait and drainSize bound the reading of the rest of a body, which allows its connection to be reused.
	drainWait = time.Second
	drainSize = 64 << 10

	jsonType  = "application/json"
	mixedType = "multipart/mixed"

	// identityEncoding is that of an answer that is not compressed.
	identityEncoding = "identity"
)

// request is one request to the database.
type request struct {
	method string
	path   string // below the database, escaped; "" for the database itself
	server bool   // path is below the server instead
	query  url.Values
	accept string // default: JSON

	content string      // Content-Type of the body
	body    requestBody // nil for none

	// idle is how long the network may be silent before and within the answer. Default: AnswerTimeout and
	// ConnectionTimeout.
	idle time.Duration
	// encoding is the only one that the answer may have, and it is left as it comes: for attachments, whose bytes must not
	// change, and for feeds, whose rows would wait in a compressor's buffer. Empty: the transport decides.
	encoding string
	gzipped  bool           // the body is compressed
	once     bool           // must not be repeated after it was sent, except if refused unread
	unasked  bool           // a CouchDB that gets a large body is not asked whether it accepts it
	noSlot   bool           // does not count towards MaxConnections
	feed     bool           // its answer may have no end, so its span ends when the answer begins
	flow     *outbound.Flow // nil if nothing is known of the answer's length

	tries   int  // number of times tried
	sent    int  // number of times sent; a try may send it several times
	renewed bool // it has renewed its session
}

// requestBody creates a request's body for each try.
type requestBody interface {
	// open returns the body and its length in bytes, or -1.
	open() (io.Reader, int64)
	// again reports whether open can be called once more.
	again() bool
	// done is called at the end of the exchange. After it returns the reader is not used.
	done()
}

// again reports whether the request can be sent again.
func (r *request) again() bool { return r.body == nil || r.body.again() }

// response is the successful answer to a request. It must be closed.
type response struct {
	d      *Database
	r      *request
	url    string
	status int
	header http.Header
	moved  string // the URL to which the database has moved; "" if it has not

	body    io.ReadCloser
	hidden  func() redact.Set // secrets to keep out of its errors
	outer   context.Context   // the caller's
	end     context.CancelFunc
	dog     *watchdog
	span    trace.Span
	budget  *serverbudget.Exchange
	stream  *serverbudget.Stream
	release func()
}

// Read reads the body. It returns the errors of broken; fail adds the request.
func (p *response) Read(b []byte) (int, error) {
	most, err := p.stream.Take(len(b))
	if err != nil {
		return 0, err
	}
	if err := p.dog.receiving(); err != nil {
		return 0, err
	}
	n, err := p.body.Read(b[:most])
	p.dog.received(n)
	p.stream.Moved(n)
	if err != nil && err != io.EOF {
		err = broken(p.outer, p.dog, p.hidden(), err)
		failSpan(p.span, err, p.hidden())
	}
	return n, err
}

// fail returns the request's error for err, which ended a successful answer.
func (p *response) fail(err error) error {
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	e = p.d.errorOf(p.r, p.url)
	e.Status, e.Err = p.status, masked(p.hidden(), err)
	if last, ok := errors.AsType[*gaveUp](err); ok {
		e.Code, e.Reason = said(p.hidden(), last.code), said(p.hidden(), last.reason)
		if last.isRefusal() {
			e.Status = last.status
		}
	}
	return e
}

// Close abandons the rest of the answer.
func (p *response) Close() error {
	p.expect(0)
	p.end()
	p.dog.stop()
	err := p.body.Close()
	p.stream.Done()
	p.budget.Done()
	p.span.End()
	p.release()
	return err
}

// expect says how many bytes of the answer will at least be read.
func (p *response) expect(bytes int64) {
	if p.r.flow != nil {
		p.r.flow.Expect(bytes)
	}
}

// settle forgets what is of use only until the answer has begun. Thousands of feeds wait for what comes next.
func (p *response) settle() { p.header, p.r.query, p.r.body = nil, nil, nil }

// finish closes an answer that has been read. If only its end is missing, finish reads it, so that the connection can
// be reused.
func (p *response) finish() {
	giveUp := time.AfterFunc(drainWait, p.end)
	defer giveUp.Stop()
	_, _ = io.CopyN(io.Discard, p, drainSize)
	p.Close()
}

// broken returns the reason why an exchange ended: its context, a stall, or the error of net/http.
func broken(ctx context.Context, dog *watchdog, hidden redact.Set, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if stalled := dog.why(); stalled != nil {
		return stalled
	}
	err = clean(hidden, err)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		// A timeout of the transport came first.
		step := dog.where()
		return &stallError{step, fmt.Errorf("%w %s: %w", ErrStalled, step, err)}
	}
	return err
}

// errorOf returns an Error that names the request.
func (d *Database) errorOf(r *request, where string) *Error {
	return &Error{Method: r.method, URL: where, database: r.path == "" && !r.server, proxy: d.proxyName}
}

// identity returns as which user requests are made, such as "without a user". It is empty if only an Authorization header
// says so. A user name that is a secret is masked.
func (d *Database) identity(hidden redact.Set) string {
	switch user := d.cfg.Username; {
	case d.cfg.Token != nil:
		return "with an access token"
	case d.cfg.Header.Get("Authorization") != "":
		return ""
	case user == "" && d.cfg.Password == "":
		return "without a user"
	case said(hidden, user) != user:
		return "as user " + said(hidden, user)
	default:
		return "as user " + strconv.Quote(excerpt(user))
	}
}

// shown returns a URL as shown in errors.
func shown(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// fetch makes a request and passes its whole answer, of at most limit bytes, to parse (if not nil).
func (d *Database) fetch(ctx context.Context, r *request, limit int, parse func([]byte) error) error {
	return d.call(ctx, r, func(p *response) error {
		body, err := io.ReadAll(io.LimitReader(p, int64(limit)+1))
		switch {
		case err != nil:
			return err
		case len(body) > limit:
			return fmt.Errorf("%w: an answer of more than %d bytes", ErrLimit, limit)
		case parse == nil:
			return nil
		}
		if err = parse(body); err != nil && endsEarly(body) {
			return fmt.Errorf("the answer: %w", io.ErrUnexpectedEOF)
		}
		return err
	})
}

// endsEarly reports whether body ends before its JSON value does. CouchDB ends an answer like that, properly for HTTP, when
// something fails in the middle.
func endsEarly(body []byte) bool {
	var value json.RawMessage
	err := json.NewDecoder(bytes.NewReader(body)).Decode(&value)
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// call makes a request and calls read with its answer. If the answer is cut off, the request may be repeated.
func (d *Database) call(ctx context.Context, r *request, read func(*response) error) error {
	return d.repeat(ctx, r, func(release func()) error {
		p, err := d.follow(ctx, r)
		if err != nil {
			return err
		}
		p.release = release
		if err := read(p); err != nil {
			p.Close()
			return p.fail(err)
		}
		d.move(p.moved)
		p.finish()
		return nil
	})
}

// stream makes a request and returns its answer, which the caller must close. It is not repeated after the answer has
// begun.
func (d *Database) stream(ctx context.Context, r *request) (*response, error) {
	var p *response
	err := d.repeat(ctx, r, func(release func()) (err error) {
		if p, err = d.follow(ctx, r); err == nil {
			p.release = release
		}
		return err
	})
	return p, err
}

// where returns the URL of a request, without its query.
func (d *Database) where(r *request) string {
	switch {
	case r.server:
		return d.server + "/" + r.path
	case r.path == "":
		return d.base()
	}
	return d.base() + "/" + r.path
}

// exchange sends a request and returns the answer if it is a success or a redirect. If the server refuses the session,
// it renews that, once per request.
func (d *Database) exchange(ctx context.Context, r *request, target *url.URL) (*response, error) {
	for {
		t, err := d.ticket(ctx)
		if err != nil {
			return nil, d.session.by.failed(d, r, target, err)
		}
		asks := d.asks(r)
		p, err := d.send(ctx, r, target, t)
		if err == nil {
			d.session.answered(t, p, d.cfg)
			return p, nil
		}
		if asks && refusesToBeAsked(err) && r.again() {
			d.unasked.Store(true)
			continue
		}
		if d.express.Load() && errors.Is(err, ErrStalled) {
			d.session.doubted(t)
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || !d.session.rejected(t, e.Status, r.renewed, d.inherited, d.cfg) {
			return nil, err
		}
		if !r.again() {
			e.session = true
			return nil, err
		}
		r.renewed = true
	}
}

// asks reports whether a large request asks before it sends its body whether the server accepts it (Expect:
// 100-continue).
func (d *Database) asks(r *request) bool {
	return !d.unasked.Load() && !(r.unasked && d.couchDB.Load())
}

// refusesToBeAsked reports whether a server, usually an old proxy, does not support Expect: 100-continue (RFC 9110,
// section 10.1.1).
func refusesToBeAsked(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusExpectationFailed
}

// send is exchange with a given ticket.
func (d *Database) send(outer context.Context, r *request, target *url.URL, t ticket) (*response, error) {
	ctx, span := d.startSpan(outer, r, target)
	r.sent++
	ctx, cancel := context.WithCancel(ctx)
	e := d.errorOf(r, shown(target))
	budget, err := d.cfg.Budgets.Begin(ctx, outbound.HostPort(target), r.feed)
	if err != nil {
		e.Err = err
		failSpan(span, err, d.hidden)
		span.End()
		cancel()
		return nil, e
	}
	limits := waits{
		connect: d.cfg.ConnectionTimeout,
		answer:  cmp.Or(r.idle, d.cfg.AnswerTimeout),
		idle:    cmp.Or(r.idle, d.cfg.ConnectionTimeout),
	}
	dog := watch(limits, cancel)
	answer, err := d.roundTrip(ctx, r, target, t, dog, budget)
	dog.answer()
	if err != nil {
		budget.Done()
		e.Err = broken(outer, dog, d.hidden.With(t.secret), err)
		failSpan(span, e.Err, d.hidden.With(t.secret))
		span.End()
		dog.stop()
		cancel()
		return nil, e
	}
	cookie := granted(answer.Header).secret
	hidden := func() redact.Set { return d.hidden.With(t.secret, cookie) }
	p := &response{
		d: d, r: r, url: e.URL, status: answer.StatusCode, header: answer.Header,
		body: answer.Body, hidden: hidden, outer: outer, end: cancel, dog: dog, span: span, release: func() {},
		budget: budget, stream: budget.Stream(),
	}
	answer.Header = nil // answer.Body keeps answer: see settle
	answeredSpan(span, p.status)
	if r.feed {
		span.End()
	}
	d.learn(p.header)
	if p.status < 300 || isRedirect(p.status) {
		d.limiter.note(d.limitKey(r.method), p.status, 0)
		return p, nil
	}
	// An error's body that cannot be read in time is ignored.
	giveUp := time.AfterFunc(limits.idle, p.end)
	defer giveUp.Stop()
	body, _ := io.ReadAll(io.LimitReader(p, maxErrorBody))
	p.finish()
	e.Status = p.status
	e.say(p.header, body, hidden())
	if e.Status == http.StatusForbidden {
		e.as = d.identity(hidden())
	}
	d.limiter.note(d.limitKey(r.method), p.status, e.RetryAfter)
	return nil, e
}

// learn records the kind of server. CouchDB behind a proxy made with Express counts as CouchDB.
func (d *Database) learn(header http.Header) {
	switch server := header.Get("Server"); {
	case strings.HasPrefix(server, "CouchDB/"):
		d.couchDB.Store(true)
		return
	case server == "settee":
		d.settee.Store(true)
		return
	}
	if d.express.Load() {
		return
	}
	if strings.EqualFold(header.Get("X-Powered-By"), "Express") {
		d.express.Store(true)
		d.jsonLeaves.Store(true)
	}
}

func (d *Database) roundTrip(
	ctx context.Context, r *request, target *url.URL, t ticket, dog *watchdog, budget *serverbudget.Exchange,
) (*http.Response, error) {
	ctx = outbound.WithConnectTimeout(ctx, d.cfg.ConnectionTimeout)
	if r.flow != nil {
		ctx = outbound.WithFlow(ctx, r.flow)
	}
	ctx = httptrace.WithClientTrace(ctx, dog.trace(d.learnAddress))
	hr, err := http.NewRequestWithContext(ctx, r.method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	d.setHeader(hr, r, t)
	d.propagate(ctx, hr.Header)
	if r.body != nil {
		body, length := r.body.open()
		// The transport may still read the body after it has returned. done waits for that.
		defer r.body.done()
		hr.ContentLength = length
		hr.Body = &upload{r: body, w: dog, may: d.cfg.Sending, budget: budget.Stream()}
		if length == 0 {
			hr.Body = http.NoBody
		}
		if (length < 0 || length > expectOver) && d.asks(r) {
			hr.Header.Set("Expect", "100-continue")
		}
	}
	return d.transport.RoundTrip(hr)
}

func (d *Database) setHeader(hr *http.Request, r *request, t ticket) {
	for name, values := range d.cfg.Header {
		if http.CanonicalHeaderKey(name) == "Host" && len(values) > 0 {
			hr.Host = values[0]
			continue
		}
		hr.Header[http.CanonicalHeaderKey(name)] = values
	}
	// Without this header net/http requests gzip and decompresses it.
	hr.Header.Del("Accept-Encoding")
	hr.Header.Set("Accept", jsonType)
	if r.accept != "" {
		hr.Header.Set("Accept", r.accept)
	}
	if hr.Header.Get("User-Agent") == "" {
		hr.Header.Set("User-Agent", d.cfg.UserAgent)
	}
	if r.encoding != "" {
		hr.Header.Set("Accept-Encoding", r.encoding)
	}
	if r.content != "" {
		hr.Header.Set("Content-Type", r.content)
	}
	if r.gzipped {
		hr.Header.Set("Content-Encoding", "gzip")
	}
	d.authorize(hr, t)
}

// pieces is a request body in memory, in pieces that are not copied together.
type pieces struct {
	all      [][]byte
	borrowed bool // the caller may change the bytes after done

	mu     sync.Mutex // held by Read
	closed bool
	left   [][]byte
	at     int // in left[0]
}

func bytesBody(all ...[]byte) *pieces { return &pieces{all: all} }

func (p *pieces) open() (io.Reader, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.left, p.at = false, p.all, 0
	var length int64
	for _, piece := range p.all {
		length += int64(len(piece))
	}
	return p, length
}

func (p *pieces) again() bool { return true }

func (p *pieces) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = p.borrowed
}

func (p *pieces) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed && len(p.left) > 0 {
		return 0, errExchangeOver
	}
	n := 0
	for n < len(b) && len(p.left) > 0 {
		copied := copy(b[n:], p.left[0][p.at:])
		n += copied
		if p.at += copied; p.at == len(p.left[0]) {
			p.left, p.at = p.left[1:], 0
		}
	}
	if n == 0 && len(p.left) == 0 {
		return 0, io.EOF
	}
	return n, nil
}
