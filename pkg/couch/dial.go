package couch

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
)

// keepAlivePeriod is the time between two TCP keepalive probes, and before the first.
const keepAlivePeriod = 30 * time.Second

// ConnectTo is another address for endpoints, as CouchDB's connect_to and curl's --connect-to have it:
// requests for Host and Port go to Target and TargetPort. Nothing else changes: neither the name that a
// certificate must have nor the Host header.
type ConnectTo struct {
	// Host is a name, whose case does not count. A * in front stands for anything: *.example.com for all
	// names below example.com, but not for that.
	Host       string
	Port       int
	Target     string // a name, or an address without brackets
	TargetPort int
}

// matches reports whether c is about a host, in lower case, and a port.
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

// redirected returns the address that stands for addr, which is a host and a port.
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
	cfg      *PoolConfig
	tls      *tls.Config
	sockets  SocketOptions
	resolver *net.Resolver
	proxy    *url.URL
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
	nd := &net.Dialer{
		Timeout: timeout, KeepAlive: keepAlivePeriod, Resolver: d.resolver,
		// It sees each address that is tried, after DNS, and just before that: no name that changes its
		// address in between can get around it.
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			return d.guard(address)
		},
	}
	if d.sockets.NoKeepAlive {
		nd.KeepAlive = -1
	}
	conn, err := nd.DialContext(ctx, network, to)
	if err != nil {
		return nil, d.dialError(addr, to, err)
	}
	d.sockets.apply(conn)
	if d.proxy != nil && d.proxy.Scheme == "https" {
		return d.secureProxy(ctx, conn, timeout)
	}
	return conn, nil
}

func (d *dialer) guard(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err // it is not the address of an Internet socket, which nobody asked for
	}
	return checkAddress(d.cfg.Denied, to.Addr())
}

// apply sets the options of a socket. That a system does not follow them all is no reason to do without
// the connection.
func (o SocketOptions) apply(conn net.Conn) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	if o.Delay {
		_ = c.SetNoDelay(false)
	}
	if o.SendBuffer > 0 {
		_ = c.SetWriteBuffer(o.SendBuffer)
	}
	if o.ReceiveBuffer > 0 {
		_ = c.SetReadBuffer(o.ReceiveBuffer)
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

// secureProxy begins TLS with an https proxy. net/http would do that, too, but it would offer HTTP/2,
// which it does not speak to a proxy.
func (d *dialer) secureProxy(ctx context.Context, conn net.Conn, timeout time.Duration) (net.Conn, error) {
	trace := httptrace.ContextClientTrace(ctx)
	if trace != nil && trace.TLSHandshakeStart != nil {
		trace.TLSHandshakeStart()
	}
	cfg := d.tls.Clone()
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

// proxyForTransport is the proxy as net/http is to see it: TLS with it is the dialer's work, so that it
// is an http one, with the port of https.
func (d *dialer) proxyForTransport() *url.URL {
	u := *d.proxy
	if u.Scheme == "https" {
		u.Scheme = "http"
		u.Host = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
	}
	return &u
}

// tunnelled looks at a proxy's answer to CONNECT. It is net/http's OnProxyConnectResponse.
func (d *dialer) tunnelled(_ context.Context, _ *url.URL, asked *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &ConnectError{Step: StepProxy, Host: asked.Host, Proxy: proxyName(d.proxy), Status: answer.StatusCode}
}

// connectTimeoutKey is the key of what withConnectTimeout adds to a context.
type connectTimeoutKey struct{}

// withConnectTimeout says how long a request may wait for its connection, if it needs a new one.
func withConnectTimeout(ctx context.Context, timeout time.Duration) context.Context {
	return context.WithValue(ctx, connectTimeoutKey{}, timeout)
}
