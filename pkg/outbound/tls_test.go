package outbound_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/certs"
	"settee/pkg/outbound"
)

// secured starts a server with a certificate.
func secured(t testing.TB, cert *issued, edit ...func(*tls.Config)) *counted {
	t.Helper()
	return newCounted(t, sayHello, func(s *httptest.Server) {
		s.TLS = serverTLS(cert)
		for _, e := range edit {
			e(s.TLS)
		}
	})
}

// connects makes a request under a TLSConfig.
func connects(t *testing.T, server *counted, cfg outbound.TLSConfig) error {
	t.Helper()
	pool, _ := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.TLS = cfg })
	defer pool.Close()
	_, err := through(t, pool, server.URL+"/db", outbound.TransportOptions{}).get(t.Context())
	return err
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	ca, stranger := issue(t, nil, "ca", authority), issue(t, nil, "stranger", authority)
	file := writeFile(t, "ca.pem", append([]byte("# ours\n"), ca.certPEM()...))
	good := secured(t, issue(t, ca, "server"))
	require.NoError(t, connects(t, good, outbound.TLSConfig{CAFile: file}))

	elsewhere := func(c *x509.Certificate) { c.IPAddresses = nil }
	for words, server := range map[string]*counted{
		"certificate signed by unknown authority":   secured(t, issue(t, stranger, "server")),
		"certificate has expired":                   secured(t, issue(t, ca, "server", expired)),
		"cannot validate certificate for 127.0.0.1": secured(t, issue(t, ca, "server", elsewhere)),
	} {
		err := connects(t, server, outbound.TLSConfig{CAFile: file})
		require.ErrorContains(t, err, "TLS handshake with "+server.Listener.Addr().String())
		require.ErrorContains(t, err, words)
		require.NoError(t, connects(t, server, outbound.TLSConfig{CAFile: file, Insecure: true}))
	}
	require.ErrorContains(t, connects(t, good, outbound.TLSConfig{}), "unknown authority") // of the system's
	old := secured(t, issue(t, ca, "server"), func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 })
	for _, insecure := range []bool{false, true} {
		pool, _ := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.TLS = outbound.TLSConfig{CAFile: file, Insecure: insecure} })
		_, err := through(t, pool, old.URL+"/db", outbound.TransportOptions{}).get(t.Context())
		require.ErrorContains(t, err, "protocol version")
	}

	plain := newCounted(t, sayHello)
	for _, cfg := range []outbound.TLSConfig{
		{CAFile: filepath.Join(t.TempDir(), "none.pem")}, {CAFile: writeFile(t, "empty.pem", []byte("nothing"))},
		{CertFile: filepath.Join(t.TempDir(), "none.pem")}, {CertFile: file},
	} {
		require.ErrorIs(t, connects(t, good, cfg), outbound.ErrCertificates)
		pool, _ := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.TLS = cfg })
		_, err := through(t, pool, plain.URL+"/db", outbound.TransportOptions{}).get(t.Context())
		require.NoError(t, err, "a connection without TLS")
	}
}

// A configuration whose files cannot be used changes nothing, until its files appear.
func TestConfigurationWithoutItsFiles(t *testing.T) {
	t.Parallel()
	root := issue(t, nil, "root", authority)
	server := secured(t, issue(t, root, "server"))
	good := writeFile(t, "ca.pem", root.certPEM())
	var warned []error
	pool, settings := newPool(t, outbound.PoolOptions{Warn: func(err error) { warned = append(warned, err) }})
	set := func(tls outbound.TLSConfig) { settings.edit(func(c *outbound.PoolConfig) { c.TLS = tls }) }
	ask := func() error {
		_, err := through(t, pool, server.URL+"/db", outbound.TransportOptions{}).get(t.Context())
		return err
	}
	set(outbound.TLSConfig{CAFile: good})
	require.NoError(t, ask())
	late := filepath.Join(t.TempDir(), "late.pem")
	set(outbound.TLSConfig{CAFile: late})
	require.NoError(t, ask())
	require.NoError(t, ask())
	require.Len(t, warned, 1)
	require.ErrorIs(t, warned[0], outbound.ErrCertificates)
	require.ErrorContains(t, warned[0], "stay in use")
	other := issue(t, nil, "other", authority)
	require.NoError(t, os.WriteFile(late, other.certPEM(), 0o600))
	require.Eventually(t, func() bool { return ask() != nil }, time.Minute, 100*time.Millisecond, "the file that the configuration names")

	set(outbound.TLSConfig{CAFile: good, Insecure: true})
	require.NoError(t, ask())
	set(outbound.TLSConfig{CAFile: filepath.Join(t.TempDir(), "none.pem")})
	require.ErrorIs(t, ask(), outbound.ErrCertificates, "not as before, when all were accepted")
}

func TestCertificateDepth(t *testing.T) {
	t.Parallel()
	root := issue(t, nil, "root", authority)
	file := writeFile(t, "ca.pem", root.certPEM())
	at := root
	for between := range 4 {
		server := secured(t, issue(t, at, "server"))
		for depth := range 5 {
			err := connects(t, server, outbound.TLSConfig{CAFile: file, MaxDepth: &depth})
			if between <= depth {
				require.NoError(t, err, "%d, of which %d are allowed", between, depth)
				continue
			}
			require.ErrorContains(t, err, fmt.Sprintf("%d intermediate certificates, of which [replicator] ssl_certificate_max_depth allows %d", between, depth))
		}
		at = issue(t, at, fmt.Sprintf("between %d", between), authority)
	}
	require.ErrorContains(t, connects(t, secured(t, issue(t, at, "server")), outbound.TLSConfig{CAFile: file}), "allows 3")
	// One that has its issuer's name, as at a change of keys, does not count.
	renewed := issue(t, issue(t, root, "root", authority), "server")
	require.NoError(t, connects(t, secured(t, renewed), outbound.TLSConfig{CAFile: file, MaxDepth: new(0)}))
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ca, clients := issue(t, nil, "ca", authority), issue(t, nil, "clients", authority)
	between := issue(t, clients, "between", authority, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Minute) })
	client := issue(t, between, "client")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		server := secured(t, issue(t, ca, "server"), func(c *tls.Config) {
			c.ClientAuth, c.ClientCAs, c.MaxVersion = tls.RequireAndVerifyClientCert, clients.pool(), version
		})
		cfg := outbound.TLSConfig{CAFile: writeFile(t, "ca.pem", ca.certPEM())}
		fails := func(cfg outbound.TLSConfig) {
			pool, _ := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.TLS = cfg })
			_, err := through(t, pool, server.URL+"/db", outbound.TransportOptions{}).get(t.Context())
			require.ErrorContains(t, err, "TLS handshake with ")
			require.ErrorContains(t, err, "remote error: tls: ")
		}
		own := func() (*tls.Certificate, error) {
			pool, _ := newPool(t, outbound.PoolOptions{}, func(c *outbound.PoolConfig) { c.TLS = cfg })
			defer pool.Close()
			return pool.Certificate()
		}
		none, err := own()
		require.NoError(t, err)
		require.Nil(t, none)
		fails(cfg)
		cfg.CertFile, cfg.KeyFile = writeFile(t, "cert.pem", client.certPEM()), writeFile(t, "key.pem", client.keyPEM(t))
		used, err := own()
		require.NoError(t, err)
		ends, err := certs.NotAfter(used)
		require.NoError(t, err)
		require.Equal(t, between.cert.NotAfter, ends, "the intermediate certificate ends first")
		require.NoError(t, connects(t, server, cfg))
		// Both in one file.
		both := append(client.certPEM(), client.keyPEM(t)...)
		require.NoError(t, connects(t, server, outbound.TLSConfig{CAFile: cfg.CAFile, CertFile: writeFile(t, "both.pem", both)}))
		// That of somebody else.
		other := issue(t, nil, "other")
		cfg.CertFile, cfg.KeyFile = writeFile(t, "cert.pem", other.certPEM()), writeFile(t, "key.pem", other.keyPEM(t))
		fails(cfg)
	}
}

// warnings are what a pool said.
type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) add(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, err.Error())
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said
}

func TestCertificatesAreReloaded(t *testing.T) {
	t.Parallel()
	oldCA, newCA := issue(t, nil, "old", authority), issue(t, nil, "new", authority)
	oldServer, newServer := secured(t, issue(t, oldCA, "server")), secured(t, issue(t, newCA, "server"))
	clients := issue(t, nil, "clients", authority)
	client := issue(t, clients, "client")
	careful := secured(t, issue(t, newCA, "server"), func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, clients.pool()
	})
	stranger := issue(t, nil, "stranger")
	cfg := outbound.TLSConfig{
		CAFile:   writeFile(t, "ca.pem", oldCA.certPEM()),
		CertFile: writeFile(t, "cert.pem", stranger.certPEM()), KeyFile: writeFile(t, "key.pem", stranger.keyPEM(t)),
	}
	var said warnings
	pool, _ := newPool(t, outbound.PoolOptions{Warn: said.add}, func(c *outbound.PoolConfig) { c.TLS = cfg })
	var mu sync.Mutex
	now := time.Now()
	pool.SetClock(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	})
	later := func() {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
	}
	try := func(s *counted) error {
		_, err := through(t, pool, s.URL+"/db", outbound.TransportOptions{}).get(t.Context())
		return err
	}
	require.NoError(t, try(oldServer))
	require.Error(t, try(newServer))

	writeFile(t, cfg.CAFile, []byte("half of it"))
	later()
	require.NoError(t, try(oldServer))
	require.EqualValues(t, 1, oldServer.opened.Load(), "nothing has changed for this connection")
	later()
	require.NoError(t, try(oldServer))
	require.Len(t, said.all(), 1)
	require.Contains(t, said.all()[0], "those read before stay in use")
	require.Contains(t, said.all()[0], cfg.CAFile)
	require.NoError(t, os.Remove(cfg.CAFile))
	later()
	require.NoError(t, try(oldServer))
	later()
	require.NoError(t, try(oldServer))
	require.Len(t, said.all(), 2)

	writeFile(t, cfg.CAFile, newCA.certPEM())
	require.NoError(t, try(oldServer), "it is looked at once a second")
	later()
	require.ErrorContains(t, try(oldServer), "unknown authority")
	require.NoError(t, try(newServer))

	// A certificate and its key are two files: between them nothing fits.
	require.ErrorContains(t, try(careful), "remote error: tls: ")
	writeFile(t, cfg.CertFile, client.certPEM())
	later()
	require.ErrorContains(t, try(careful), "remote error: tls: ")
	writeFile(t, cfg.KeyFile, client.keyPEM(t))
	later()
	require.NoError(t, try(careful))
	require.Len(t, said.all(), 3)
}

func TestUntrustworthyCertificatesAreReported(t *testing.T) {
	t.Parallel()
	ca := issue(t, nil, "ca", authority)
	good, bad := secured(t, issue(t, ca, "server")), secured(t, issue(t, ca, "server", func(c *x509.Certificate) { c.IPAddresses = nil }))
	var said warnings
	pool, settings := newPool(t, outbound.PoolOptions{Warn: said.add}, func(c *outbound.PoolConfig) {
		c.TLS = outbound.TLSConfig{Insecure: true, Report: true, CAFile: writeFile(t, "ca.pem", ca.certPEM())}
	})
	for i := range 3 {
		settings.edit(func(c *outbound.PoolConfig) { c.IdleTimeout = time.Hour + time.Duration(i) }) // a new connection
		for _, s := range []*counted{good, bad} {
			_, err := through(t, pool, s.URL+"/db", outbound.TransportOptions{}).get(t.Context())
			require.NoError(t, err)
		}
	}
	require.Len(t, said.all(), 1)
	require.Contains(t, said.all()[0], "the certificate of "+bad.Listener.Addr().String()+" is not trustworthy")
	require.Contains(t, said.all()[0], "cannot validate certificate for 127.0.0.1")
}
