package couch

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/redact"
)

// What a PoolConfig says when it says nothing, and what cannot be configured.
const (
	defaultIdleTimeout = 90 * time.Second // [replicator] connection_close_interval

	// maxIdlePerEndpoint and maxIdlePerRoute bound the connections that are kept although nothing uses
	// them. Those that a crowd of jobs leaves behind beyond that are closed at once.
	maxIdlePerEndpoint = 256
	maxIdlePerRoute    = 1_000
	// maxRoutes bounds how many different proxies and socket options have connections of their own. Of
	// more the one that has waited longest loses its idle ones, and with that the pool as a whole never
	// keeps more than maxRoutes * maxIdlePerRoute; with one route, as nearly everywhere, 1,000.
	maxRoutes = 64

	// An HTTP/2 connection that has been silent for pingAfter is asked whether it is alive, and is closed
	// if it does not say so within pingTimeout. Both together are shorter than the default
	// ConnectionTimeout, so that a request that stalled is repeated on another connection.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	// streamWindow is how many bytes of one HTTP/2 answer may wait in memory for its reader. It is what
	// one answer can bring per round trip.
	streamWindow = 512 << 10
	// maxHeader bounds the headers of an answer.
	maxHeader = 256 << 10

	// continueWait is how long a large request waits for the server's word to go on.
	continueWait = time.Second
)

// PoolConfig is what can be configured of connections. The zero PoolConfig has every default.
type PoolConfig struct {
	// ConnectTimeout bounds the wait for a connection's address, the connection itself, and TLS, each.
	// A Database's own ConnectionTimeout counts instead of it, but for TLS, where the shorter one does.
	// Default: 30 s.
	ConnectTimeout time.Duration
	// IdleTimeout is how long a connection is kept that nothing uses. Default: 90 s.
	IdleTimeout time.Duration
	// Sockets are the socket options of transports that have none of their own.
	Sockets SocketOptions
	// ConnectTo are other addresses for endpoints, the first that matches counts. What goes through a
	// proxy is not redirected: the proxy finds the endpoint.
	ConnectTo []ConnectTo
	// Denied are the networks that no connection is made to, neither to an endpoint nor to a proxy, see
	// [ErrDenied]. The address that is dialled counts, whatever name led to it. IPv4 networks are to be
	// written as such. A proxy finds endpoints by itself: of what it is asked for only literal addresses
	// are checked.
	Denied []netip.Prefix
	// TLS is about certificates.
	TLS TLSConfig
}

// PoolOptions are what a Pool is made of.
type PoolOptions struct {
	// Config returns the configuration. It is asked before each request, by many at a time, and has to be
	// quick. What has changed counts for the next request: it gets a new connection, and those made
	// before are closed when nothing uses them any more. nil: the zero PoolConfig.
	Config func() PoolConfig
	// Warn, if not nil, is told of what somebody should know who looks after the node: once of each new
	// version of a file of certificates that cannot be used, and with TLSConfig.Report of certificates
	// that are not trustworthy. It must not block.
	Warn func(error)
	// Resolver finds the addresses of names. nil: the system's.
	Resolver *net.Resolver
}

// SocketOptions are the options of a connection's socket. The zero SocketOptions are Go's defaults: both
// are on, and the buffers are the system's affair.
type SocketOptions struct {
	NoKeepAlive   bool // no TCP keepalive
	Delay         bool // small packets wait for company (TCP_NODELAY off)
	SendBuffer    int  // bytes; 0: the system's
	ReceiveBuffer int  // bytes; 0: the system's
}

// TransportOptions say which of a pool's connections a transport uses.
type TransportOptions struct {
	// Proxy is the URL of an http, https or socks5 proxy, with its user and password if it needs them.
	// Empty: none. The environment's proxies are not used.
	Proxy string `json:"-"`
	// Sockets, if not nil, count instead of PoolConfig.Sockets.
	Sockets *SocketOptions
}

// String is the proxy's URL without its password.
func (o TransportOptions) String() string { return "by proxy " + redact.Text(o.Proxy) }

// Format writes String for every verb: the proxy's password is not printed.
func (o TransportOptions) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, o.String(), "couch.TransportOptions("+o.String()+")")
}

// Pool is the connections of one node: to all its endpoints, for all its jobs. A connection is used by
// whoever asks for the same endpoint (scheme, host and port), proxy (with its credentials) and socket
// options. It speaks HTTP/2 where the server does, which then has many requests on one connection; a
// server that allows fewer at a time than there are gets more connections.
//
// How many connections are in use is not the pool's affair: each request needs one, or its part of one,
// and [Config.MaxConnections] bounds the requests. Idle ones are closed after a time, and at once where
// there are too many. A Pool has no goroutines but those of its connections. It is safe for concurrent
// use.
type Pool struct {
	options PoolOptions
	state   atomic.Pointer[generation]

	// The clock and the times that tests set otherwise.
	now                    func() time.Time
	pingAfter, pingTimeout time.Duration
}

// NewPool returns a pool without connections.
func NewPool(options PoolOptions) *Pool {
	return &Pool{options: options, now: time.Now, pingAfter: pingAfter, pingTimeout: pingTimeout}
}

// Transport returns what makes requests with the pool's connections. It holds nothing that has to be
// given back. It never follows redirects.
func (p *Pool) Transport(options TransportOptions) (http.RoundTripper, error) {
	proxy, err := parseProxy(options.Proxy)
	if err != nil {
		return nil, err
	}
	return &route{pool: p, proxy: proxy, sockets: options.Sockets}, nil
}

// Close closes the connections that nothing uses. Requests under way go on; nobody else uses their
// connections, which are closed after them, IdleTimeout later at most. So it is when the configuration
// changes.
func (p *Pool) Close() {
	if g := p.state.Swap(nil); g != nil {
		g.retire()
	}
}

func (p *Pool) config() PoolConfig {
	var cfg PoolConfig
	if p.options.Config != nil {
		cfg = p.options.Config()
	}
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = defaultConnectionTimeout
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = defaultIdleTimeout
	}
	return cfg
}

func (p *Pool) warn(err error) {
	if p.options.Warn != nil {
		p.options.Warn(err)
	}
}

// current returns the connections that the configuration of this moment allows.
func (p *Pool) current() (*generation, error) {
	for {
		old := p.state.Load()
		g, err := p.renew(old)
		if err != nil || g == old {
			return g, err
		}
		if p.state.CompareAndSwap(old, g) {
			if old != nil {
				old.retire()
			}
			return g, nil
		}
		// Somebody else was faster. What was made here has no connections yet.
	}
}

// renew returns old if it still fits the configuration and the files that this names, and else what is
// to take its place.
func (p *Pool) renew(old *generation) (*generation, error) {
	cfg := p.config()
	if old == nil || old.cfg.TLS != cfg.TLS {
		trust, err := loadTrust(cfg.TLS)
		if err != nil {
			return nil, err
		}
		return p.newGeneration(cfg, trust), nil
	}
	trust, err := old.trust.reload(cfg.TLS, p.now())
	if err != nil {
		p.warn(err)
	}
	if trust == old.trust && reflect.DeepEqual(old.cfg, cfg) {
		return old, nil
	}
	return p.newGeneration(cfg, trust), nil
}

// generation is the connections that were made under one configuration. It does not change: another
// configuration is another generation, and nobody can be on a connection that the present one forbids.
type generation struct {
	pool  *Pool
	cfg   PoolConfig
	trust *trust

	mu      sync.Mutex
	routes  map[routeKey]*routeEntry
	tidied  time.Time // when unused routes were looked for
	retired bool
}

// routeKey is what connections have in common beside their endpoint. net/http keeps the connections of a
// transport apart by endpoint; those of HTTP/2 it does not keep apart by proxy, so each proxy has a
// transport of its own. The proxy has its credentials and must not be printed.
type routeKey struct {
	proxy   string
	sockets SocketOptions
}

type routeEntry struct {
	transport *http.Transport
	used      time.Time // when its latest request began
}

func (p *Pool) newGeneration(cfg PoolConfig, trust *trust) *generation {
	return &generation{pool: p, cfg: cfg, trust: trust, routes: make(map[routeKey]*routeEntry), tidied: p.now()}
}

// transport returns the transport of a route, or nil if the generation is over.
func (g *generation) transport(key routeKey, proxy *url.URL, now time.Time) *http.Transport {
	g.mu.Lock()
	if g.retired {
		g.mu.Unlock()
		return nil
	}
	e := g.routes[key]
	var dropped []*routeEntry
	if e == nil || now.Sub(g.tidied) > g.cfg.IdleTimeout {
		dropped = g.tidy(key, now)
	}
	if e == nil {
		e = &routeEntry{transport: g.newTransport(key, proxy)}
		g.routes[key] = e
	}
	e.used = now
	g.mu.Unlock()
	closeIdle(dropped)
	return e.transport
}

// tidy takes out the routes that no request has used for so long that their idle connections are closed
// by now, and makes room for a new one. A route whose requests are still under way loses nothing but its
// idle connections. It is called under the lock.
func (g *generation) tidy(wanted routeKey, now time.Time) []*routeEntry {
	g.tidied = now
	var dropped []*routeEntry
	var oldest routeKey
	for key, e := range g.routes {
		switch {
		case key == wanted:
		case now.Sub(e.used) > g.cfg.IdleTimeout:
			dropped = append(dropped, e)
			delete(g.routes, key)
		case g.routes[oldest] == nil || e.used.Before(g.routes[oldest].used):
			oldest = key
		}
	}
	if e := g.routes[oldest]; e != nil && len(g.routes) >= maxRoutes && g.routes[wanted] == nil {
		dropped = append(dropped, e)
		delete(g.routes, oldest)
	}
	return dropped
}

// retire ends the generation: its idle connections are closed now, the others when they become idle, or
// have been for IdleTimeout (those of HTTP/2, and of a request that began in this moment).
func (g *generation) retire() {
	g.mu.Lock()
	g.retired = true
	var all []*routeEntry
	for _, e := range g.routes {
		all = append(all, e)
	}
	g.mu.Unlock()
	closeIdle(all)
}

// closeIdle closes idle connections. To end TLS takes a write, so no lock may be held.
func closeIdle(entries []*routeEntry) {
	for _, e := range entries {
		e.transport.CloseIdleConnections()
	}
}

func (g *generation) newTransport(key routeKey, proxy *url.URL) *http.Transport {
	d := &dialer{cfg: &g.cfg, tls: g.trust.config, sockets: key.sockets, resolver: g.pool.options.Resolver, proxy: proxy}
	t := &http.Transport{
		DialContext:            d.dial,
		TLSClientConfig:        g.trust.config.Clone(), // net/http writes to it
		TLSHandshakeTimeout:    g.cfg.ConnectTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           maxIdlePerRoute,
		MaxIdleConnsPerHost:    maxIdlePerEndpoint,
		IdleConnTimeout:        g.cfg.IdleTimeout,
		ExpectContinueTimeout:  continueWait,
		MaxResponseHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: g.pool.pingAfter, PingTimeout: g.pool.pingTimeout,
			MaxReceiveBufferPerStream: streamWindow,
		},
	}
	if proxy != nil {
		t.Proxy = http.ProxyURL(d.proxyForTransport())
		t.OnProxyConnectResponse = d.tunnelled
	}
	return t
}
