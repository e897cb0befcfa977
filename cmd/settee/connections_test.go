package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
	"settee/pkg/couch"
	"settee/pkg/couch/couchtest"
	"settee/pkg/outbound"
	"settee/pkg/sockopt"
	"settee/replicator"
)

// configured loads settings given as section/key=value.
func configured(t *testing.T, sets ...string) *config.Config {
	t.Helper()
	cfg, _, err := config.Load(config.Options{Flags: sets})
	require.NoError(t, err)
	return cfg
}

func TestPoolConfig(t *testing.T) {
	t.Parallel()
	standard := poolConfig(configured(t))
	require.False(t, standard.TLS.Insecure)
	require.Equal(t, sockopt.Options{KeepAlive: new(true), NoDelay: new(true)}, standard.Sockets)
	require.NotEmpty(t, standard.Denied)
	got := poolConfig(configured(t,
		"replicator/connect_to=a.example:1:b.example:2", "replicator/ssl_certificate_max_depth=0",
		"replicator/verify_ssl_certificates=false", "replicator/cert_file=/c", "replicator/password=p",
		"replicator/socket_options=[{keepalive, false}, {nodelay, false}, {sndbuf, 5}, {recbuf, 6}]",
		"replicator/connection_close_interval=1", "replicator/denied_networks=none"))
	require.Equal(t, []outbound.ConnectTo{{Host: "a.example", Port: 1, Target: "b.example", TargetPort: 2}}, got.ConnectTo)
	require.Equal(t, outbound.TLSConfig{Insecure: true, MaxDepth: new(0), CertFile: "/c", KeyPassword: "p"}, got.TLS)
	require.Equal(t, sockopt.Options{KeepAlive: new(false), NoDelay: new(false), SendBuffer: new(5), ReceiveBuffer: new(6)}, got.Sockets)
	require.EqualValues(t, 1e6, got.IdleTimeout)
	require.Empty(t, got.Denied)
}

func TestJobSockets(t *testing.T) {
	t.Parallel()
	valid := config.ValidSocketOptions.Get(configured(t))
	require.Nil(t, jobSockets(nil, valid))
	asked := &sockopt.Options{KeepAlive: new(false), NoDelay: new(false), SendBuffer: new(5), ReceiveBuffer: new(6)}
	require.Equal(t, asked, jobSockets(asked, valid))
	require.Equal(t, &sockopt.Options{NoDelay: asked.NoDelay}, jobSockets(asked, []string{"nodelay"}))
}

// A changed setting applies to the next request.
func TestConnectionsFollowTheConfiguration(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	var current atomic.Pointer[config.Config]
	current.Store(configured(t))
	var log strings.Builder
	c := newConnections(current.Load, zerolog.New(&log))
	defer c.pool.Close()
	transport := c.transport(replicator.Endpoint{URL: server.URL + "/db/"}, nil)
	try := func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		answer, err := transport.RoundTrip(r)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	require.NoError(t, try())
	current.Store(configured(t, "replicator/denied_networks=127.0.0.0/8", "replicator/valid_endpoint_protocols_log=true"))
	require.ErrorIs(t, try(), outbound.ErrDenied)
	require.Empty(t, log.String())
	_ = c.transport(replicator.Endpoint{URL: "http://adm:s3cr3t@couch.example/db/"}, nil)
	require.Contains(t, log.String(), `"endpoint":"http://`)
	require.NotContains(t, log.String(), "s3cr3t")

	transport = c.transport(replicator.Endpoint{URL: server.URL + "/db/", Proxy: "http://user:s3cr3t@"}, nil)
	require.EqualError(t, try(), "proxy: not a URL")
}

// Nodes and the command use the configured settings of connections.
func TestConfiguredConnections(t *testing.T) {
	t.Parallel()
	peer := couchtest.Shared(t)
	source, target := peer.DB(t, "securesource"), peer.DB(t, "securetarget")
	couchtest.Populate(t, source, couchtest.Population{Seed: 5, Docs: 20})
	to, err := url.Parse(peer.URL)
	require.NoError(t, err)
	server := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(to))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	secure := strings.Replace(source, peer.URL, "https://example.com", 1) // httptest's certificate has this name
	there := "replicator/connect_to=example.com:443:" + server.Listener.Addr().String()

	_, errs, status := settee(t, "replicate", secure, target, "--set", there, "--set", "replicator/retries_per_request=0")
	require.Equal(t, exitFailed, status)
	assert.Contains(t, errs, "TLS handshake with example.com:443: tls: failed to verify certificate")
	out, errs, status := settee(t, "replicate", secure, target, "--set", there, "--set", "replicator/ssl_trusted_certificates_file="+ca)
	require.Zero(t, status, errs)
	assert.Contains(t, out, "20 written")

	node := serveNode(t, "mem:", there, "replicator/ssl_trusted_certificates_file="+ca)
	node.ask(http.StatusOK, http.MethodPost, "_replicate", fmt.Sprintf(`{"source":%q,"target":%q}`, secure, target))
	node = serveNode(t, "mem:", "replicator/denied_networks=127.0.0.0/8")
	answer := node.ask(http.StatusInternalServerError, http.MethodPost, "_replicate", fmt.Sprintf(`{"source":%q,"target":%q}`, source, target))
	assert.Contains(t, answer, "127.0.0.1 is in 127.0.0.0/8: denied by [replicator] denied_networks")
}

// encodings counts compressed requests, over connections that seem to lead to another network.
type encodings struct {
	http.Transport
	compressed atomic.Int32
}

func (e *encodings) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Content-Encoding") == "gzip" {
		e.compressed.Add(1)
	}
	return e.Transport.RoundTrip(r)
}

type distantConn struct{ net.Conn }

func (distantConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

// A node accepts its own client's compressed requests.
func TestCompressedRequestsToANode(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:")
	transport := &encodings{Transport: http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return distantConn{conn}, err
	}}}
	defer transport.CloseIdleConnections()
	cfg := couch.DefaultConfig()
	cfg.URL, cfg.Username, cfg.Password, cfg.Transport = withoutAdmin(node.url)+"packed", adminName, adminPassword, transport
	db, err := couch.Open(cfg)
	require.NoError(t, err)
	require.NoError(t, db.Create(t.Context(), nil))
	var docs []couch.Document
	var revs []couch.DocRevs
	for i := range 200 {
		rev := fmt.Sprintf("%032x", i)
		doc, err := couch.ParseDocument(fmt.Appendf(nil, `{"_id":"doc-%d","_rev":"1-%s","_revisions":{"start":1,"ids":[%q]},"text":"some words and more"}`, i, rev, rev))
		require.NoError(t, err)
		docs = append(docs, doc)
		revs = append(revs, couch.DocRevs{ID: fmt.Sprintf("doc-%d", i), Revs: []string{"1-" + rev, "2-" + rev}})
	}
	refused, err := db.BulkDocs(t.Context(), docs)
	require.NoError(t, err)
	require.Empty(t, refused)
	missing, err := db.RevsDiff(t.Context(), revs)
	require.NoError(t, err)
	require.Len(t, missing, 200)
	for i, m := range missing {
		require.Equal(t, revs[i].Revs[1:], m.Revs)
	}
	require.EqualValues(t, 2, transport.compressed.Load())
}
