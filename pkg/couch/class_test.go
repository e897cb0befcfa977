package couch_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
	"settee/pkg/outbound"
)

// classOf returns the class of the failure of a request.
func classOf(t *testing.T, db *couch.Database) couch.Class {
	t.Helper()
	_, err := db.Info(t.Context())
	var failed *couch.Error
	require.ErrorAs(t, err, &failed)
	t.Log(err)
	return failed.Class()
}

// over returns an edit of a configuration whose requests use a pool of their own.
func over(t *testing.T, options outbound.PoolOptions, through string) func(*couch.Config) {
	t.Helper()
	pool := outbound.NewPool(options)
	t.Cleanup(pool.Close)
	transport, err := pool.Transport(outbound.TransportOptions{Proxy: through})
	require.NoError(t, err)
	return func(cfg *couch.Config) { cfg.Transport, cfg.Proxy = transport, through }
}

// impatient makes requests stall soon, and not before a busy machine has connected.
func impatient(cfg *couch.Config) {
	cfg.ConnectionTimeout, cfg.AnswerTimeout = 5*time.Second, 5*time.Second
}

// resolving returns an edit of a configuration whose name server answers every question with a code (RFC 1035, section 4.1.1).
func resolving(t *testing.T, code byte) func(*couch.Config) {
	t.Helper()
	var listening net.ListenConfig
	server, err := listening.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		message := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(message)
			if err != nil {
				return
			}
			const header = 12
			end := header
			for end < n && message[end] != 0 {
				end += 1 + int(message[end])
			}
			end += 5 // the end of the name, the type and the class
			message[2] |= 0x80
			message[3] = 0x80 | code
			message[10], message[11] = 0, 0 // no additional records
			_, _ = server.WriteTo(message[:end], from)
		}
	}()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	return over(t, outbound.PoolOptions{Resolver: resolver}, "")
}

// accepting returns the address of a server that calls with for each connection, and closes it when the test ends.
func accepting(t *testing.T, with func(net.Conn)) string {
	t.Helper()
	var listening net.ListenConfig
	server, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			with(conn)
		}
	}()
	return server.Addr().String()
}

func writes(text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<10))
		_, _ = io.WriteString(conn, text)
	}
}

func TestClassesOfConnections(t *testing.T) {
	t.Parallel()
	denied := outbound.PoolOptions{Config: func() outbound.PoolConfig {
		return outbound.PoolConfig{Denied: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	}}
	hangs := accepting(t, func(net.Conn) {})
	for name, test := range map[string]struct {
		url  string
		edit func(*couch.Config)
		want couch.Class
	}{
		"no such host":       {"http://nowhere.example/db", resolving(t, 3), couch.ClassDNSNotFound},
		"no name server":     {"http://nowhere.example/db", resolving(t, 2), couch.ClassDNSFailed},
		"refused":            {"http://127.0.0.1:1/db", noRetries, couch.ClassConnectRefused},
		"no route":           {"http://255.255.255.255/db", noRetries, couch.ClassUnreachable},
		"denied":             {"http://" + hangs + "/db", over(t, denied, ""), couch.ClassNetworkDenied},
		"hangs":              {"http://" + hangs + "/db", impatient, couch.ClassNoAnswer},
		"hangs in TLS":       {"https://" + hangs + "/db", impatient, couch.ClassTLSNoAnswer},
		"closes":             {"http://" + accepting(t, func(conn net.Conn) { _ = conn.Close() }) + "/db", noRetries, couch.ClassClosedEarly},
		"cuts its answer":    {"http://" + accepting(t, func(conn net.Conn) { writes("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")(conn); _ = conn.Close() }) + "/db", noRetries, couch.ClassClosedEarly},
		"not HTTP":           {"http://" + accepting(t, writes("SSH-2.0-OpenSSH\r\n")) + "/db", noRetries, couch.ClassMalformed},
		"not TLS":            {"https://" + accepting(t, writes("HTTP/1.1 400 Bad Request\r\n\r\n")) + "/db", noRetries, couch.ClassTLSFailed},
		"no proxy":           {"http://couch.example/db", over(t, outbound.PoolOptions{}, "http://127.0.0.1:1"), couch.ClassProxyFailed},
		"a proxy that hangs": {"https://couch.example/db", both(impatient, over(t, outbound.PoolOptions{}, "http://"+hangs)), couch.ClassProxyFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, classOf(t, open(t, test.url, noRetries, test.edit)))
		})
	}
}

func both(a, b func(*couch.Config)) func(*couch.Config) {
	return func(cfg *couch.Config) {
		a(cfg)
		b(cfg)
	}
}

// A timeout of the system comes after minutes.
func TestClassesOfSystemErrors(t *testing.T) {
	t.Parallel()
	for number, want := range map[syscall.Errno]couch.Class{
		syscall.ETIMEDOUT: couch.ClassConnectTimeout, syscall.EHOSTUNREACH: couch.ClassUnreachable, syscall.ENETUNREACH: couch.ClassUnreachable,
	} {
		call := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", number)}
		e := &couch.Error{Err: &outbound.ConnectError{Step: outbound.StepConnect, Host: "couch.example:80", Err: call}}
		require.Equal(t, want, e.Class(), number)
	}
	closed := &url.Error{Op: "Get", URL: "http://couch.example/db", Err: errors.New("http: server closed idle connection")}
	require.Equal(t, couch.ClassClosedEarly, (&couch.Error{Err: closed}).Class())
	require.Equal(t, couch.ClassUnknown, (&couch.Error{Err: context.Canceled}).Class())
	require.Equal(t, couch.ClassUnknown, (&couch.Error{}).Class())
}

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	pair := a.issue(func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// issue issues a certificate for 127.0.0.1, and the authority's own if it has none.
func (a *authority) issue(edit func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "couch"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	edit(template)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// trusted returns an edit of a configuration that trusts the authority.
func (a *authority) trusted(t *testing.T) func(*couch.Config) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600))
	return over(t, outbound.PoolOptions{Config: func() outbound.PoolConfig {
		return outbound.PoolConfig{TLS: outbound.TLSConfig{CAFile: file}}
	}}, "")
}

// Before TLS 1.3 a server may say that it wants a certificate with the alert handshake_failure, which has other reasons, too.
func TestClassesOfTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	valid := a.issue(func(*x509.Certificate) {})
	wants := func(version uint16) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{valid}, ClientAuth: tls.RequireAnyClientCert, MinVersion: version, MaxVersion: version}
	}
	with := func(edit func(*x509.Certificate)) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{a.issue(edit)}, MinVersion: tls.VersionTLS12}
	}
	for name, test := range map[string]struct {
		server *tls.Config
		other  bool // the authority is not trusted
		want   couch.Class
	}{
		"unknown authority":  {with(func(*x509.Certificate) {}), true, couch.ClassTLSAuthority},
		"expired":            {with(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }), false, couch.ClassTLSExpired},
		"wrong name":         {with(func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"other.example"} }), false, couch.ClassTLSName},
		"client certificate": {wants(tls.VersionTLS13), false, couch.ClassTLSClient},
		"any, TLS 1.2":       {wants(tls.VersionTLS12), false, couch.ClassTLSFailed},
		"no common version":  {&tls.Config{Certificates: []tls.Certificate{valid}, MaxVersion: tls.VersionTLS11}, false, couch.ClassTLSFailed}, //nolint:gosec // that is the case
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.TLS, server.Config.ErrorLog = test.server, log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			trusting := a
			if test.other {
				trusting = newAuthority(t)
			}
			require.Equal(t, test.want, classOf(t, open(t, server.URL+"/db", noRetries, trusting.trusted(t))))
		})
	}
}

func TestProxyThatRefuses(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	t.Cleanup(proxy.Close)
	u, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	u.User = url.UserPassword("me", "s3cr3t")
	for _, endpoint := range []string{"http://couch.example/db", "https://couch.example/db"} {
		_, err := open(t, endpoint, noRetries, over(t, outbound.PoolOptions{}, u.String())).Info(t.Context())
		var failed *couch.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, couch.ClassProxyRefused, failed.Class())
		require.Equal(t, proxy.URL, failed.Proxy())
	}
}

func TestClassesOfAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		want   couch.Class
	}{
		"no access":      {401, `{"error":"unauthorized","reason":"no"}`, couch.ClassUnauthorized},
		"forbidden":      {403, `{"error":"forbidden","reason":"no"}`, couch.ClassForbidden},
		"missing":        {404, `{"error":"not_found","reason":"Database does not exist."}`, couch.ClassDatabaseMissing},
		"bad request":    {400, `{"error":"bad_request","reason":"no"}`, couch.ClassUnexpectedStatus},
		"too many":       {429, ``, couch.ClassRateLimited},
		"broken":         {500, ``, couch.ClassServerError},
		"unavailable":    {503, ``, couch.ClassServerError},
		"another JSON":   {200, `{"couchdb":"Welcome"}`, couch.ClassNotDatabase},
		"a page":         {200, `<html>`, couch.ClassMalformed},
		"an early end":   {200, `{"db_name`, couch.ClassClosedEarly},
		"a far redirect": {301, ``, couch.ClassRedirected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := serving(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://elsewhere.example/db")
				w.Header().Set("Retry-After", "120")
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}, noRetries)
			require.Equal(t, test.want, classOf(t, db))
		})
	}
}

// A login has classes of its own only if the server refuses it.
func TestClassesOfLogins(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]couch.Class{401: couch.ClassLoginRefused, 403: couch.ClassLoginRefused, 500: couch.ClassServerError} {
		db := serving(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }, noRetries, func(cfg *couch.Config) {
			cfg.Username, cfg.Password, cfg.Sessions = "me", "s3cr3t", &couch.Sessions{}
		})
		require.Equal(t, want, classOf(t, db), status)
	}
}

// A login that fails on the way is a failure of its request.
func TestClassOfStalledLogin(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		door := &doorman{login: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}
		_, err := knocks(t, door, noRetries).Info(t.Context())
		var failed *couch.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, couch.ClassNoAnswer, failed.Class())
	})
}

func TestClassOfStalledAnswer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		db := piped(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"db_name":`)
			flush(w)
			<-r.Context().Done()
		}, noRetries)
		require.Equal(t, couch.ClassStalled, classOf(t, db))
	})
}
