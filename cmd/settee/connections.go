package main

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"

	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/pkg/redact"
	"settee/replicator"
)

// connections are those of a node, to the endpoints of all its jobs.
type connections struct {
	pool    *couch.Pool
	current func() *config.Config
	log     zerolog.Logger

	requests, successes, failures atomic.Int64 // so far
}

// newConnections makes a node's pool. It reads the configuration again for each request.
func newConnections(current func() *config.Config, log zerolog.Logger) *connections {
	c := &connections{current: current, log: log}
	type reading struct {
		of   *config.Config // which never changes
		pool couch.PoolConfig
	}
	var last atomic.Pointer[reading]
	c.pool = couch.NewPool(couch.PoolOptions{
		Config: func() couch.PoolConfig {
			cfg := current()
			r := last.Load()
			if r == nil || r.of != cfg {
				r = &reading{cfg, poolConfig(cfg)}
				last.Store(r)
			}
			return r.pool
		},
		Warn: func(err error) { log.Warn().Msg(redact.Text(err.Error())) },
	})
	return c
}

// poolConfig is what the configuration says of connections.
func poolConfig(cfg *config.Config) couch.PoolConfig {
	depth := config.CertificateMaxDepth.Get(cfg)
	if depth == 0 {
		depth = -1 // 0 is the default there
	}
	return couch.PoolConfig{
		ConnectTimeout: config.ConnectionTimeout.Get(cfg),
		IdleTimeout:    config.ConnectionCloseInterval.Get(cfg),
		Sockets:        socketDefaults(config.SocketOptionDefaults.Get(cfg)),
		ConnectTo:      overrides(config.ConnectToOverrides.Get(cfg)),
		Denied:         config.DeniedNetworks.Get(cfg),
		TLS: couch.TLSConfig{
			Insecure:    !config.VerifyCertificates.Get(cfg),
			Report:      config.VerifyCertificatesLog.Get(cfg),
			CAFile:      config.TrustedCertificatesFile.Get(cfg),
			MaxDepth:    depth,
			CertFile:    config.CertificateFile.Get(cfg),
			KeyFile:     config.KeyFile.Get(cfg),
			KeyPassword: config.KeyPassword.Get(cfg),
		},
	}
}

func overrides(list []config.ConnectTo) []couch.ConnectTo {
	var rules []couch.ConnectTo
	for _, c := range list {
		rules = append(rules, couch.ConnectTo(c))
	}
	return rules
}

func socketDefaults(o config.SocketOptions) couch.SocketOptions {
	return sockets(o.KeepAlive, o.NoDelay, o.SendBuffer, o.ReceiveBuffer)
}

// sockets makes options of those that are set; the others are Go's.
func sockets(keepAlive, noDelay *bool, send, receive *int) couch.SocketOptions {
	var o couch.SocketOptions
	o.NoKeepAlive = keepAlive != nil && !*keepAlive
	o.Delay = noDelay != nil && !*noDelay
	if send != nil {
		o.SendBuffer = *send
	}
	if receive != nil {
		o.ReceiveBuffer = *receive
	}
	return o
}

// jobSockets are the options that a job has and may have, or nil for the node's.
func jobSockets(o *replicator.SocketOptions, valid []string) *couch.SocketOptions {
	if o == nil {
		return nil
	}
	allowed := *o
	if !slices.Contains(valid, "keepalive") {
		allowed.KeepAlive = nil
	}
	if !slices.Contains(valid, "nodelay") {
		allowed.NoDelay = nil
	}
	if !slices.Contains(valid, "sndbuf") {
		allowed.SendBuffer = nil
	}
	if !slices.Contains(valid, "recbuf") {
		allowed.ReceiveBuffer = nil
	}
	return new(sockets(allowed.KeepAlive, allowed.NoDelay, allowed.SendBuffer, allowed.ReceiveBuffer))
}

// transport is what makes the requests of a run to one of its endpoints. It is scheduler.Options.Transport.
func (c *connections) transport(endpoint replicator.Endpoint, options *replicator.SocketOptions) http.RoundTripper {
	cfg := c.current()
	if config.ValidEndpointProtocolsLog.Get(cfg) && strings.HasPrefix(endpoint.URL, "http:") {
		c.log.Warn().Stringer("endpoint", endpoint).Msg("an endpoint is plain http: whoever can get in between reads and changes everything")
	}
	t, err := c.pool.Transport(couch.TransportOptions{
		Proxy:   endpoint.Proxy,
		Sockets: jobSockets(options, config.ValidSocketOptions.Get(cfg)),
	})
	if err != nil {
		return failing{err}
	}
	return counting{c, t}
}

// failing makes no requests: a job with a proxy that makes no sense must not do without.
type failing struct{ err error }

func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, f.err
}

// counting counts requests and how they were answered.
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
