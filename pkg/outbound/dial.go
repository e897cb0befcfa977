package outbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"settee/pkg/sockopt"
)

// keepAlivePeriod is the time between two TCP keepalive probes, and before the first.
const keepAlivePeriod = 30 * time.Second

// ConnectTo is another address for endpoints, as in CouchDB's connect_to and curl's --connect-to: connections for
// Host and Port go to Target and TargetPort. The certificate and the Host header still name Host.
type ConnectTo struct {
	// Host is a name, without regard to case. A * in front stands for any text: *.example.com matches all names
	// below example.com, but not example.com itself.
	Host       string
	Port       int
	Target     string // a name, or an address without brackets
	TargetPort int
}

// matches reports whether c applies to a host, in lower case, and a port.
func (c ConnectTo) matches(host, port string) bool {
	if strconv.Itoa(c.Port) != port {
		return false
	}
	pattern := strings.ToLower(c.Host)
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(host, suffix)
	}
	return host == pattern
}

// redirected returns the address to dial for addr, both as a host and a port.
func redirected(rules []ConnectTo, addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	host = strings.ToLower(host)
	for _, rule := range rules {
		if rule.matches(host, port) {
			return net.JoinHostPort(rule.Target, strconv.Itoa(rule.TargetPort))
		}
	}
	return addr
}

// dialer makes the connections of a route: to endpoints, or to its proxy.
type dialer struct {
	*generation
	sockets sockets
	proxy   *url.URL
}

// dial connects to a host and port. Its errors are [*ConnectError]s. It is net/http's DialContext.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	to := addr
	if d.proxy == nil {
		to = redirected(d.cfg.ConnectTo, addr)
	}
	timeout := d.cfg.ConnectTimeout
	if own, ok := ctx.Value(connectTimeoutKey{}).(time.Duration); ok {
		timeout = own
	}
	open := &d.pool.places
	if !open.take() {
		d.closeIdle()
		if !open.take() {
			return nil, d.dialError(addr, to, ErrTooManyConnections)
		}
	}
	nd := &net.Dialer{
		Timeout: timeout, KeepAlive: keepAlivePeriod, Resolver: d.pool.options.Resolver,
		// It is called with each address that is dialled, after the lookup, so that a name that changes its
		// address in between cannot get around the guard.
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return d.guard(address)
		},
	}
	if d.sockets.noKeepAlive {
		nd.KeepAlive = -1
	}
	conn, err := nd.DialContext(ctx, network, to)
	if err != nil {
		open.leave()
		return nil, d.dialError(addr, to, err)
	}
	d.sockets.apply(conn)
	ahead := readAhead(conn)
	if ahead != nil {
		conn = ahead
	}
	conn = &countedConn{&placedConn{Conn: conn, places: open}, &d.pool.traffic, ahead}
	if d.proxy != nil && d.proxy.Scheme == "https" {
		return d.secureProxy(ctx, conn, timeout)
	}
	return conn, nil
}

func (d *dialer) guard(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err // not the address of an Internet socket, which no request asks for
	}
	return checkAddress(d.cfg.Denied, to.Addr())
}

// sockets are socket options in a form that can be compared. The zero value has Go's defaults.
type sockets struct {
	noKeepAlive, delay        bool
	sendBuffer, receiveBuffer int // bytes; 0: the system's
}

func newSockets(o sockopt.Options) sockets {
	var s sockets
	s.noKeepAlive = o.KeepAlive != nil && !*o.KeepAlive
	s.delay = o.NoDelay != nil && !*o.NoDelay
	if o.SendBuffer != nil {
		s.sendBuffer = *o.SendBuffer
	}
	if o.ReceiveBuffer != nil {
		s.receiveBuffer = *o.ReceiveBuffer
	}
	return s
}

// apply sets the options of a connection's socket. An option that the system refuses is left as it is.
func (o sockets) apply(conn net.Conn) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	if o.delay {
		_ = c.SetNoDelay(false)
	}
	if o.sendBuffer > 0 {
		_ = c.SetWriteBuffer(o.sendBuffer)
	}
	if o.receiveBuffer > 0 {
		_ = c.SetReadBuffer(o.receiveBuffer)
	}
}

func (d *dialer) dialError(addr, to string, err error) error {
	e := &ConnectError{Step: StepConnect, Host: addr, Err: err}
	if d.proxy != nil {
		e.Host, e.Proxy = "", proxyName(d.proxy)
	}
	if to != addr {
		e.At = to
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		e.Step = StepResolve
	}
	return e
}

// secureProxy makes a TLS connection to an https proxy. net/http could do that too, but it would offer HTTP/2, which
// it does not speak with a proxy.
func (d *dialer) secureProxy(ctx context.Context, conn net.Conn, timeout time.Duration) (net.Conn, error) {
	trace := httptrace.ContextClientTrace(ctx)
	if trace != nil && trace.TLSHandshakeStart != nil {
		trace.TLSHandshakeStart()
	}
	cfg := d.trust.config.Clone()
	cfg.ServerName = d.proxy.Hostname()
	cfg.NextProtos = []string{"http/1.1"}
	secure := tls.Client(conn, cfg)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := secure.HandshakeContext(ctx)
	if trace != nil && trace.TLSHandshakeDone != nil {
		trace.TLSHandshakeDone(tls.ConnectionState{}, err)
	}
	if err != nil {
		_ = conn.Close()
		return nil, &ConnectError{Step: StepTLS, Proxy: proxyName(d.proxy), Err: err}
	}
	return secure, nil
}

// proxyForTransport returns the proxy's URL for net/http. The dialer does TLS with an https proxy, so that net/http
// sees an http proxy at the port of https.
func (d *dialer) proxyForTransport() *url.URL {
	u := *d.proxy
	if u.Scheme == "https" {
		u.Scheme = "http"
		u.Host = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
	}
	return &u
}

// tunnelled returns an error if the proxy refused a CONNECT. It is net/http's OnProxyConnectResponse.
func (d *dialer) tunnelled(_ context.Context, _ *url.URL, asked *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &ConnectError{Step: StepProxy, Host: asked.Host, Proxy: proxyName(d.proxy), Status: answer.StatusCode}
}

// connectTimeoutKey is the key of the value that WithConnectTimeout adds to a context.
type connectTimeoutKey struct{}

// WithConnectTimeout returns a context for a request. If the request needs a new connection, timeout replaces
// [PoolConfig].ConnectTimeout. For TLS the shorter of both counts.
func WithConnectTimeout(ctx context.Context, timeout time.Duration) context.Context {
	return context.WithValue(ctx, connectTimeoutKey{}, timeout)
}
