package couch_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
)

// If a proxy or a host named by a Host header answers 429 in a server's name, only jobs that use it wait.
func TestOnlyRequestsOfTheSameRouteWait(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "other.example" {
			refuseFor(w, "60")
			return
		}
		_, _ = w.Write([]byte(`{"db_name":"db","update_seq":0,"instance_start_time":"0"}`))
	}))
	t.Cleanup(server.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuseFor(w, "60") }))
	t.Cleanup(proxy.Close)

	var limiter couch.Limiter
	url, share := server.URL+"/db", func(c *couch.Config) { c.Limiter = &limiter }
	for _, mislead := range []func(*couch.Config){
		func(c *couch.Config) { c.Proxy = proxy.URL },
		func(c *couch.Config) { c.Header = http.Header{"Host": {"other.example"}} },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := open(t, url, share, mislead, func(c *couch.Config) {
			c.Retrying = func(context.Context, couch.Retry) func() {
				cancel()
				return func() {}
			}
		}).Info(ctx)
		require.ErrorIs(t, err, context.Canceled)
	}
	untouched := open(t, url, share, func(c *couch.Config) {
		c.Retrying = func(_ context.Context, retry couch.Retry) func() {
			t.Errorf("it waits: %v", retry.Err)
			return func() {}
		}
	})
	_, err := untouched.Info(t.Context())
	require.NoError(t, err)
}

func refuseFor(w http.ResponseWriter, seconds string) {
	w.Header().Set("Retry-After", seconds)
	http.Error(w, `{"error":"too_many_requests","reason":"later"}`, http.StatusTooManyRequests)
}
