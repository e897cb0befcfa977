package web

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

func settings(t *testing.T, sets ...string) *config.Config {
	t.Helper()
	cfg, _, err := config.Load(config.Options{Flags: sets})
	require.NoError(t, err)
	return cfg
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	some := settings(t, "cors/origins=https://a.example,http://b.example:81")
	for origin, want := range map[string]bool{
		"https://a.example": true, "HTTPS://A.example": true, "http://b.example:81": true,
		"": false, "http://a.example": false, "http://b.example": false, "null": false,
	} {
		assert.Equal(t, pageRights{accepted: want}, pageOf(some, origin), origin)
	}
	assert.Equal(t, pageRights{accepted: true}, pageOf(settings(t, "cors/origins=*"), "http://any.example"))
	assert.Equal(t, pageRights{}, pageOf(settings(t, "cors/credentials=true"), "http://any.example"), "without a list")
	both := settings(t, "cors/origins=*, https://a.example", "cors/credentials=true")
	assert.Equal(t, pageRights{true, true}, pageOf(both, "https://a.example"))
	assert.Equal(t, pageRights{accepted: true}, pageOf(both, "https://b.example"), "any page could act as its visitor")
	assert.Equal(t, pageRights{}, pageOf(both, ""))
}

// request returns a request with headers: name, value, and so on. It has no header whose value is empty.
func request(method string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, "/db", nil)
	for pair := range slices.Chunk(headers, 2) {
		if pair[1] != "" {
			r.Header.Set(pair[0], pair[1])
		}
	}
	return r
}

func TestDeliberateRequests(t *testing.T) {
	t.Parallel()
	plain := settings(t, "cors/origins=https://a.example")
	credentials := settings(t, "cors/origins=https://a.example", "cors/credentials=true")
	for _, c := range []struct {
		r                     *http.Request
		plainly, withPassword bool
	}{
		{request("GET"), true, true},
		{request("GET", "Sec-Fetch-Mode", "cors"), true, true},
		{request("GET", "Sec-Fetch-Mode", "no-cors"), false, false},
		{request("POST", "Sec-Fetch-Mode", "navigate"), false, false},
		{request("GET", "Cookie", "AuthSession=x"), false, true},
		{request("GET", "Authorization", "Basic x"), true, true}, // it needed a preflight request
		{request("POST", "Authorization", "Basic x"), false, true},
		{request("POST", "Authorization", "Basic x", "Content-Type", "text/plain"), false, true},
		{request("POST", "Authorization", "Basic x", "Content-Type", "application/json"), true, true},
		{request("PROPFIND", "X-HTTP-Method-Override", "PROPFIND"), false, false},
	} {
		assert.Equal(t, c.plainly, deliberate(plain, pageOf(plain, "https://a.example"), c.r), "%s %v", c.r.Method, c.r.Header)
		assert.Equal(t, c.withPassword, deliberate(credentials, pageOf(credentials, "https://a.example"), c.r), "%s %v, with credentials", c.r.Method, c.r.Header)
	}
}

func TestPreflightRequests(t *testing.T) {
	t.Parallel()
	cfg := settings(t, "cors/origins=https://a.example", "cors/methods=GET,PUT", "cors/headers=x-own", "cors/max_age=7")
	ask := func(method, headers string) (http.Header, bool) {
		out := http.Header{}
		ok := preflight(cfg, pageOf(cfg, "https://a.example"), out, request("OPTIONS", "Origin", "https://a.example",
			"Access-Control-Request-Method", method, "Access-Control-Request-Headers", headers))
		return out, ok
	}
	header, ok := ask("PUT", "X-Own")
	require.True(t, ok)
	assert.Equal(t, http.Header{
		"Access-Control-Allow-Origin": {"https://a.example"}, "Access-Control-Max-Age": {"7"},
		"Access-Control-Allow-Methods": {"GET, PUT"}, "Access-Control-Allow-Headers": {"X-Own"},
	}, header)
	for _, refused := range [][2]string{{"DELETE", ""}, {"", ""}, {"PUT", "x-own, x-other"}} {
		_, ok := ask(refused[0], refused[1])
		assert.False(t, ok, refused)
	}
}
