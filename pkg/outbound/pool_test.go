package outbound_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/outbound"
	"settee/pkg/sockopt"
)

// settings is a configuration that a test may change.
type settings struct {
	mu  sync.Mutex
	cfg outbound.PoolConfig
}

func (s *settings) get() outbound.PoolConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

func (s *settings) edit(change func(*outbound.PoolConfig)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.cfg)
}

// newPool makes a pool that is closed when the test ends, with a configuration to change.
func newPool(t testing.TB, options outbound.PoolOptions, edit ...func(*outbound.PoolConfig)) (*outbound.Pool, *settings) {
	t.Helper()
	s := &settings{}
	for _, e := range edit {
		e(&s.cfg)
	}
	options.Config = s.get
	pool := outbound.NewPool(options)
	t.Cleanup(pool.Close)
	return pool, s
}

// client makes requests to one URL.
type client struct {
	transport *outbound.Transport
	url       string
}

// through returns a client that uses the pool's connections.
func through(t testing.TB, pool *outbound.Pool, url string, options outbound.TransportOptions) client {
	t.Helper()
	transport, err := pool.Transport(options)
	require.NoError(t, err)
	return client{transport, url}
}

// begin makes a request and returns the answer. The caller closes its body.
func (c client) begin(ctx context.Context) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return nil, err
	}
	return c.transport.RoundTrip(r)
}

// get makes a request and returns the answer's text.
func (c client) get(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	answer, err := c.begin(ctx)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// counted is a server that counts its connections, and tells when one is closed.
type counted struct {
	*httptest.Server
	opened atomic.Int32
	closed chan struct{}
}

func newCounted(t testing.TB, handler http.HandlerFunc, edit ...func(*httptest.Server)) *counted {
	t.Helper()
	s := &counted{Server: httptest.NewUnstartedServer(handler), closed: make(chan struct{}, 1000)}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.opened.Add(1)
		case http.StateClosed:
			s.closed <- struct{}{}
		}
	}
	for _, e := range edit {
		e(s.Server)
	}
	if s.TLS != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func sayHello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func TestPoolSharesConnections(t *testing.T) {
	t.Parallel()
	server := newCounted(t, sayHello)
	pool, _ := newPool(t, outbound.PoolOptions{})
	info := func(name string, options outbound.TransportOptions) {
		_, err := through(t, pool, server.URL+"/"+name, options).get(t.Context())
		require.NoError(t, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		info(name, outbound.TransportOptions{})
	}
	// What the node's sockets are anyway makes no difference; anything else does.
	info("d", outbound.TransportOptions{Sockets: &sockopt.Options{KeepAlive: new(true), NoDelay: new(true)}})
	require.EqualValues(t, 1, server.opened.Load())
	own := outbound.TransportOptions{Sockets: &sockopt.Options{NoDelay: new(false), KeepAlive: new(false), SendBuffer: new(1 << 16), ReceiveBuffer: new(1 << 16)}}
	info("e", own)
	info("f", own)
	require.EqualValues(t, 2, server.opened.Load())
	require.Equal(t, 2, pool.Routes())
}

func TestPoolClosesIdleConnections(t *testing.T) {
	t.Parallel()
	server := newCounted(t, sayHello)
	pool, settings := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.IdleTimeout = 10 * time.Millisecond })
	db := through(t, pool, server.URL+"/db", outbound.TransportOptions{})
	_, err := db.get(t.Context())
	require.NoError(t, err)
	<-server.closed

	// A setting that changes counts for connections that are idle, too.
	settings.edit(func(c *outbound.PoolConfig) { c.IdleTimeout = time.Hour })
	_, err = db.get(t.Context())
	require.NoError(t, err)
	require.Empty(t, server.closed)
	settings.edit(func(c *outbound.PoolConfig) { c.IdleTimeout = time.Minute })
	_, err = db.get(t.Context())
	require.NoError(t, err)
	<-server.closed
	require.EqualValues(t, 3, server.opened.Load())
	pool.Close()
	<-server.closed
}

func TestPoolBoundsIdleConnections(t *testing.T) {
	t.Parallel()
	const crowd = outbound.MaxIdlePerEndpoint + 20
	var waiting sync.WaitGroup
	waiting.Add(crowd)
	server := newCounted(t, func(w http.ResponseWriter, r *http.Request) {
		waiting.Done()
		waiting.Wait() // all of them are under way
		sayHello(w, r)
	})
	pool, _ := newPool(t, outbound.PoolOptions{})
	var running sync.WaitGroup
	for i := range crowd {
		db := through(t, pool, fmt.Sprintf("%s/db%d", server.URL, i), outbound.TransportOptions{})
		running.Go(func() { _, _ = db.get(t.Context()) })
	}
	running.Wait()
	for range crowd - outbound.MaxIdlePerEndpoint {
		<-server.closed
	}
	require.EqualValues(t, crowd, server.opened.Load())
}

// Connections that need a transport of their own do not make the pool grow for ever.
func TestPoolForgetsRoutes(t *testing.T) {
	t.Parallel()
	server := newCounted(t, sayHello)
	pool, _ := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.IdleTimeout = time.Hour })
	var now atomic.Int64
	pool.SetClock(func() time.Time { return time.Unix(now.Add(1), 0) })
	use := func(buffer int) {
		sockets := &sockopt.Options{SendBuffer: new(10_000 + buffer)}
		_, err := through(t, pool, server.URL+"/db", outbound.TransportOptions{Sockets: sockets}).get(t.Context())
		require.NoError(t, err)
	}
	for i := range outbound.MaxRoutes + 5 {
		use(i)
	}
	require.Equal(t, outbound.MaxRoutes, pool.Routes())
	for range 5 {
		<-server.closed // of those that have waited longest
	}
	use(outbound.MaxRoutes + 4)
	require.EqualValues(t, outbound.MaxRoutes+5, server.opened.Load())

	now.Add(3601) // all but the one that is used now are forgotten
	use(outbound.MaxRoutes + 4)
	require.Equal(t, 1, pool.Routes())
	for range outbound.MaxRoutes - 1 {
		<-server.closed
	}
}

// An answer goes on while the settings change under it.
func TestPoolChangesUnderARequest(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	server := newCounted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/feed" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-more
		}
		sayHello(w, r)
	})
	pool, settings := newPool(t, outbound.PoolOptions{})
	feed, err := through(t, pool, server.URL+"/feed", outbound.TransportOptions{}).begin(t.Context())
	require.NoError(t, err)
	defer feed.Body.Close()
	settings.edit(func(c *outbound.PoolConfig) { c.IdleTimeout = time.Hour })
	_, err = through(t, pool, server.URL+"/db", outbound.TransportOptions{}).get(t.Context())
	require.NoError(t, err)
	require.Empty(t, server.closed)
	close(more)
	text, err := io.ReadAll(feed.Body)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
	<-server.closed // and its connection is not kept
}

// Whatever changes while requests are made, each is made under one of the configurations.
func TestPoolUnderChanges(t *testing.T) {
	t.Parallel()
	server := newCounted(t, sayHello)
	pool, settings := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.IdleTimeout = time.Minute })
	var running sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		db := through(t, pool, server.URL+"/db", outbound.TransportOptions{Sockets: &sockopt.Options{SendBuffer: new(10_000 * (1 + i%3))}})
		running.Go(func() {
			for range 50 {
				if _, err := db.get(t.Context()); err != nil {
					errs[i] = err
				}
			}
		})
	}
	for i := range 50 {
		settings.edit(func(c *outbound.PoolConfig) { c.IdleTimeout = time.Minute + time.Duration(i) })
		if i%10 == 0 {
			pool.Close()
		}
		_, err := through(t, pool, server.URL+"/db", outbound.TransportOptions{}).get(t.Context())
		require.NoError(t, err)
	}
	running.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func TestPoolWithHTTP2(t *testing.T) {
	t.Parallel()
	const crowd = 10
	ca := issue(t, nil, "ca", authority)
	var waiting sync.WaitGroup
	waiting.Add(crowd)
	var protos sync.Map
	server := newCounted(t, func(w http.ResponseWriter, r *http.Request) {
		protos.Store(r.Proto, true)
		if r.URL.Path != "/first" {
			waiting.Done()
			waiting.Wait()
		}
		sayHello(w, r)
	}, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 3}
		s.TLS = serverTLS(issue(t, ca, "server"))
	})
	pool, _ := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.TLS.CAFile = writeFile(t, "ca.pem", ca.certPEM()) })
	_, err := through(t, pool, server.URL+"/first", outbound.TransportOptions{}).get(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, server.opened.Load())

	// All at once, more than the server wants on a connection.
	var running sync.WaitGroup
	errs := make([]error, crowd)
	for i := range crowd {
		db := through(t, pool, fmt.Sprintf("%s/db%d", server.URL, i), outbound.TransportOptions{})
		running.Go(func() { _, errs[i] = db.get(t.Context()) })
	}
	running.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	_, old := protos.Load("HTTP/1.1")
	require.False(t, old)
	require.GreaterOrEqual(t, server.opened.Load(), int32(4))
}

// HTTP/2 finds by a ping that a connection is dead, and the next request gets another one.
func TestPoolNoticesDeadHTTP2(t *testing.T) {
	t.Parallel()
	ca := issue(t, nil, "ca", authority)
	server := newCounted(t, sayHello, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.TLS = serverTLS(issue(t, ca, "server"))
	})
	line := newLine(t, server.Listener.Addr().String())
	pool, _ := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.TLS.CAFile = writeFile(t, "ca.pem", ca.certPEM()) })
	pool.SetPing(50*time.Millisecond, 50*time.Millisecond)
	db := through(t, pool, "https://"+line.address+"/db", outbound.TransportOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	succeeds := func() {
		// On a busy machine a ping of a good connection may be answered too late as well.
		for _, err := db.get(ctx); err != nil; _, err = db.get(ctx) {
			require.NoError(t, ctx.Err())
		}
	}
	succeeds()
	before := server.opened.Load()
	line.cut()
	succeeds()
	require.Greater(t, server.opened.Load(), before)
}

// line passes bytes on to a server, until it is cut.
type line struct {
	address string
	mu      sync.Mutex
	dead    chan struct{} // closed for the connections that are open now
}

func newLine(t testing.TB, to string) *line {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &line{address: listener.Addr().String(), dead: make(chan struct{})}
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		end()
		listener.Close()
		running.Wait()
	})
	pass := func(to, from net.Conn, dead <-chan struct{}) {
		buffer := make([]byte, 4096)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				_ = to.Close()
				return
			}
			select {
			case <-dead: // it is swallowed
			default:
				_, _ = to.Write(buffer[:n])
			}
		}
	}
	running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := new(net.Dialer).DialContext(ctx, "tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			context.AfterFunc(ctx, func() { near.Close(); far.Close() })
			l.mu.Lock()
			dead := l.dead
			l.mu.Unlock()
			running.Go(func() { pass(far, near, dead) })
			running.Go(func() { pass(near, far, dead) })
		}
	})
	return l
}

// cut swallows all further bytes of the connections that are open now.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.dead)
	l.dead = make(chan struct{})
}

func TestConnectTo(t *testing.T) {
	t.Parallel()
	ca := issue(t, nil, "ca", authority)
	var host atomic.Value
	handler := func(w http.ResponseWriter, r *http.Request) {
		host.Store(r.Host)
		sayHello(w, r)
	}
	plain := newCounted(t, handler)
	secure := newCounted(t, handler, func(s *httptest.Server) { s.TLS = serverTLS(issue(t, ca, "server")) })
	port := func(s *counted) int { return s.Listener.Addr().(*net.TCPAddr).Port }
	pool, settings := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) {
		c.TLS.CAFile = writeFile(t, "ca.pem", ca.certPEM())
		c.ConnectTo = []outbound.ConnectTo{
			{Host: "couch.example", Port: 443, Target: "127.0.0.1", TargetPort: port(secure)},
			{Host: "*.Example.org", Port: 5984, Target: "127.0.0.1", TargetPort: port(plain)},
			{Host: "*", Port: 5984, Target: "127.0.0.1", TargetPort: 1},
		}
	})
	for url, want := range map[string]string{
		"https://couch.example/db":       "couch.example", // and the certificate has this name
		"http://a.example.org:5984/db":   "a.example.org:5984",
		"http://B.a.EXAMPLE.org:5984/db": "B.a.EXAMPLE.org:5984",
	} {
		_, err := through(t, pool, url, outbound.TransportOptions{}).get(t.Context())
		require.NoError(t, err, url)
		require.Equal(t, want, host.Load())
	}
	_, err := through(t, pool, "http://example.org:5984/db", outbound.TransportOptions{}).get(t.Context())
	require.EqualError(t, err, "connecting to example.org:5984 at 127.0.0.1:1: connection refused")
	settings.edit(func(c *outbound.PoolConfig) { c.ConnectTo = nil; c.Denied = nil })
}

func TestConnectErrors(t *testing.T) {
	t.Parallel()
	pool, _ := newPool(t, outbound.PoolOptions{Resolver: resolver(t, func(string) []string { return nil })})
	_, err := through(t, pool, "http://couch.example/db", outbound.TransportOptions{}).get(t.Context())
	require.EqualError(t, err, "resolving couch.example:80: no such host")
	var failed *outbound.ConnectError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, outbound.StepResolve, failed.Step)
	var unresolved *net.DNSError
	require.ErrorAs(t, err, &unresolved)

	_, err = through(t, pool, "http://127.0.0.1:1/db", outbound.TransportOptions{}).get(t.Context())
	require.EqualError(t, err, "connecting to 127.0.0.1:1: connection refused")

	// A server that has no TLS, and one that hangs up on it.
	plain := newCounted(t, sayHello)
	_, err = through(t, pool, "https"+plain.URL[4:]+"/db", outbound.TransportOptions{}).get(t.Context())
	require.ErrorContains(t, err, "TLS handshake with "+plain.Listener.Addr().String()+": ")
	require.ErrorAs(t, err, &failed)
	require.Equal(t, outbound.StepTLS, failed.Step)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	_, err = through(t, pool, "https://"+listener.Addr().String()+"/db", outbound.TransportOptions{}).get(t.Context())
	require.ErrorContains(t, err, "TLS handshake with "+listener.Addr().String()+": ")
}
