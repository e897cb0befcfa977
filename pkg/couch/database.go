package couch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2/clientcredentials"

	"settee/pkg/outbound"
	"settee/pkg/redact"
	"settee/pkg/route"
	"settee/pkg/serverbudget"
)

// Limits of answers that are read whole, in bytes.
const (
	maxErrorBody = 64 << 10
	maxInfo      = 1 << 20
	maxLocalDoc  = 16 << 20
	maxWriteBody = 16 << 20 // the answer to a _bulk_docs, read row by row
	maxRevsDiff  = 64 << 20 // the answer to a _revs_diff, read row by row
)

// DefaultConfig returns a Config without a URL, with the defaults of CouchDB's replicator where it has the setting.
func DefaultConfig() Config {
	return Config{
		ConnectionTimeout: 30 * time.Second,       // [replicator] connection_timeout
		Retries:           5,                      // [replicator] retries_per_request
		RetryBase:         250 * time.Millisecond, // as in CouchDB
		MaxConnections:    20,                     // [replicator] http_connections
		MaxDocument:       64 << 20,
		SessionRefresh:    550 * time.Second, // [replicator] session_refresh_interval_sec
		SessionMinAge:     5 * time.Second,   // [replicator] session_min_update_interval
		UserAgent:         "settee",
	}
}

// Config says where a database is, and how requests to it are made. [DefaultConfig] returns the defaults. The fields
// that it leaves empty are optional.
type Config struct {
	// URL is the database's URL: http or https, with a path, without user, query and fragment.
	URL string
	// Username and Password, if one is not empty, are sent with every request (basic authentication), except with
	// Sessions.
	Username, Password string
	// Header is added to every request. An Authorization header in it replaces Username and Password.
	Header http.Header
	// Secrets are further secrets in requests, such as parameters of a filter. Errors contain none of them, nor the
	// Password or secrets in Header.
	Secrets redact.Set

	// Sessions, if not nil, makes requests carry a cookie from a login with POST /_session next to the database, unless
	// there is a Token. There is no login if the server has no sessions or if Header has an Authorization or a Cookie.
	Sessions *Sessions
	// Token, if not nil, makes requests carry an access token instead of Username, Password and an Authorization header. It
	// says which server gives tokens, and for what (RFC 6749, section 4.4). What is secret in its EndpointParams must be among
	// Secrets. Requests to that server go through the Transport and the Proxy. A token is renewed five minutes before its end, or at half of a life of less than ten minutes, and once
	// after a 401. Sessions, if not nil, has the tokens that several databases share. See [ErrToken] and [ErrTokenRefused].
	Token *clientcredentials.Config
	// SessionRefresh is the age at which a cookie or a token without an expiry time is renewed. Other cookies are renewed
	// after nine tenths of their lifetime. Default: 550 s.
	SessionRefresh time.Duration
	// SessionMinAge is the minimum age of a cookie that is renewed, with one repetition of the request, when the server
	// refuses it (401 or 403). A cookie that is older than the database may be younger if the answer is 401. Default: 5 s.
	SessionMinAge time.Duration

	// Proxy is the URL of an http, https or socks5 proxy, with its user and password if needed. Proxies of the
	// environment are not used. With a Transport, Proxy names the proxy that the transport uses: sessions and rate
	// limits are kept per proxy, and errors do not contain its password.
	Proxy string

	// ConnectionTimeout bounds each wait for the network: to look up the host, to connect, for TLS, and between two
	// bytes of a body in either direction. It does not bound an exchange as a whole. Default: 30 s.
	ConnectionTimeout time.Duration
	// AnswerTimeout bounds the wait for an answer after the request was sent, except for changes feeds. 0:
	// ConnectionTimeout.
	AnswerTimeout time.Duration
	// Retries is the maximum number of repetitions of a repeatable request. Default: 5.
	Retries int
	// RetryBase is the wait before the first repetition. It doubles each time, up to a minute. Up to a quarter of the
	// wait is added at random. Default: 250 ms.
	RetryBase time.Duration
	// Limiter delays requests to servers that answer 429. Databases should share one. nil: the database has its own.
	Limiter *Limiter
	// MaxConnections is the maximum number of concurrent requests. Changes feeds do not count, nor do requests for
	// single attachments by [Leaf.NextAttachment]. Default: 20.
	MaxConnections int
	// MaxDocument is the maximum size in bytes of a document, without its attachments. Default: 64 MiB.
	MaxDocument int

	// Budgets bound the requests to servers, and the bytes of bodies. nil: none.
	Budgets *serverbudget.Node

	// Large, if not nil, is called by BulkGet and OpenRevs with a request's context before they hold more than a
	// megabyte of a document in memory. It may wait until there is room. Its error ends the reading.
	Large func(context.Context) error

	// Sending, if not nil, is called before each part of a request's body is sent. Its error ends the request. The
	// request's context should end before that, or the request may be repeated.
	Sending func() error

	// Transport, if not nil, makes the requests. It must not follow redirects. Databases may share it; the databases of one
	// node should share an [outbound.Pool]. If it is nil, the database has a pool of its own, which Close closes.
	Transport http.RoundTripper

	// PropagateTrace sends the header traceparent (W3C Trace Context), which tells the server the request's trace. A
	// request has a span, and so a trace, if its context has a span that is recorded.
	PropagateTrace bool

	// NoCompression sends all requests uncompressed. By default, requests with many documents or revisions are
	// compressed if the server accepts that and has no loopback or private address.
	NoCompression bool

	// UserAgent is the User-Agent header, unless Header has one. Default: "settee".
	UserAgent string

	// Retrying, if not nil, is called with the request's context when a request has failed and will be repeated, before
	// the wait. The function that it returns is called when that try has ended or was given up; if the request is
	// repeated again, after the next call of Retrying. Concurrent requests call both concurrently. They must not block.
	Retrying func(context.Context, Retry) (over func())
}

// String returns the URL, which has no credentials.
func (c Config) String() string { return "database " + redact.Text(c.URL) }

// Format writes String for every verb, so that printing never shows a secret.
func (c Config) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, c.String(), "couch.Config("+c.String()+")")
}

// Retry describes a request that failed and will be repeated, or that is held back.
type Retry struct {
	// Err is the error of the latest try. For a request that the Limiter holds back for a second or more before its
	// first try, it matches ErrTooManyRequests.
	Err *Error
	// Attempt is the number of the next try, 2 for the first repetition. Attempts is the maximum number of tries, or 0
	// if there is none, as with 429.
	Attempt, Attempts int
	// Since is the time when the first try failed or the wait began. Until is the time of the next try.
	Since, Until time.Time
}

// Database is a remote database. It is safe for concurrent use.
type Database struct {
	cfg       Config
	root      string // the URL, without a slash at its end
	origin    string // scheme, host and port of root
	server    string // root without the database's name
	proxy     string // its URL; empty for none
	proxyName string // its URL without credentials; empty for none
	route     string // who answers, see [route.Key]
	transport http.RoundTripper
	own       *outbound.Pool // nil with Config.Transport
	slots     chan struct{}  // one element per active request
	hidden    redact.Set
	limiter   *Limiter
	session   *session // nil for none
	inherited int      // the epoch of the session's cookie when the database was opened; 0 for none
	closed    sync.Once

	// Properties of the server found so far; see request.go, openrevs.go and compress.go.
	express    atomic.Bool // it is PouchDB Server
	jsonLeaves atomic.Bool // it answers open_revs with JSON
	unpacks    atomic.Bool // it, or a proxy before it, does not send a compressed attachment as it is stored
	wantsPlain atomic.Bool // a proxy does not
	near       atomic.Bool // its address is loopback or private
	unasked    atomic.Bool // it does not support Expect: 100-continue
	couchDB    atomic.Bool // it is CouchDB
	settee     atomic.Bool // it is settee
	plainFeeds atomic.Bool // it refuses feeds with a heartbeat, seq_interval or a large limit

	at atomic.Pointer[string] // the URL to which the database was redirected; nil for root

	brokenOff sync.Map // ids of documents whose latest PutMultipart ended without an answer
}

// String returns the database's URL, without credentials.
func (d *Database) String() string { return "database " + d.root }

// Format writes String for every verb, so that printing never shows a secret.
func (d *Database) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, d.String(), "couch.Database("+d.String()+")")
}

// Open checks cfg and returns the database it describes. It does not connect.
func Open(cfg Config) (*Database, error) {
	return openAt(cfg, "database", func(u *url.URL, root string) string {
		if strings.Trim(u.EscapedPath(), "/") == "" { // a proxy shows the database as the root of a host
			return root
		}
		return root[:strings.LastIndexByte(root, '/')]
	})
}

// openAt checks cfg and returns what is at its URL, which errors call by that name. server returns the URL of its server.
func openAt(cfg Config, name string, server func(u *url.URL, root string) string) (*Database, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil:
		return nil, errors.New(name + " URL: not a URL") // the parser's error would quote it
	case u.User != nil:
		return nil, errors.New(name + " URL: has a user; name it in Username and Password")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New(name + " URL: neither http nor https")
	case u.Host == "":
		return nil, errors.New(name + " URL: names no host")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New(name + " URL: has a query or a fragment")
	}
	if err := checkToken(cfg.Token); err != nil {
		return nil, err
	}
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, cfg.ConnectionTimeout)
	if cfg.ConnectionTimeout <= 0 || cfg.AnswerTimeout <= 0 || cfg.SessionRefresh <= 0 || cfg.RetryBase <= 0 ||
		cfg.MaxConnections <= 0 || cfg.MaxDocument <= 0 {
		return nil, errors.New(name + ": a timeout or a limit is not positive")
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
	d.server = server(u, d.root)
	if d.limiter == nil {
		d.limiter = &Limiter{}
	}
	proxy, err := outbound.ParseProxy(cfg.Proxy)
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		d.proxy, d.proxyName = proxy.String(), proxy.Scheme+"://"+proxy.Host
	}
	if d.transport == nil {
		d.own = outbound.NewPool(outbound.PoolOptions{Config: func() outbound.PoolConfig {
			return outbound.PoolConfig{ConnectTimeout: cfg.ConnectionTimeout}
		}})
		if d.transport, err = d.own.Transport(outbound.TransportOptions{Proxy: cfg.Proxy}); err != nil {
			return nil, err
		}
	}
	d.route = route.Key(d.server, d.proxy, func(yield func(name, value string) bool) {
		for name, values := range cfg.Header {
			for _, value := range values {
				if !yield(name, value) {
					return
				}
			}
		}
	})
	d.hidden = secretsOf(cfg, proxy)
	d.openSession()
	return d, nil
}

// origin returns the origin of a URL. Redirects are followed only within it (RFC 6454, section 4).
func origin(u *url.URL) string {
	return u.Scheme + "://" + strings.ToLower(outbound.HostPort(u))
}

// limitKey returns the Limiter's key for a method.
func (d *Database) limitKey(method string) limitKey {
	return limitKey{d.route, method}
}

// URL returns the database's URL, without credentials: since it was redirected, the one to which it was.
func (d *Database) URL() string { return d.base() }

// large returns the function that is called before a large document is held.
func (d *Database) large(ctx context.Context) func() error {
	if d.cfg.Large == nil {
		return nil
	}
	return func() error { return d.cfg.Large(ctx) }
}

// Close closes the idle connections of the database's own pool. It does not affect active requests.
func (d *Database) Close() {
	d.closed.Do(d.session.release)
	if d.own != nil {
		d.own.Close()
	}
}

// Info is a database's description of itself.
type Info struct {
	Name string `json:"db_name"`
	// UpdateSeq is the sequence of the last change: a number, a string or an array. Only the server that gave it can
	// interpret it.
	UpdateSeq json.RawMessage `json:"update_seq"`
	// InstanceStartTime changes when the database is deleted and created again, on servers that support that. It is a
	// string of microseconds or seconds since the Unix epoch; some servers always send "0".
	InstanceStartTime json.RawMessage `json:"instance_start_time"`
	DocCount          int64           `json:"doc_count"`
	DocDelCount       int64           `json:"doc_del_count"`

	// Cluster and Props say how a CouchDB keeps the database: {"q": 2, "n": 3, ...} and {"partitioned": true}. Other servers
	// may give other values, or none: see [Database.Parameters].
	Cluster json.RawMessage `json:"cluster"`
	Props   json.RawMessage `json:"props"`
}

// Info reads the database's description. [ErrNoDatabase] means that a server answered and the database does not exist,
// [ErrNotDatabase] that something else is there.
func (d *Database) Info(ctx context.Context) (Info, error) {
	var info Info
	err := d.fetch(ctx, &request{method: http.MethodGet}, maxInfo, func(body []byte) error {
		err := json.Unmarshal(body, &info)
		switch {
		case err == nil && len(info.UpdateSeq) > 0:
			return nil
		case !json.Valid(body):
			return fmt.Errorf("%w: the database's description is not JSON", ErrMalformed)
		}
		return ErrNotDatabase
	})
	return info, err
}

// Create creates the database, with parameters such as q and n. If it exists, the error is [ErrExists]. The request is
// not repeated. After an error, Info tells whether it was carried out.
func (d *Database) Create(ctx context.Context, params url.Values) error {
	return d.fetch(ctx, &request{method: http.MethodPut, query: params, once: true}, maxInfo, nil)
}

// EnsureFullCommit asks the server to flush all writes to disk. CouchDB 3 always has. It returns instance_start_time as
// in [Info], or nil if the answer lacks it.
func (d *Database) EnsureFullCommit(ctx context.Context) (instanceStartTime json.RawMessage, err error) {
	var answer struct {
		InstanceStartTime json.RawMessage `json:"instance_start_time"`
	}
	err = d.fetch(ctx, &request{
		method: http.MethodPost, path: "_ensure_full_commit",
		content: jsonType, body: bytesBody(nil),
	}, maxInfo, func(body []byte) error {
		_ = json.Unmarshal(body, &answer) // the value is optional
		return nil
	})
	return answer.InstanceStartTime, err
}

// Get reads a document's winning revision as JSON.
func (d *Database) Get(ctx context.Context, id string) (json.RawMessage, error) {
	var doc json.RawMessage
	err := d.fetch(ctx, &request{method: http.MethodGet, path: docPath(id)}, d.cfg.MaxDocument, func(body []byte) (err error) {
		doc, err = wholeObject(body)
		return err
	})
	return doc, err
}
