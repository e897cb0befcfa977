package outbound_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/outbound"
)

// What goes through all connections of a pool is counted, encrypted or not.
func TestTraffic(t *testing.T) {
	t.Parallel()
	answer := strings.Repeat("x", 100_000)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, answer)
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	pool := outbound.NewPool(outbound.PoolOptions{Config: func() outbound.PoolConfig {
		return outbound.PoolConfig{TLS: outbound.TLSConfig{Insecure: true}}
	}})
	t.Cleanup(pool.Close)
	require.Zero(t, pool.Traffic())
	transport, err := pool.Transport(outbound.TransportOptions{})
	require.NoError(t, err)
	client := &http.Client{Transport: transport}
	for i, url := range []string{plain.URL, plain.URL, secure.URL} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(answer[:50_000]))
		require.NoError(t, err)
		response, err := client.Do(r)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		now := pool.Traffic()
		assert.GreaterOrEqual(t, now.Received, int64(i+1)*100_000)
		assert.Less(t, now.Received, int64(i+1)*110_000)
		assert.GreaterOrEqual(t, now.Sent, int64(i+1)*50_000)
		assert.Less(t, now.Sent, int64(i+1)*60_000)
	}
}
