package outbound

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"settee/pkg/sockopt"
)

// The defaults of a PoolConfig, and what cannot be configured.
const (
	defaultConnectTimeout = 30 * time.Second // [replicator] connection_timeout
	defaultIdleTimeout    = 90 * time.Second // [replicator] connection_close_interval

	// maxIdlePerEndpoint and maxIdlePerRoute bound the connections that are kept idle. More than these are
	// closed as soon as they become idle.
	maxIdlePerEndpoint = 256
	maxIdlePerRoute    = 1_000
	// maxRoutes bounds how many combinations of proxy and socket options have connections of their own. When
	// one more is needed, the one that was used least recently loses its idle connections. So the pool keeps at
	// most maxRoutes * maxIdlePerRoute idle connections; with one route, as nearly everywhere, 1,000.
	maxRoutes = 64

	// An HTTP/2 connection that has been silent for pingAfter gets a ping, and is closed if there is no answer
	// within pingTimeout. Both together are shorter than the default ConnectTimeout, so that a request that
	// stalled is repeated on another connection.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	// streamWindow is how many bytes of one HTTP/2 answer may wait in memory for its reader, and so how many
	// one answer can bring per round trip.
	streamWindow = 512 << 10
	// An HTTP/1.1 connection has a buffer of writeBuffer bytes for requests, and one of readBuffer bytes for answers. Headers
	// fit into them, and so must the line before each chunk. Bodies do not go through them. They are small because thousands
	// of connections wait for changes. That costs no system calls: a connection reads ahead, and TLS reads whole records.
	writeBuffer, readBuffer = 1 << 10, 1 << 10
	// maxHeader bounds the headers of an answer.
	maxHeader = 256 << 10

	// continueWait is how long a request with Expect: 100-continue waits for the server to agree.
	continueWait = time.Second
)

// PoolConfig configures connections. The zero PoolConfig has every default.
type PoolConfig struct {
	// ConnectTimeout bounds each of the waits for a connection: for the address, the connection itself, and
	// TLS. [WithConnectTimeout] replaces it for one request; for TLS the shorter one counts. Default: 30 s.
	ConnectTimeout time.Duration
	// IdleTimeout is how long an idle connection is kept. Default: 90 s.
	IdleTimeout time.Duration
	// Sockets are the socket options of transports that have none of their own. Go sets TCP keepalive and
	// TCP_NODELAY, and leaves the buffers to the system.
	Sockets sockopt.Options
	// ConnectTo are other addresses for endpoints; the first that matches counts. Requests through a proxy are
	// not redirected: the proxy finds the endpoint.
	ConnectTo []ConnectTo
	// Denied are the networks that no connection is made to, neither to an endpoint nor to a proxy: such a
	// request fails with [ErrDenied]. The address that is dialled counts, whatever name led to it. IPv4 networks
	// are to be written as such. A proxy looks up endpoints by itself: only the literal addresses that it is
	// asked for are checked.
	Denied []netip.Prefix
	// TLS has the certificates.
	TLS TLSConfig
}

// PoolOptions are the parts of a [Pool].
type PoolOptions struct {
	// Config returns the configuration. It is called for each request, concurrently, and has to be quick. A
	// change counts for the next request, which gets a new connection. Connections made before are closed
	// when they become idle. nil: the zero PoolConfig.
	Config func() PoolConfig
	// Warn, if not nil, is called with warnings for the operator: once for each new version of a file of
	// certificates that cannot be used, and with TLSConfig.Report for certificates that are not trustworthy.
	// It must not block.
	Warn func(error)
	// Resolver finds the addresses of names. nil: the system's.
	Resolver *net.Resolver
	// MaxConnections is the maximum number of connections. When there are as many, idle ones are closed, and a request
	// that needs another one fails with [ErrTooManyConnections]. 0: any number.
	MaxConnections int
}

// Pool keeps the connections of one node: to all its endpoints, for all its jobs. Requests share connections if they
// have the same endpoint (scheme, host and port), proxy (with its credentials) and socket options. The pool speaks
// HTTP/2 with servers that do, with many requests on one connection; a server that allows fewer requests per
// connection than there are gets more connections.
//
// Each request needs a connection, or a stream of one. Idle connections are closed after a time, and at once where there
// are too many. A Pool has no goroutines except the goroutines of its connections. It is safe for concurrent use.
type Pool struct {
	options PoolOptions
	state   atomic.Pointer[generation]
	traffic traffic
	places  places

	// The clock and the times, which tests replace.
	now                    func() time.Time
	pingAfter, pingTimeout time.Duration
}

// NewPool returns a pool without connections.
func NewPool(options PoolOptions) *Pool {
	return &Pool{
		options: options, places: places{max: int64(options.MaxConnections)},
		now: time.Now, pingAfter: pingAfter, pingTimeout: pingTimeout,
	}
}

// Close closes idle connections. Requests under way go on; no other request uses their connections, which are closed
// at most IdleTimeout after them. A change of the configuration does the same.
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
		cfg.ConnectTimeout = defaultConnectTimeout
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = defaultIdleTimeout
	}
	return cfg
}

// Certificate returns the client's certificate that the next request would use, or nil if the configuration has none.
// It fails if the files cannot be used.
func (p *Pool) Certificate() (*tls.Certificate, error) {
	g := p.current()
	return g.trust.own, g.trust.unusable
}

func (p *Pool) warn(err error) {
	if p.options.Warn != nil {
		p.options.Warn(err)
	}
}

// current returns the connections of the present configuration.
func (p *Pool) current() *generation {
	for {
		old := p.state.Load()
		g := p.renew(old)
		if g == old {
			return g
		}
		if p.state.CompareAndSwap(old, g) {
			if old != nil {
				old.retire()
			}
			return g
		}
		// Another goroutine was faster. The generation that was made here has no connections yet.
	}
}

// renew returns old if neither the configuration nor the files that it names have changed, and otherwise a new
// generation.
func (p *Pool) renew(old *generation) *generation {
	cfg := p.config()
	if old == nil || !reflect.DeepEqual(old.cfg.TLS, cfg.TLS) {
		trust := loadTrust(cfg.TLS, p.now())
		if err := trust.unusable; err != nil {
			if old != nil {
				trust = old.trust.kept(trust)
			}
			p.warn(trust.told(err))
		}
		return p.newGeneration(cfg, trust)
	}
	trust, err := old.trust.reload(p.now())
	if err != nil {
		p.warn(err)
	}
	if trust == old.trust && reflect.DeepEqual(old.cfg, cfg) {
		return old
	}
	return p.newGeneration(cfg, trust)
}

// generation has the connections that were made under one configuration. Another configuration is another
// generation, so that no request uses a connection that the present configuration forbids.
type generation struct {
	pool  *Pool
	cfg   PoolConfig
	trust *trust

	mu      sync.Mutex
	routes  map[routeKey]*routeEntry
	tidied  time.Time // when unused routes were last removed
	retired bool
}

// routeKey is what shared connections have in common beside their endpoint. Each key has an [http.Transport] of its
// own: net/http tells the connections of a transport apart by endpoint, but with HTTP/2 not by proxy. The proxy has
// its credentials and must not be printed.
type routeKey struct {
	proxy   string
	sockets sockets
}

type routeEntry struct {
	transport *http.Transport
	used      time.Time // when its latest request began
}

func (p *Pool) newGeneration(cfg PoolConfig, trust *trust) *generation {
	return &generation{pool: p, cfg: cfg, trust: trust, routes: make(map[routeKey]*routeEntry), tidied: p.now()}
}

// transport returns the transport of a route, or nil if the generation is retired.
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

// tidy removes the routes that no request began to use within IdleTimeout, and makes room for the wanted one. It
// returns the removed ones, whose idle connections the caller closes; requests under way go on. g.mu is held.
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

// retire ends the generation: its idle connections are closed now, the others when they become idle. Those of HTTP/2,
// and of a request that begins at this moment, are closed when they have been idle for IdleTimeout.
func (g *generation) retire() {
	g.mu.Lock()
	g.retired = true
	g.mu.Unlock()
	g.closeIdle()
}

// closeIdle closes all idle connections.
func (g *generation) closeIdle() {
	g.mu.Lock()
	all := slices.Collect(maps.Values(g.routes))
	g.mu.Unlock()
	closeIdle(all)
}

// closeIdle closes idle connections. Ending TLS writes to the connection, so no lock may be held.
func closeIdle(entries []*routeEntry) {
	for _, e := range entries {
		e.transport.CloseIdleConnections()
	}
}

func (g *generation) newTransport(key routeKey, proxy *url.URL) *http.Transport {
	d := &dialer{generation: g, sockets: key.sockets, proxy: proxy}
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
		WriteBufferSize:        writeBuffer,
		ReadBufferSize:         readBuffer,
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
