package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"settee/pkg/config"
	"settee/pkg/couch"
)

// certificatesEvery is how often the files of certificates are looked at, at most.
const certificatesEvery = time.Second

// withHTTP2 are the protocols that TLS connections speak, by the names of RFC 7301.
var withHTTP2 = []string{"h2", "http/1.1"}

// serverTLS is what a frontend's TLS is. Its files are read again, by the next connection,
// when they change; one that cannot be used leaves in force what was read before.
func serverTLS(cfg *config.Config, log zerolog.Logger) (*tls.Config, error) {
	f := &tlsFiles{cfg: cfg, log: log}
	now := time.Now()
	f.checked.Store(now.UnixNano())
	found := f.stamps() // what changes while it is read is read once more
	first, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("TLS for clients: %w", err)
	}
	f.seen.Store(&found)
	f.current.Store(first)
	return &tls.Config{
		// net/http prepares for HTTP/2 by this. Connections go by what the function returns.
		NextProtos: withHTTP2, MinVersion: first.MinVersion,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.latest(time.Now()), nil },
	}, nil
}

// tlsFiles are the files that the section [ssl] names, and what was made of them.
type tlsFiles struct {
	cfg     *config.Config // as the node began with: the settings do not change, the files do
	log     zerolog.Logger
	current atomic.Pointer[tls.Config]
	checked atomic.Int64 // when the files were looked at, in nanoseconds since the epoch
	seen    atomic.Pointer[[3]fileStamp]
}

// fileStamp tells whether a file has changed.
type fileStamp struct {
	size     int64
	modified time.Time
}

func (f *tlsFiles) stamps() (all [3]fileStamp) {
	for i, setting := range []config.Setting[string]{config.TLSCertFile, config.TLSKeyFile, config.TLSClientCAFile} {
		if info, err := os.Stat(setting.Get(f.cfg)); err == nil {
			all[i] = fileStamp{info.Size(), info.ModTime()}
		}
	}
	return all
}

// latest returns what the files say now.
func (f *tlsFiles) latest(now time.Time) *tls.Config {
	last := f.checked.Load()
	if now.UnixNano()-last < int64(certificatesEvery) || !f.checked.CompareAndSwap(last, now.UnixNano()) {
		return f.current.Load()
	}
	found := f.stamps()
	if found == *f.seen.Load() {
		return f.current.Load()
	}
	f.seen.Store(&found)
	next, err := f.read()
	if err != nil {
		f.log.Error().Err(err).Msg("files of certificates have changed, but those read before stay in use")
		return f.current.Load()
	}
	f.current.Store(next)
	f.log.Info().Msg("files of certificates have changed, and were read again")
	return next
}

// read makes a configuration of the files as they are.
func (f *tlsFiles) read() (*tls.Config, error) {
	own, err := couch.LoadCertificate(config.TLSCertFile.Get(f.cfg), config.TLSKeyFile.Get(f.cfg), config.TLSKeyPassword.Get(f.cfg))
	if err != nil {
		return nil, fmt.Errorf("the node's certificate: %w", err)
	}
	versions, ciphers := config.TLSVersions.Get(f.cfg), config.TLSCiphers.Get(f.cfg)
	c := &tls.Config{
		Certificates: []tls.Certificate{*own}, NextProtos: []string{"http/1.1"},
		MinVersion: slices.Min(versions), MaxVersion: slices.Max(versions), CipherSuites: ciphers,
	}
	// HTTP/2 asks for one of these (RFC 9113, section 9.2.2).
	if len(ciphers) == 0 || c.MinVersion > tls.VersionTLS12 ||
		slices.Contains(ciphers, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) ||
		slices.Contains(ciphers, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) {
		c.NextProtos = withHTTP2
	}
	if !config.TLSVerifyClients.Get(f.cfg) {
		return c, nil
	}
	path := config.TLSClientCAFile.Get(f.cfg)
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the certificates that vouch for clients: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("the certificates that vouch for clients: %s has none", path)
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	if config.TLSRequireClients.Get(f.cfg) {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}
