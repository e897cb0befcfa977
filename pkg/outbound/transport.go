package outbound

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"

	"settee/pkg/redact"
	"settee/pkg/sockopt"
)

// Transport makes requests over the connections of a [Pool], directly or through one proxy. It never follows
// redirects. It is safe for concurrent use.
type Transport struct {
	pool    *Pool
	proxy   *url.URL         // nil: none
	sockets *sockopt.Options // nil: the pool's
}

// TransportOptions say which connections of a pool a transport uses.
type TransportOptions struct {
	// Proxy is the URL of an http, https or socks5 proxy, with its user and password if it needs them.
	// Empty: none. The proxies of the environment are not used.
	Proxy string `json:"-"`
	// Sockets replace PoolConfig.Sockets. nil means the sockets of the pool.
	Sockets *sockopt.Options
}

// String is the proxy's URL without its password.
func (o TransportOptions) String() string { return "by proxy " + redact.Text(o.Proxy) }

// Format writes String for every verb: the proxy's password is not printed.
func (o TransportOptions) Format(f fmt.State, verb rune) {
	redact.Format(f, verb, o.String(), "outbound.TransportOptions("+o.String()+")")
}

// Transport returns a transport over the connections of the pool. It needs no closing. It fails if the proxy is
// not the URL of one; the error does not quote it.
func (p *Pool) Transport(options TransportOptions) (*Transport, error) {
	proxy, err := ParseProxy(options.Proxy)
	if err != nil {
		return nil, err
	}
	return &Transport{pool: p, proxy: proxy, sockets: options.Sockets}, nil
}

// RoundTrip implements [http.RoundTripper]. A request that gets no connection fails with a [*ConnectError].
func (r *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	g, transport := r.transport()
	if r.proxy != nil {
		if err := r.allowed(g, req.URL); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, err
		}
	}
	if ctx := traceFlow(req.Context()); ctx != req.Context() {
		req = req.WithContext(ctx)
	}
	var o outset
	if r.proxy != nil || req.URL.Scheme == "https" {
		ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { o.set(func() { o.connected = true }) },
			TLSHandshakeDone: func(state tls.ConnectionState, err error) {
				o.set(func() { o.handshake = err })
				if err == nil {
					g.trust.report(req.URL.Host, state, r.pool.warn)
				}
			},
		})
		req = req.WithContext(ctx)
	}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return nil, r.explain(req, &o, err)
	}
	// The proxy answers requests to http endpoints itself. This status is never the endpoint's.
	if r.proxy != nil && answer.StatusCode == http.StatusProxyAuthRequired {
		_ = answer.Body.Close()
		return nil, &ConnectError{Step: StepProxy, Host: HostPort(req.URL), Proxy: proxyName(r.proxy), Status: answer.StatusCode}
	}
	return answer, nil
}

func (r *Transport) transport() (*generation, *http.Transport) {
	for {
		g := r.pool.current()
		key := routeKey{sockets: newSockets(*cmp.Or(r.sockets, &g.cfg.Sockets))}
		if r.proxy != nil {
			key.proxy = r.proxy.String()
		}
		if t := g.transport(key, r.proxy, r.pool.now()); t != nil {
			return g, t
		}
	}
}

// allowed returns an error if a proxy may reach an address in a denied network.
func (r *Transport) allowed(g *generation, u *url.URL) error {
	if err := checkHost(g.cfg.Denied, u.Hostname()); err != nil {
		return &ConnectError{Step: StepConnect, Host: HostPort(u), Proxy: proxyName(r.proxy), Err: err}
	}
	return nil
}

// outset is how far a request came on its way to a connection. A dial may outlive the request that began it.
type outset struct {
	mu        sync.Mutex
	connected bool
	handshake error
}

func (o *outset) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// explain returns a [*ConnectError] if err happened before there was a connection, and err otherwise.
func (r *Transport) explain(req *http.Request, o *outset, err error) error {
	if e, ok := errors.AsType[*ConnectError](err); ok {
		return e
	}
	if req.Context().Err() != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	e := &ConnectError{Step: StepTLS, Host: HostPort(req.URL), Err: err}
	if r.proxy != nil {
		e.Proxy = proxyName(r.proxy)
	}
	switch {
	case o.handshake != nil:
		e.Err = o.handshake
		return e
	case isTLSAlert(err):
		// With TLS 1.3 a server refuses the client's certificate only after the handshake.
		return e
	case r.proxy != nil && !o.connected:
		e.Step = StepProxy
		if failed, ok := errors.AsType[*net.OpError](err); ok {
			e.Err = failed.Err // without the addresses, which e names
		}
		return e
	}
	return err
}

// isTLSAlert reports whether the other side ended TLS with an alert.
func isTLSAlert(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "remote error"
}
