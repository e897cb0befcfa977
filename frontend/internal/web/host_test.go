package web_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/web"
)

func TestOnlyLocalNames(t *testing.T) {
	t.Parallel()
	metrics := web.OnlyLocalNames(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	status := func(h http.Handler, host string) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "LocalHost:5984": 200, "localhost.": 200, "couch.localhost:80": 200, "127.0.0.1:5984": 200, "192.0.2.7": 200,
		"[::1]:5984": 200, "[::1]": 200,
		"evil.example.com": 403, "evil.example.com:5984": 403, "localhost.evil.com": 403, "notlocalhost": 403, "127.0.0.1.evil.com": 403, "a b": 403,
	} {
		require.Equal(t, want, status(metrics, host), host)
	}
}
