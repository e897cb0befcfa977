package couch

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
)

// route is a way from a pool to endpoints: directly or through a proxy.
type route struct {
	pool    *Pool
	proxy   *url.URL       // nil: none
	sockets *SocketOptions // nil: the pool's
}

// RoundTrip makes a request. What keeps it from a connection is a [*ConnectError].
func (r *route) RoundTrip(req *http.Request) (*http.Response, error) {
	g, transport, err := r.transport()
	if err == nil && r.proxy != nil {
		err = r.allowed(g, req.URL)
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
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
	// A request to an http endpoint is the proxy's to answer. Who says this is never the endpoint.
	if r.proxy != nil && answer.StatusCode == http.StatusProxyAuthRequired {
		_ = answer.Body.Close()
		return nil, &ConnectError{Step: StepProxy, Host: hostPort(req.URL), Proxy: proxyName(r.proxy), Status: answer.StatusCode}
	}
	return answer, nil
}

func (r *route) transport() (*generation, *http.Transport, error) {
	for {
		g, err := r.pool.current()
		if err != nil {
			return nil, nil, err
		}
		key := routeKey{sockets: g.cfg.Sockets}
		if r.proxy != nil {
			key.proxy = r.proxy.String()
		}
		if r.sockets != nil {
			key.sockets = *r.sockets
		}
		if t := g.transport(key, r.proxy, r.pool.now()); t != nil {
			return g, t, nil
		}
	}
}

// allowed checks what a proxy is asked to reach, if that is an address.
func (r *route) allowed(g *generation, u *url.URL) error {
	addr, ok := literalAddress(u.Hostname())
	if !ok {
		return nil
	}
	if err := checkAddress(g.cfg.Denied, addr); err != nil {
		return &ConnectError{Step: StepConnect, Host: hostPort(u), Proxy: proxyName(r.proxy), Err: err}
	}
	return nil
}

// outset is what a request met on its way to a connection. A dial may outlive the request that it was
// begun for.
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

// explain says who failed, if it was on the way to a connection.
func (r *route) explain(req *http.Request, o *outset, err error) error {
	if e, ok := errors.AsType[*ConnectError](err); ok {
		return e
	}
	if req.Context().Err() != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	e := &ConnectError{Step: StepTLS, Host: hostPort(req.URL), Err: err}
	if r.proxy != nil {
		e.Proxy = proxyName(r.proxy)
	}
	switch {
	case o.handshake != nil:
		e.Err = o.handshake
		return e
	case isTLSAlert(err):
		// With TLS 1.3 a server says only after the handshake what it thinks of the client's certificate.
		return e
	case r.proxy != nil && !o.connected:
		e.Step = StepProxy
		if failed, ok := errors.AsType[*net.OpError](err); ok {
			e.Err = failed.Err // it names the addresses, which the error has
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
