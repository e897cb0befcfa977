package couch_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
)

// Whoever brings a proxy, or a Host header, that says in a server's name that there were too many requests is
// the only one to wait.
func TestOnlyThoseWaitWhoAskTheSameWay(t *testing.T) {
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
	open := func(cfg couch.Config) *couch.Database {
		cfg.URL, cfg.Limiter = server.URL+"/db", &limiter
		db, err := couch.Open(cfg)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		return db
	}
	for _, misled := range []couch.Config{
		{Proxy: proxy.URL}, {Header: http.Header{"Host": {"other.example"}}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		misled.Retrying = func(context.Context, couch.Retry) func() {
			cancel()
			return func() {}
		}
		_, err := open(misled).Info(ctx)
		require.ErrorIs(t, err, context.Canceled)
	}
	untouched := open(couch.Config{Retrying: func(_ context.Context, retry couch.Retry) func() {
		t.Errorf("it waits: %v", retry.Err)
		return func() {}
	}})
	_, err := untouched.Info(t.Context())
	require.NoError(t, err)
}

func refuseFor(w http.ResponseWriter, seconds string) {
	w.Header().Set("Retry-After", seconds)
	http.Error(w, `{"error":"too_many_requests","reason":"later"}`, http.StatusTooManyRequests)
}
