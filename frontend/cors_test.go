package frontend_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

const aPage = "https://app.example.com"

// The headers of an answer that are about CORS.
func aboutCORS(a webtest.Answer) map[string]string {
	all := map[string]string{}
	for name, short := range map[string]string{
		"Access-Control-Allow-Origin": "origin", "Access-Control-Allow-Credentials": "credentials", "Access-Control-Allow-Methods": "methods",
		"Access-Control-Allow-Headers": "headers", "Access-Control-Max-Age": "age", "Access-Control-Expose-Headers": "exposed", "Vary": "vary",
	} {
		if value := a.Header.Get(name); value != "" {
			all[short] = value
		}
	}
	return all
}

func TestNoCORSUnlessConfigured(t *testing.T) {
	t.Parallel()
	n := start(t, "cors/origins=*")
	require.Empty(t, aboutCORS(n.Do(http.MethodGet, "/", "", "Origin", aPage)))
	got := n.Do(http.MethodOptions, "/", "", "Origin", aPage, "Access-Control-Request-Method", "GET").Is(t, http.StatusMethodNotAllowed)
	require.Empty(t, aboutCORS(got))
	require.Equal(t, http.StatusForbidden, n.Do(http.MethodPut, "/db", "", "Origin", aPage, "Sec-Fetch-Site", "cross-site").Status)

	// The configuration of all nodes can change it, with effect at once.
	require.Equal(t, http.StatusOK, n.Do(http.MethodPut, "/_node/_local/_config/chttpd/enable_cors", `"true"`).Status)
	require.Equal(t, aPage, aboutCORS(n.Do(http.MethodGet, "/", "", "Origin", aPage))["origin"])
}

// The requests of add-cors-to-couchdb, which PouchDB's documentation names: older section names, and credentials for
// every page, which have no effect.
func TestCORSBySetUpTools(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, set := range [][2]string{
		{"httpd/enable_cors", "true"}, {"cors/origins", "*"}, {"cors/credentials", "true"},
		{"cors/methods", "GET, PUT, POST, HEAD, DELETE"}, {"cors/headers", "accept, authorization, content-type, origin, referer, x-csrf-token"},
	} {
		n.setConfig(set[0], set[1]).Is(t, http.StatusOK)
	}
	require.Equal(t, "\"true\"\n", n.Get("/_node/_local/_config/chttpd/enable_cors").Body, "what counts")
	allowed := func(origin string) [2]string {
		said := aboutCORS(n.Do(http.MethodGet, "/_up", "", "Origin", origin))
		return [2]string{said["origin"], said["credentials"]}
	}
	require.Equal(t, [2]string{aPage, ""}, allowed(aPage), "without credentials any page may")
	n.setConfig("cors/origins", "*, "+aPage).Is(t, http.StatusOK)
	require.Equal(t, [2]string{aPage, "true"}, allowed(aPage))
	require.Equal(t, [2]string{"https://evil.example.com", ""}, allowed("https://evil.example.com"))
	n.setConfig("cors/origins", aPage).Is(t, http.StatusOK)
	require.Equal(t, [2]string{aPage, "true"}, allowed(aPage))
	require.Equal(t, [2]string{"", ""}, allowed("https://evil.example.com"))
	require.Equal(t, "{\"enable_cors\":\"true\"}\n", n.Get("/_node/_local/_config/httpd").Body)
}

func TestCORSPreflight(t *testing.T) {
	t.Parallel()
	const methods = "COPY, DELETE, GET, HEAD, OPTIONS, POST, PUT"
	for _, test := range []struct {
		name, origin, method, headers string
		sets                          []string
		want                          map[string]string // nil: it is no preflight
	}{
		{"as it is", aPage, "PUT", "Content-Type,  X-Couch-Full-Commit", nil, map[string]string{
			"origin": aPage, "methods": methods, "headers": "Content-Type,  X-Couch-Full-Commit", "age": "600", "vary": "Origin"}},
		{"no headers", "HTTPS://App.Example.com", "COPY", "", nil, map[string]string{
			"origin": "HTTPS://App.Example.com", "methods": methods, "age": "600", "vary": "Origin"}},
		{"as configured", aPage, "GET", "x-own", []string{"cors/headers=X-Own", "cors/methods=GET, PUT", "cors/max_age=5", "cors/credentials=true"},
			map[string]string{"origin": aPage, "methods": "GET, PUT", "headers": "x-own", "age": "5", "credentials": "true", "vary": "Origin"}},
		{"any origin", "null", "GET", "", []string{"cors/origins=*"},
			map[string]string{"origin": "null", "methods": methods, "age": "600", "vary": "Origin"}},
		{"another origin", "https://evil.example.com", "GET", "", nil, nil},
		{"origin below", aPage + ".evil.com", "GET", "", nil, nil},
		{"no origin", "", "GET", "", nil, nil},
		{"another method", aPage, "TRACE", "", nil, nil},
		{"no method", aPage, "", "", nil, nil},
		{"another header", aPage, "GET", "content-type, x-own", nil, nil},
	} {
		n := start(t, append([]string{"chttpd/enable_cors=true", "cors/origins=https://other.example.com, " + aPage}, test.sets...)...)
		var headers []string
		for name, value := range map[string]string{
			"Origin": test.origin, "Access-Control-Request-Method": test.method, "Access-Control-Request-Headers": test.headers,
		} {
			if value != "" {
				headers = append(headers, name, value)
			}
		}
		got := n.Do(http.MethodOptions, "/db/doc", "", headers...)
		if test.want != nil {
			require.Equal(t, http.StatusNoContent, got.Status, test.name)
			require.Equal(t, test.want, aboutCORS(got), test.name)
			require.Empty(t, got.Body)
			continue
		}
		require.Equal(t, http.StatusMethodNotAllowed, got.Status, test.name)
		require.Empty(t, got.Header.Values("Access-Control-Allow-Methods"), test.name)
	}
}

func TestCORSRequests(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/enable_cors=true", "cors/origins="+aPage)
	const exposed = "content-type, cache-control, accept-ranges, etag, server, x-couch-request-id, x-couch-update-newrev, x-couchdb-body-time"
	want := map[string]string{"origin": aPage, "exposed": exposed, "vary": "Origin"}
	require.Equal(t, want, aboutCORS(n.Do(http.MethodGet, "/", "", "Origin", aPage)))
	require.Equal(t, want, aboutCORS(n.Do(http.MethodGet, "/nothing", "", "Origin", aPage)), "errors can be seen as well")
	require.Equal(t, map[string]string{"vary": "Origin"}, aboutCORS(n.Do(http.MethodGet, "/", "", "Origin", "https://evil.example.com")))
	require.Equal(t, map[string]string{"vary": "Origin"}, aboutCORS(n.Get("/")))

	for i, test := range []struct {
		status  int
		headers []string
	}{
		{http.StatusCreated, []string{"Origin", aPage, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}},
		{http.StatusCreated, []string{"Origin", aPage}}, // from an old browser
		{http.StatusForbidden, []string{"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}},
		// A form, or one that wants no answer.
		{http.StatusForbidden, []string{"Origin", aPage, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}},
		{http.StatusForbidden, []string{"Origin", aPage, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}},
		// This page may not use credentials.
		{http.StatusForbidden, []string{"Origin", aPage, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Cookie", "session=x"}},
	} {
		require.Equal(t, test.status, n.Do(http.MethodPut, fmt.Sprint("/db", i), "", test.headers...).Status, test.headers)
	}
	// Nor may it use passwords that the browser remembers. Before a request with a password of the page's own, the browser asks.
	for kind, want := range map[string]int{"": http.StatusForbidden, "text/plain;charset=UTF-8": http.StatusForbidden, "application/json": http.StatusAccepted} {
		got := n.Do(http.MethodPost, "/db0/_compact", "{}", "Origin", aPage, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Content-Type", kind)
		require.Equal(t, want, got.Status, "%q: %s", kind, got.Body)
	}
	n = start(t, "chttpd/enable_cors=true", "cors/origins="+aPage, "cors/credentials=true", "cors/exposed_headers=X-Own")
	got := n.Do(http.MethodPut, "/db", "", "Origin", aPage, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Cookie", "session=x").Is(t, http.StatusCreated)
	require.Equal(t, map[string]string{
		"origin": aPage, "credentials": "true", "exposed": "content-type, cache-control, x-own", "vary": "Origin",
	}, aboutCORS(got))
}
