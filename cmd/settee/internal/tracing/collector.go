package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// The bounds of a request to the collector.
const (
	defaultTimeout = 10 * time.Second // OTEL_EXPORTER_OTLP_TIMEOUT
	connectTimeout = 5 * time.Second
	idleTimeout    = 90 * time.Second
	maxHeader      = 64 << 10
)

// collectorClient returns the client of the only outbound requests that a node makes without the role replication:
// those that send traces, because its operator has asked for them. It has a resolver of its own, because such a node
// disables the default one, and it follows no redirect to another server.
func (env environment) collectorClient() (*http.Client, error) {
	secure, err := env.tls()
	if err != nil {
		return nil, err
	}
	timeout := defaultTimeout
	if value, _ := env.exporter("TIMEOUT"); value != "" {
		n, _ := strconv.Atoi(value) // check has checked it
		timeout = time.Duration(n) * time.Millisecond
	}
	dialer := &net.Dialer{Timeout: connectTimeout, Resolver: new(net.Resolver)}
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
			TLSClientConfig: secure, TLSHandshakeTimeout: connectTimeout, ForceAttemptHTTP2: true,
			MaxIdleConns: 1, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxHeader,
		},
	}, nil
}

// tls returns the certificates that the environment names.
func (env environment) tls() (*tls.Config, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	trusted, variable, err := env.read("CERTIFICATE")
	if err != nil {
		return nil, err
	}
	if trusted != nil {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(trusted) {
			return nil, fmt.Errorf("%s: the file has no certificate (PEM)", variable)
		}
	}
	certificate, variable, err := env.read("CLIENT_CERTIFICATE")
	if err != nil {
		return nil, err
	}
	key, keyVariable, err := env.read("CLIENT_KEY")
	switch {
	case err != nil:
		return nil, err
	case certificate == nil && key == nil:
		return secure, nil
	case certificate == nil || key == nil:
		return nil, fmt.Errorf("%s and %s: one needs the other", variable, keyVariable)
	}
	own, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", variable, keyVariable, err)
	}
	secure.Certificates = []tls.Certificate{own}
	return secure, nil
}
