package main

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"

	"settee/pkg/config"
	"settee/pkg/outbound"
	"settee/pkg/redact"
	"settee/pkg/sockopt"
	"settee/replicator"
)

// connections are the connections of a node to the endpoints of all its jobs.
type connections struct {
	pool    *outbound.Pool
	current func() *config.Config
	log     zerolog.Logger

	requests, successes, failures atomic.Int64 // so far
}

// newConnections returns a node's connections. They read the configuration again for each request.
func newConnections(current func() *config.Config, log zerolog.Logger) *connections {
	c := &connections{current: current, log: log}
	type reading struct {
		of   *config.Config // which never changes
		pool outbound.PoolConfig
	}
	var last atomic.Pointer[reading]
	c.pool = outbound.NewPool(outbound.PoolOptions{
		Config: func() outbound.PoolConfig {
			cfg := current()
			r := last.Load()
			if r == nil || r.of != cfg {
				r = &reading{cfg, poolConfig(cfg)}
				last.Store(r)
			}
			return r.pool
		},
		Warn:           func(err error) { log.Warn().Msg(redact.Text(err.Error())) },
		MaxConnections: endpointShare(openFiles()),
	})
	return c
}

// traffic returns how many bytes were received from endpoints and sent to them so far.
func (c *connections) traffic() (received, sent int64) {
	t := c.pool.Traffic()
	return t.Received, t.Sent
}

// poolConfig returns the configuration of the pool.
func poolConfig(cfg *config.Config) outbound.PoolConfig {
	return outbound.PoolConfig{
		ConnectTimeout: config.ConnectionTimeout.Get(cfg),
		IdleTimeout:    config.ConnectionCloseInterval.Get(cfg),
		Sockets:        config.SocketOptionDefaults.Get(cfg),
		ConnectTo:      overrides(config.ConnectToOverrides.Get(cfg)),
		Denied:         config.DeniedNetworks.Get(cfg),
		TLS: outbound.TLSConfig{
			Insecure:    !config.VerifyCertificates.Get(cfg),
			Report:      config.VerifyCertificatesLog.Get(cfg),
			CAFile:      config.TrustedCertificatesFile.Get(cfg),
			MaxDepth:    new(config.CertificateMaxDepth.Get(cfg)),
			CertFile:    config.CertificateFile.Get(cfg),
			KeyFile:     config.KeyFile.Get(cfg),
			KeyPassword: config.KeyPassword.Get(cfg),
		},
	}
}

func overrides(list []config.ConnectTo) []outbound.ConnectTo {
	var rules []outbound.ConnectTo
	for _, c := range list {
		rules = append(rules, outbound.ConnectTo(c))
	}
	return rules
}

// jobSockets returns a job's socket options that are in valid. It returns nil, for the node's options, if the job has
// none.
func jobSockets(o *sockopt.Options, valid []string) *sockopt.Options {
	if o == nil {
		return nil
	}
	return new(o.Only(valid))
}

// transport returns the transport for a run's requests to an endpoint. It is a scheduler.Options.Transport.
func (c *connections) transport(endpoint replicator.Endpoint, options *sockopt.Options) http.RoundTripper {
	cfg := c.current()
	if config.ValidEndpointProtocolsLog.Get(cfg) && strings.HasPrefix(endpoint.URL, "http:") {
		c.log.Warn().Stringer("endpoint", endpoint).Msg("an endpoint is plain http: an attacker on the network can read and change everything")
	}
	t, err := c.pool.Transport(outbound.TransportOptions{
		Proxy:   endpoint.Proxy,
		Sockets: jobSockets(options, config.ValidSocketOptions.Get(cfg)),
	})
	if err != nil {
		return failing{err}
	}
	return counting{c, t}
}

// failing fails every request. A job with an invalid proxy must not connect without it.
type failing struct{ err error }

func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, f.err
}

// counting counts requests and their results.
type counting struct {
	to   *connections
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.to.requests.Add(1)
	answer, err := c.next.RoundTrip(r)
	if err != nil || answer.StatusCode >= http.StatusBadRequest {
		c.to.failures.Add(1)
	} else {
		c.to.successes.Add(1)
	}
	return answer, err
}
