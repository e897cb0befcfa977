package couch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/redact"
)

// What a Config says when it says nothing, and what cannot be configured.
const (
	defaultConnectionTimeout = 30 * time.Second       // [replicator] connection_timeout
	defaultRetries           = 5                      // [replicator] retries_per_request
	defaultRetryBase         = 250 * time.Millisecond // doubled each time
	defaultMaxConnections    = 20                     // [replicator] http_connections
	defaultMaxDocument       = 64 << 20               // bytes
	defaultSessionRefresh    = 550 * time.Second      // [replicator] session_refresh_interval_sec
	defaultSessionMinAge     = 5 * time.Second        // [replicator] session_min_update_interval
	defaultUserAgent         = "settee"
)

// Limits of answers that are read whole, in bytes.
const (
	maxErrorBody = 64 << 10
	maxInfo      = 1 << 20
	maxLocalDoc  = 16 << 20
	maxWriteBody = 16 << 20 // the answer to a _bulk_docs, read row by row
	maxRevsDiff  = 64 << 20 // the answer to a _revs_diff, read row by row
)

// Config says where a database is and how it is to be talked to.
type Config struct {
	// URL is the database's: http or https, with a path, without user, query and fragment.
	URL string
	// Username and Password, if one is not empty, are sent with every request (basic authentication),
	// unless there are Sessions.
	Username, Password string
	// Header is added to every request. Where it has an Authorization, that is sent and not the Username.
	Header http.Header
	// Secrets are others that requests have, such as parameters of a filter: no error repeats them, as
	// none repeats the Password or what is secret of the Header.
	Secrets redact.Set

	// Sessions, if not nil, are where the Username logs in, with POST /_session next to the database, so
	// that requests carry a cookie. At servers that have no sessions, and where Header has an Authorization
	// or a Cookie, there is no login.
	Sessions *Sessions
	// SessionRefresh is the age at which a cookie is renewed that does not say how long it is good for.
	// Others are renewed after nine tenths of their time. Default: 550 s.
	SessionRefresh time.Duration
	// SessionMinAge is the age from which on a cookie that the server does not take (401 or 403) is
	// renewed, and the request made once more. Default: 5 s; negative: any.
	SessionMinAge time.Duration

	// Proxy is the URL of an http, https or socks5 proxy, with its user and password if it needs them.
	// It does not go with Transport. The environment's proxies are not used.
	Proxy string

	// ConnectionTimeout bounds each wait for the network: to look the host up, to connect, for TLS, and
	// between two bytes of a body in either direction. It does not bound the whole of an exchange: one that
	// is slow but steady goes on. Default: 30 s.
	ConnectionTimeout time.Duration
	// AnswerTimeout bounds the wait for an answer once the request is sent, but for those of changes feeds.
	// Default: ConnectionTimeout.
	AnswerTimeout time.Duration
	// Retries is how often a request that may be repeated is repeated. Default: 5; negative: never.
	Retries int
	// RetryBase is the wait before the first repetition; it doubles each time, up to a minute. Up to a
	// quarter of it is added at random. Default: 250 ms.
	RetryBase time.Duration
	// Limiter is who knows which servers want their requests to come more slowly; many databases are to
	// share one. Default: one of the database's own.
	Limiter *Limiter
	// MaxConnections is how many requests may be under way at a time; more wait. Changes feeds are not
	// counted, nor are the attachments that [Leaf.NextAttachment] asks for one by one. Default: 20.
	MaxConnections int
	// MaxDocument is the size in bytes of the largest document, without its attachments, that is read.
	// Default: 64 MiB.
	MaxDocument int

	// Large, if not nil, is called with a request's context before more than a megabyte of a document is held
	// in memory, by BulkGet and OpenRevs. It may wait until there is room; its error ends the reading.
	Large func(context.Context) error

	// Sending, if not nil, is asked before each part of a request's body is sent. Its error breaks the request off.
	// Whoever returns one ends the request's context before, or the request may be repeated.
	Sending func() error

	// Transport makes the requests, if not nil; many databases may share it, and those of one node had
	// better share a [Pool]. It must not follow redirects. Without it the database has a pool of its own,
	// which Close cleans up.
	Transport http.RoundTripper

	// NoCompression sends all requests uncompressed. Without it those with many documents or revisions go
	// compressed to servers that take them so, unless their address is a loopback or a private one.
	NoCompression bool

	// UserAgent is the User-Agent header. Default: "settee".
	UserAgent string

	// Retrying, if not nil, is told of a request that failed and is to be repeated, before the wait for
	// that, with the request's context. The function that it returns is called when that try has ended,
	// or was given up; if it failed too and is to be repeated, then after Retrying was told so. Requests
	// that are under way at the same time call both at the same time. They must not block.
	Retrying func(context.Context, Retry) (over func())
}

// String is the URL, which has no credentials.
func (c Config) String() string { return "database " + redact.Text(c.URL) }

// Format writes String for every verb, so that no way of printing a Config shows what is secret.
func (c Config) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, c.String(), "couch.Config("+c.String()+")")
}

// Retry is a request that failed and is to be repeated, or that is held back.
type Retry struct {
	// Err is how its latest try failed: which request it is, and what the server or the network said. Of
	// a request that the Limiter holds back before its first try, for a second or more, it matches
	// ErrTooManyRequests.
	Err *Error
	// Attempt is the number of the try to come, 2 for the first repetition, and Attempts how many there
	// may be at all, 0 if that is not limited, as with 429.
	Attempt, Attempts int
	// Since is when the first try failed, or the wait began; Until when the try to come is made.
	Since, Until time.Time
}

// Database is a remote database. It is safe for concurrent use.
type Database struct {
	cfg       Config // with its defaults filled in
	root      string // the URL, without a slash at its end
	origin    string // of root: scheme, host, port
	server    string // root without the database's name
	proxy     string // its URL; empty for none
	transport http.RoundTripper
	own       *Pool         // nil if the transport is someone else's
	slots     chan struct{} // one element for each request under way
	hidden    redact.Set
	limiter   *Limiter
	session   *session // nil for none
	closed    sync.Once

	// What was learned of the server, see request.go, openrevs.go and compress.go.
	express    atomic.Bool // it is PouchDB Server
	jsonLeaves atomic.Bool // it answers open_revs with JSON
	gunzips    atomic.Bool // it takes compressed requests
	wantsPlain atomic.Bool // but something on the way does not
	near       atomic.Bool // it is on this machine or at this site
	unasked    atomic.Bool // it does not want to be asked whether a large request may go on
}

// String is the database's URL, without credentials.
func (d *Database) String() string { return "database " + d.root }

// Format writes String for every verb, so that no way of printing a Database shows what is secret.
func (d *Database) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, d.String(), "couch.Database("+d.String()+")")
}

// Open checks cfg and returns the database it describes. It does not connect.
func Open(cfg Config) (*Database, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil:
		return nil, errors.New("database URL: not a URL") // the parser's error would quote it
	case u.User != nil:
		return nil, errors.New("database URL: has a user; name it in Username and Password")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("database URL: neither http nor https")
	case u.Host == "" || strings.Trim(u.Path, "/") == "":
		return nil, errors.New("database URL: names no database")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("database URL: has a query or a fragment")
	}
	cfg.ConnectionTimeout = cmp.Or(cfg.ConnectionTimeout, defaultConnectionTimeout)
	cfg.Retries = cmp.Or(cfg.Retries, defaultRetries)
	cfg.RetryBase = cmp.Or(cfg.RetryBase, defaultRetryBase)
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, defaultMaxConnections)
	cfg.MaxDocument = cmp.Or(cfg.MaxDocument, defaultMaxDocument)
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, cfg.ConnectionTimeout)
	cfg.SessionRefresh = cmp.Or(cfg.SessionRefresh, defaultSessionRefresh)
	cfg.SessionMinAge = cmp.Or(cfg.SessionMinAge, defaultSessionMinAge)
	cfg.UserAgent = cmp.Or(cfg.UserAgent, defaultUserAgent)
	if cfg.ConnectionTimeout < 0 || cfg.AnswerTimeout < 0 || cfg.SessionRefresh < 0 || cfg.RetryBase < 0 || cfg.MaxConnections < 0 || cfg.MaxDocument < 0 {
		return nil, errors.New("database: a timeout or a limit is negative")
	}
	cfg.Header = cfg.Header.Clone()

	d := &Database{
		cfg:       cfg,
		root:      strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"),
		origin:    origin(u),
		transport: cfg.Transport,
		limiter:   cfg.Limiter,
		slots:     make(chan struct{}, cfg.MaxConnections),
	}
	d.server = d.root[:strings.LastIndexByte(d.root, '/')]
	if d.limiter == nil {
		d.limiter = &Limiter{}
	}
	if cfg.Transport != nil && cfg.Proxy != "" {
		return nil, errors.New("database: a proxy and a transport exclude each other")
	}
	if d.transport == nil {
		d.own = NewPool(PoolOptions{Config: func() PoolConfig { return PoolConfig{ConnectTimeout: cfg.ConnectionTimeout} }})
		if d.transport, err = d.own.Transport(TransportOptions{Proxy: cfg.Proxy}); err != nil {
			return nil, err
		}
	}
	var proxy *url.URL
	if r, ok := d.transport.(*route); ok {
		proxy = r.proxy
	}
	if proxy != nil {
		d.proxy = proxy.String()
	}
	d.hidden = secretsOf(cfg, proxy)
	d.openSession()
	return d, nil
}

// origin is what must be equal for a redirect to be followed (RFC 6454, section 4).
func origin(u *url.URL) string {
	port := cmp.Or(u.Port(), defaultPorts[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// limitKey is what is limited when a request is refused with 429.
func (d *Database) limitKey(method string) limitKey {
	return limitKey{d.server, d.cfg.Header.Get("Host"), d.proxy, method}
}

// URL returns the database's URL, without credentials.
func (d *Database) URL() string { return d.root }

// large is what a reader of documents calls before it holds a large one.
func (d *Database) large(ctx context.Context) func() error {
	if d.cfg.Large == nil {
		return nil
	}
	return func() error { return d.cfg.Large(ctx) }
}

// Close closes the idle connections of the database's own pool. Requests under way are not
// affected: they end with their contexts.
func (d *Database) Close() {
	d.closed.Do(d.session.release)
	if d.own != nil {
		d.own.Close()
	}
}

// Info is what a database says of itself.
type Info struct {
	Name string `json:"db_name"`
	// UpdateSeq is the sequence of its last change: a number, a string or an array, by the kind of
	// server. It has no meaning but to the server that gave it.
	UpdateSeq json.RawMessage `json:"update_seq"`
	// InstanceStartTime changes when the database is deleted and created anew, on servers that have a
	// use for it. A string of microseconds or seconds since the epoch, "0" on some.
	InstanceStartTime json.RawMessage `json:"instance_start_time"`
	DocCount          int64           `json:"doc_count"`
	DocDelCount       int64           `json:"doc_del_count"`
}

// Info reads the database's description. [ErrNoDatabase] says that it does not exist, and that who
// said so is a server.
func (d *Database) Info(ctx context.Context) (Info, error) {
	var info Info
	err := d.fetch(ctx, &request{method: http.MethodGet}, maxInfo, func(body []byte) error {
		if err := json.Unmarshal(body, &info); err != nil {
			return fmt.Errorf("%w: the database's description: %w", ErrMalformed, err)
		}
		if len(info.UpdateSeq) == 0 {
			return fmt.Errorf("%w: a database's description without update_seq", ErrMalformed)
		}
		return nil
	})
	return info, err
}

// Create creates the database, with parameters such as q and n. If it exists the error is [ErrExists].
// The request is not repeated: after an error, Info tells whether it was carried out.
func (d *Database) Create(ctx context.Context, params url.Values) error {
	return d.fetch(ctx, &request{method: http.MethodPut, query: params, once: true}, maxInfo, nil)
}

// EnsureFullCommit asks the server to have all written on disk. CouchDB 3 always has. It returns the
// database's instance_start_time, as [Info] has it, if the server says it here too; else nil.
func (d *Database) EnsureFullCommit(ctx context.Context) (instanceStartTime json.RawMessage, err error) {
	var answer struct {
		InstanceStartTime json.RawMessage `json:"instance_start_time"`
	}
	err = d.fetch(ctx, &request{
		method: http.MethodPost, path: "_ensure_full_commit",
		content: jsonType, body: bytesBody(nil),
	}, maxInfo, func(body []byte) error {
		_ = json.Unmarshal(body, &answer) // that it answered is what counts
		return nil
	})
	return answer.InstanceStartTime, err
}

// Get reads a document's winning revision, as the JSON that the server sends, with parameters such as
// rev, revs or conflicts.
func (d *Database) Get(ctx context.Context, id string, params url.Values) (json.RawMessage, error) {
	var doc json.RawMessage
	err := d.fetch(ctx, &request{
		method: http.MethodGet, path: docPath(id), query: params,
	}, d.cfg.MaxDocument, func(body []byte) (err error) {
		doc, err = wholeObject(body)
		return err
	})
	return doc, err
}

// GetDesignDoc reads a design document by its name, with or without _design/.
func (d *Database) GetDesignDoc(ctx context.Context, name string) (json.RawMessage, error) {
	return d.Get(ctx, designPrefix+strings.TrimPrefix(name, designPrefix), nil)
}
