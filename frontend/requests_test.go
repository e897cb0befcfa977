package frontend_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRequestID(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, id := range []string{"abc", "0123456789", "A-b_c", strings.Repeat("x", 36)} {
		require.Equal(t, id, n.do(http.MethodGet, "/", "", "X-Couch-Request-ID", id).header.Get("X-Couch-Request-ID"))
		n.log.line(t, `"request_id":"`+id+`"`)
	}
	for _, id := range []string{"", "with space", "a/b", `a"b`, "ü", strings.Repeat("x", 37)} {
		require.Regexp(t, "^[0-9a-f]{10}$", n.do(http.MethodGet, "/", "", "X-Couch-Request-ID", id).header.Get("X-Couch-Request-ID"))
	}
}

func TestPlusInPaths(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.newDatabase("db")
	n.setConfig("chttpd/decode_plus_to_space", "false")
	require.Equal(t, "a+b", n.put("/db/a+b", `{}`).is(t, http.StatusCreated).json(t)["id"])
	got := n.do("COPY", "/db/a%2Bb", "", "Destination", "c+d").is(t, http.StatusCreated)
	require.Equal(t, "c+d", got.json(t)["id"])
	n.setConfig("chttpd/decode_plus_to_space", "true")
	require.Equal(t, "a b", n.put("/db/a+b", `{}`).is(t, http.StatusCreated).json(t)["id"])
	got = n.do("COPY", "/db/a%2Bb", "", "Destination", "c+d").is(t, http.StatusCreated)
	require.Equal(t, "c d", got.json(t)["id"])
}

// A page of another origin may use the method that its request is of, and not only POST.
func TestMethodOfOtherOrigins(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/enable_cors=true", "cors/origins="+aPage, "cors/credentials=true")
	n.newDatabase("db")
	n.setConfig("cors/methods", "GET,POST")
	ask := func(method string) answer {
		return n.do(http.MethodPost, "/db/a", `{}`, "X-HTTP-Method-Override", method, "Content-Type", "application/json",
			"Origin", aPage, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors")
	}
	ask(http.MethodPut).is(t, http.StatusForbidden)
	ask(http.MethodGet).is(t, http.StatusNotFound)
	n.setConfig("cors/methods", "POST,PUT")
	ask(http.MethodPut).is(t, http.StatusCreated)
}

// The method that a request is of decides about rights.
func TestMethodAndRights(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.newPeople()
	n.with("db", security)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		n.as(p.member, http.MethodPost, "/db", "", "X-HTTP-Method-Override", method).is(t, http.StatusUnauthorized)
	}
	n.as(p.member, http.MethodPost, "/db", "", "X-HTTP-Method-Override", http.MethodGet).is(t, http.StatusOK)
}
