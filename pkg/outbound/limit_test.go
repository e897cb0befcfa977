package outbound_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/outbound"
)

// A pool makes no more connections than it may. Idle ones give way, to whatever server they are.
func TestPoolBoundsConnections(t *testing.T) {
	t.Parallel()
	const most = 3
	pool, _ := newPool(t, outbound.PoolOptions{MaxConnections: most})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") })
	var clients []client
	for range most + 1 {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		clients = append(clients, through(t, pool, server.URL, outbound.TransportOptions{}))
	}
	for _, c := range clients {
		text, err := c.get(t.Context())
		require.NoError(t, err)
		require.Equal(t, "yes", text)
		require.LessOrEqual(t, pool.Connections(), int64(most))
	}
	// net/http may close a connection just after its answer was read.
	none := func() bool { return pool.Connections() == 0 }
	pool.Close()
	require.Eventually(t, none, time.Minute, time.Millisecond)
	var bodies []io.ReadCloser
	for _, c := range clients[:most] {
		answer, err := c.begin(t.Context()) //nolint:bodyclose // it is closed below
		require.NoError(t, err)
		bodies = append(bodies, answer.Body)
	}
	last := clients[most]
	_, err := last.get(t.Context())
	require.ErrorIs(t, err, outbound.ErrTooManyConnections)
	var refused *outbound.ConnectError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "connecting to "+refused.Host+": "+outbound.ErrTooManyConnections.Error(), refused.Error())
	require.False(t, outbound.Final(err))
	for _, body := range bodies {
		require.NoError(t, body.Close())
	}
	pool.Close()
	require.Eventually(t, none, time.Minute, time.Millisecond)
	text, err := last.get(t.Context())
	require.NoError(t, err)
	require.Equal(t, "yes", text)
}
