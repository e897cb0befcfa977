package outbound_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/outbound"
)

const (
	proxyUser     = "proxyuser"
	proxyPassword = "s3cr3t/pr0xy"
	proxyUserinfo = proxyUser + ":s3cr3t%2Fpr0xy@"
)

// httpProxy is a proxy that wants a user and a password. It leads every name to one address.
type httpProxy struct {
	*counted
	served atomic.Int32
	to     string // for CONNECT
}

func newHTTPProxy(t testing.TB, cert *issued) *httpProxy {
	t.Helper()
	p := &httpProxy{}
	var tunnels sync.WaitGroup
	p.counted = newCounted(t, func(w http.ResponseWriter, r *http.Request) {
		want := "Basic " + base64.StdEncoding.EncodeToString([]byte(proxyUser+":"+proxyPassword))
		switch {
		case r.Header.Get("Proxy-Authorization") != want:
			http.Error(w, "not with "+r.Header.Get("Proxy-Authorization"), http.StatusProxyAuthRequired)
		case r.Method == http.MethodConnect && p.to == "":
			http.Error(w, "no", http.StatusForbidden)
		case r.Method == http.MethodConnect:
			p.served.Add(1)
			near, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
			tunnels.Go(func() { tunnel(near, buffered.Reader, p.to) })
		default:
			p.served.Add(1)
			_, _ = io.WriteString(w, r.URL.String())
		}
	}, func(s *httptest.Server) {
		if cert != nil {
			s.EnableHTTP2 = true
			s.TLS = serverTLS(cert)
		}
	})
	t.Cleanup(tunnels.Wait)
	return p
}

// tunnel passes bytes both ways until one side hangs up.
func tunnel(near net.Conn, r *bufio.Reader, to string) {
	defer near.Close()
	far, err := new(net.Dialer).DialContext(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(far, r)
		_ = far.Close()
	})
	_, _ = io.Copy(near, far)
	_ = near.Close()
	up.Wait()
}

func (p *httpProxy) name() string { return p.URL }

func (p *httpProxy) url() string { return strings.Replace(p.URL, "://", "://"+proxyUserinfo, 1) }

func serverTLS(cert *issued) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert.pair()}}
}

// newSOCKS starts a SOCKS5 proxy (RFC 1928) that wants a user and a password (RFC 1929), leads every name
// to one address and says that all others are unreachable.
func newSOCKS(t testing.TB, name, to string) (address string, served *atomic.Int32) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served = new(atomic.Int32)
	var running sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				r := bufio.NewReader(conn)
				if !greetSOCKS(conn, r, name) {
					_ = conn.Close()
					return
				}
				served.Add(1)
				tunnel(conn, r, to)
			})
		}
	})
	return listener.Addr().String(), served
}

func greetSOCKS(w io.Writer, r *bufio.Reader, name string) bool {
	read := func(n int) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(r, b)
		return b
	}
	field := func() string { return string(read(int(read(1)[0]))) }
	version := read(1)
	methods := field()
	if version[0] != 5 || !strings.Contains(methods, "\x02") {
		_, _ = w.Write([]byte{5, 0xff})
		return false
	}
	_, _ = w.Write([]byte{5, 2})
	_ = read(1)
	if user, password := field(), field(); user != proxyUser || password != proxyPassword {
		_, _ = w.Write([]byte{1, 1})
		return false
	}
	_, _ = w.Write([]byte{1, 0})
	kind := read(4)[3]
	host := "an address"
	if kind == 3 {
		host = field()
	}
	_ = read(2)
	if host != name {
		_, _ = w.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0})
		return false
	}
	_, _ = w.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	return true
}

func TestProxies(t *testing.T) {
	t.Parallel()
	ca := issue(t, nil, "ca", authority)
	server := newCounted(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto+" "+r.Host)
	}, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.TLS = serverTLS(issue(t, ca, "server"))
	})
	pool, _ := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.TLS.CAFile = writeFile(t, "ca.pem", ca.certPEM()) })
	defer pool.Close() // before the proxies wait for the ends of their tunnels
	info := func(url, proxy string) (string, error) {
		return through(t, pool, url, outbound.TransportOptions{Proxy: proxy}).get(t.Context())
	}
	for name, cert := range map[string]*issued{"http": nil, "https": issue(t, ca, "proxy")} {
		proxy := newHTTPProxy(t, cert)
		proxy.to = server.Listener.Addr().String()
		got, err := info("http://couch.example:5984/db", proxy.url())
		require.NoError(t, err, name)
		require.Equal(t, "http://couch.example:5984/db", got)
		got, err = info("https://couch.example/db", proxy.url())
		require.NoError(t, err, name)
		require.Equal(t, "HTTP/2.0 couch.example", got)
		_, err = info("https://couch.example/other", proxy.url())
		require.NoError(t, err, name)
		require.EqualValues(t, 2, proxy.served.Load(), "the second request of the tunnel needs no other")
	}

	address, served := newSOCKS(t, "couch.example", server.Listener.Addr().String())
	for _, scheme := range []string{"socks5", "socks5h"} {
		got, err := info("https://couch.example/db", scheme+"://"+proxyUserinfo+address)
		require.NoError(t, err)
		require.Equal(t, "HTTP/2.0 couch.example", got)
	}
	require.EqualValues(t, 2, served.Load())
	plain := newCounted(t, sayHello)
	address, _ = newSOCKS(t, "couch.example", plain.Listener.Addr().String())
	_, err := info("http://couch.example/db", "socks5://"+proxyUserinfo+address)
	require.NoError(t, err)
}

// Requests through different proxies, or with different users, never share a connection, even with HTTP/2.
func TestProxiesDoNotShareConnections(t *testing.T) {
	t.Parallel()
	ca := issue(t, nil, "ca", authority)
	server := newCounted(t, sayHello, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.TLS = serverTLS(issue(t, ca, "server"))
	})
	pool, _ := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.TLS.CAFile = writeFile(t, "ca.pem", ca.certPEM()) })
	defer pool.Close() // before the proxies wait for the ends of their tunnels
	use := func(proxy string) error {
		_, err := through(t, pool, server.URL+"/db", outbound.TransportOptions{Proxy: proxy}).get(t.Context())
		return err
	}
	first, second := newHTTPProxy(t, nil), newHTTPProxy(t, nil)
	first.to, second.to = server.Listener.Addr().String(), server.Listener.Addr().String()
	for range 2 {
		require.NoError(t, use(""))
		require.NoError(t, use(first.url()))
		require.NoError(t, use(second.url()))
		require.ErrorContains(t, use(strings.Replace(first.url(), "proxyuser", "somebody", 1)), "407")
	}
	require.EqualValues(t, 1, first.served.Load())
	require.EqualValues(t, 1, second.served.Load())
	require.EqualValues(t, 3, server.opened.Load())
}

func TestProxyErrors(t *testing.T) {
	t.Parallel()
	ca := issue(t, nil, "ca", authority)
	server := newCounted(t, sayHello, func(s *httptest.Server) { s.TLS = serverTLS(issue(t, nil, "stranger")) })
	pool, _ := newPool(t, outbound.PoolOptions{Resolver: resolver(t, func(string) []string { return nil })},
		func(c *outbound.PoolConfig) { c.TLS.CAFile = writeFile(t, "ca.pem", ca.certPEM()) })
	defer pool.Close() // before the proxies wait for the ends of their tunnels
	fails := func(url, proxy, words string) {
		t.Helper()
		_, err := through(t, pool, url, outbound.TransportOptions{Proxy: proxy}).get(t.Context())
		require.ErrorContains(t, err, words)
		for _, secret := range []string{"s3cr3t", proxyUser, base64.StdEncoding.EncodeToString([]byte(proxyUser + ":" + proxyPassword))} {
			require.NotContains(t, err.Error(), secret)
		}
		require.ErrorAs(t, err, new(*outbound.ConnectError))
	}
	const name = "https://couch.example/db"
	fails(name, "http://"+proxyUserinfo+"127.0.0.1:1", "proxy http://127.0.0.1:1: connecting to it: 127.0.0.1:1: connection refused")
	fails(name, "https://"+proxyUserinfo+"127.0.0.1:1", "proxy https://127.0.0.1:1: connecting to it: 127.0.0.1:1: connection refused")
	fails(name, "socks5://"+proxyUserinfo+"127.0.0.1:1", "proxy socks5://127.0.0.1:1: connecting to it: 127.0.0.1:1: connection refused")
	fails(name, "http://"+proxyUserinfo+"proxy.example:3128", "proxy http://proxy.example:3128: resolving it: no such host")

	proxy := newHTTPProxy(t, nil)
	fails(name, proxy.url(), "proxy "+proxy.URL+": asking for couch.example:443: 403 Forbidden")
	wrong := strings.Replace(proxy.url(), "s3cr3t", "wr0ng", 1)
	fails(name, wrong, "proxy "+proxy.URL+": asking for couch.example:443: 407 Proxy Authentication Required")
	fails("http://couch.example/db", wrong, "proxy "+proxy.URL+": asking for couch.example:80: 407 Proxy Authentication Required")
	proxy.to = server.Listener.Addr().String()
	fails(name, proxy.url(), "proxy "+proxy.URL+": TLS handshake with couch.example:443: tls: failed to verify certificate")
	untrusted := newHTTPProxy(t, issue(t, nil, "stranger"))
	fails(name, untrusted.url(), "proxy "+untrusted.URL+": TLS handshake with it: tls: failed to verify certificate")

	address, _ := newSOCKS(t, "elsewhere.example", server.Listener.Addr().String())
	fails(name, "socks5://"+proxyUserinfo+address, "proxy socks5://"+address+": asking for couch.example:443: ")
	fails(name, "socks5://"+proxyUser+":wr0ng@"+address, "proxy socks5://"+address+": asking for couch.example:443: ")
	fails(name, "socks5://"+address, "proxy socks5://"+address+": asking for couch.example:443: ")

	for _, bad := range []string{"ftp://user:s3cr3t@proxy", "http://user:s3cr3t@%zz", "http://user:s3cr3t@", "user:s3cr3t"} {
		_, err := pool.Transport(outbound.TransportOptions{Proxy: bad})
		require.ErrorContains(t, err, "proxy: ")
		require.NotContains(t, err.Error(), "s3cr3t")
	}
}
