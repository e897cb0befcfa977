package main

import (
	"crypto/tls"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"settee/pkg/certs"
	"settee/pkg/config"
)

// withHTTP2 are the protocols that TLS connections offer, by their names in RFC 7301.
var withHTTP2 = []string{"h2", "http/1.1"}

// serverTLS returns the TLS configuration for clients of the frontend. The certificate files are read again when they
// change, and apply to the next connections. Invalid files are ignored, and the previous ones stay in use.
func serverTLS(cfg *config.Config, log zerolog.Logger) (*tls.Config, error) {
	f := &tlsFiles{cfg: cfg, log: log, files: certs.Watch(
		config.TLSCertFile.Get(cfg), config.TLSKeyFile.Get(cfg), config.TLSClientCAFile.Get(cfg))}
	first, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("TLS for clients: %w", err)
	}
	f.current.Store(first)
	return &tls.Config{
		// net/http looks at NextProtos to decide whether it serves HTTP/2. Connections use the result of the function.
		NextProtos: withHTTP2, MinVersion: first.MinVersion,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.latest(time.Now()), nil },
	}, nil
}

// tlsFiles are the files named in section [ssl], and the TLS configuration made from them.
type tlsFiles struct {
	cfg     *config.Config // as of the start; changes of these settings need a restart
	log     zerolog.Logger
	files   *certs.Files
	current atomic.Pointer[tls.Config]
}

// latest returns the TLS configuration for the current files.
func (f *tlsFiles) latest(now time.Time) *tls.Config {
	if !f.files.Changed(now) {
		return f.current.Load()
	}
	next, err := f.read()
	if err != nil {
		f.log.Error().Err(err).Msg("files of certificates have changed, but those read before stay in use")
		return f.current.Load()
	}
	f.current.Store(next)
	f.log.Info().Msg("files of certificates have changed, and were read again")
	return next
}

// read makes a TLS configuration from the files.
func (f *tlsFiles) read() (*tls.Config, error) {
	own, err := certs.Load(config.TLSCertFile.Get(f.cfg), config.TLSKeyFile.Get(f.cfg), config.TLSKeyPassword.Get(f.cfg))
	if err != nil {
		return nil, fmt.Errorf("the node's certificate: %w", err)
	}
	versions, ciphers := config.TLSVersions.Get(f.cfg), config.TLSCiphers.Get(f.cfg)
	c := &tls.Config{
		Certificates: []tls.Certificate{*own}, NextProtos: []string{"http/1.1"},
		MinVersion: slices.Min(versions), MaxVersion: slices.Max(versions), CipherSuites: ciphers,
	}
	// HTTP/2 requires one of these (RFC 9113, section 9.2.2).
	if len(ciphers) == 0 || c.MinVersion > tls.VersionTLS12 ||
		slices.Contains(ciphers, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) ||
		slices.Contains(ciphers, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) {
		c.NextProtos = withHTTP2
	}
	if !config.TLSVerifyClients.Get(f.cfg) {
		return c, nil
	}
	if c.ClientCAs, err = certs.LoadPool(config.TLSClientCAFile.Get(f.cfg)); err != nil {
		return nil, fmt.Errorf("the certificates that vouch for clients: %w", err)
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	if config.TLSRequireClients.Get(f.cfg) {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}
