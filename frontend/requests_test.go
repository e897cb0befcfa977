package frontend_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/webtest"
)

func TestRequestID(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, id := range []string{"abc", "0123456789", "A-b_c", strings.Repeat("x", 36)} {
		require.Equal(t, id, n.Do(http.MethodGet, "/", "", "X-Couch-Request-ID", id).Header.Get("X-Couch-Request-ID"))
		n.Journal.Line(t, `"request_id":"`+id+`"`)
	}
	for _, id := range []string{"", "with space", "a/b", `a"b`, "ü", strings.Repeat("x", 37)} {
		require.Regexp(t, "^[0-9a-f]{10}$", n.Do(http.MethodGet, "/", "", "X-Couch-Request-ID", id).Header.Get("X-Couch-Request-ID"))
	}
}

func TestPlusInPaths(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.NewDatabase("db")
	n.setConfig("chttpd/decode_plus_to_space", "false")
	require.Equal(t, "a+b", n.Put("/db/a+b", `{}`).Is(t, http.StatusCreated).JSON(t)["id"])
	got := n.Do("COPY", "/db/a%2Bb", "", "Destination", "c+d").Is(t, http.StatusCreated)
	require.Equal(t, "c+d", got.JSON(t)["id"])
	n.setConfig("chttpd/decode_plus_to_space", "true")
	require.Equal(t, "a b", n.Put("/db/a+b", `{}`).Is(t, http.StatusCreated).JSON(t)["id"])
	got = n.Do("COPY", "/db/a%2Bb", "", "Destination", "c+d").Is(t, http.StatusCreated)
	require.Equal(t, "c d", got.JSON(t)["id"])
}

// A page of another origin may use the method that its request is of, and not only POST.
func TestMethodOfOtherOrigins(t *testing.T) {
	t.Parallel()
	n := start(t, "chttpd/enable_cors=true", "cors/origins="+aPage, "cors/credentials=true")
	n.NewDatabase("db")
	n.setConfig("cors/methods", "GET,POST")
	ask := func(method string) webtest.Answer {
		return n.Do(http.MethodPost, "/db/a", `{}`, "X-HTTP-Method-Override", method, "Content-Type", "application/json",
			"Origin", aPage, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors")
	}
	ask(http.MethodPut).Is(t, http.StatusForbidden)
	ask(http.MethodGet).Is(t, http.StatusNotFound)
	n.setConfig("cors/methods", "POST,PUT")
	ask(http.MethodPut).Is(t, http.StatusCreated)
}

// The method that a request is of decides about rights.
func TestMethodAndRights(t *testing.T) {
	t.Parallel()
	n := start(t)
	p := n.NewPeople()
	n.With("db", webtest.Security)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		n.As(p.Member, http.MethodPost, "/db", "", "X-HTTP-Method-Override", method).Is(t, http.StatusUnauthorized)
	}
	n.As(p.Member, http.MethodPost, "/db", "", "X-HTTP-Method-Override", http.MethodGet).Is(t, http.StatusOK)
}
