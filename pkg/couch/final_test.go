package couch_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
	"settee/pkg/outbound"
)

// A request is not repeated if a connection is impossible for good.
func TestFinalErrorsAreNotRepeated(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusProxyAuthRequired)
	}))
	t.Cleanup(proxy.Close)
	for words, cfg := range map[string]struct {
		pool  outbound.PoolConfig
		proxy string
	}{
		"denied by":                         {pool: outbound.PoolConfig{Denied: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
		"certificates cannot be used":       {pool: outbound.PoolConfig{TLS: outbound.TLSConfig{CAFile: filepath.Join(t.TempDir(), "none")}}},
		"failed to verify certificate":      {},
		"407 Proxy Authentication Required": {proxy: proxy.URL},
	} {
		pool := outbound.NewPool(outbound.PoolOptions{Config: func() outbound.PoolConfig { return cfg.pool }})
		t.Cleanup(pool.Close)
		transport, err := pool.Transport(outbound.TransportOptions{Proxy: cfg.proxy})
		require.NoError(t, err)
		db := open(t, secure.URL+"/db", func(c *couch.Config) { c.Transport, c.RetryBase = transport, time.Minute })
		_, err = db.Info(ctxFor(t, 30*time.Second))
		require.ErrorContains(t, err, words)
	}
}
