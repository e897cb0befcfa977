package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

// port returns the port of a URL.
func port(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	return u.Port()
}

// A node that works is healthy, without credentials. One that has ended is not.
func TestHealth(t *testing.T) {
	t.Parallel()
	node := serveNode(t, "mem:", "chttpd/bind_address=any")
	ask := []string{"health", "--set", "chttpd/bind_address=any", "--set", "chttpd/port=" + port(t, node.url)}
	out, errs, status := settee(t, ask...)
	assert.Zero(t, status, errs)
	assert.JSONEq(t, `{"status":"ok","seeds":{}}`, out)
	assert.Zero(t, node.end(syscall.SIGTERM))
	out, errs, status = settee(t, ask...)
	assert.Equal(t, exitFailed, status)
	assert.Empty(t, out)
	assert.Contains(t, errs, "/_up: ")
}

func TestHealthOfAReplicationNode(t *testing.T) {
	t.Parallel()
	node := begin(t, "settee is running", []string{"COUCHDB_NODE_TYPE_API_FRONTEND=false"},
		"serve", "--store", "mem:", "--set", "prometheus/additional_port=true", "--set", "prometheus/port=0")
	out, errs, status := settee(t, "health", "--set", "node_types/api_frontend=false",
		"--set", "prometheus/additional_port=true", "--set", "prometheus/port="+port(t, node.metricsURL()))
	assert.Zero(t, status, errs)
	assert.JSONEq(t, `{"status":"ok"}`, out)
}

func TestHealthOfOtherAnswers(t *testing.T) {
	t.Parallel()
	for path, test := range map[string]struct {
		status int
		says   string
	}{
		"/failing":      {http.StatusServiceUnavailable, `answered 503 Service Unavailable: {"status":"store_unavailable"}`},
		"/unauthorized": {http.StatusUnauthorized, "require_valid_user_except_for_up"},
		"/redirected":   {http.StatusFound, "answered 302 Found"},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/")
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(`{"status":"store_unavailable"}`))
			}))
			defer node.Close()
			_, errs, status := settee(t, "health", "--url", node.URL+path)
			assert.Equal(t, exitFailed, status)
			assert.Contains(t, errs, test.says)
		})
	}
}

func TestUpURL(t *testing.T) {
	t.Parallel()
	for sets, want := range map[string]string{
		"":                                "http://127.0.0.1:5984/_up",
		"chttpd/port=80":                  "http://127.0.0.1:80/_up",
		"chttpd/bind_address=any":         "http://[::1]:5984/_up",
		"chttpd/bind_address=0.0.0.0":     "http://127.0.0.1:5984/_up",
		"chttpd/bind_address=192.0.2.1":   "http://192.0.2.1:5984/_up",
		"prometheus/additional_port=true": "http://127.0.0.1:5984/_up",
		"chttpd/port=0":                   "the port is 0",
		"node_types/api_frontend=false":   "can only be asked if [prometheus] additional_port is true",
		"node_types/api_frontend=false prometheus/additional_port=true": "http://127.0.0.1:17986/_up",
	} {
		cfg, _, err := config.Load(config.Options{Flags: strings.Fields(sets)})
		require.NoError(t, err)
		got, err := upURL(cfg)
		if err != nil {
			got = err.Error()
		}
		assert.Contains(t, got, want, sets)
	}
}
