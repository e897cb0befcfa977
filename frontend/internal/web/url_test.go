package web

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]string{
		"/":                 nil,
		"//a///b/":          {"a", "b"},
		"/a%2fb/c%20d":      {"a/b", "c d"},
		"/a+b":              {"a+b"},
		"/id%7Cother/x|y":   {"id|other", "x|y"},
		"/%5fdesign%2Fd/é%": {"_design/d", "é%"},
	} {
		u := &url.URL{Path: path, RawPath: path}
		assert.Equal(t, want, PathSegments(Canonical(u, false)), path)
	}
	spaces := Canonical(&url.URL{Path: "/a+b/c%2Bd", RawPath: "/a+b/c%2Bd"}, true)
	assert.Equal(t, []string{"a b", "c+d"}, PathSegments(spaces))
	assert.Equal(t, "/a%20b/c+d", spaces.EscapedPath())
}

func TestAbsoluteURLs(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "http://node:5984/db", nil)
	assert.Equal(t, "http://node:5984/db/doc", AbsoluteURL(r, "db/doc"))
	r.TLS = new(tls.ConnectionState)
	assert.Equal(t, "https://node:5984/", AbsoluteURL(r, ""))
	r.TLS = nil
	r.Header.Set("X-Forwarded-Host", "example.org")
	r.Header.Set("X-Forwarded-Proto", "HTTPS")
	assert.Equal(t, "https://example.org/db", AbsoluteURL(r, "db"))
}

func TestQueries(t *testing.T) {
	t.Parallel()
	query := func(text string) *Query { return NewQuery(&http.Request{URL: &url.URL{RawQuery: text}}) }
	q := query("yes=true&no=FALSE&n=7&large=99999999999999999999&id=%22a%22")
	assert.True(t, q.Flag("yes", false))
	assert.False(t, q.Flag("no", true))
	assert.True(t, q.Flag("missing", true))
	assert.Equal(t, 7, q.Count("n", 1))
	assert.Equal(t, 1, q.Count("missing", 1))
	assert.Equal(t, int(^uint(0)>>1), q.Count("large", 1))
	var id string
	assert.True(t, q.JSON("id", "a string", &id))
	assert.Equal(t, "a", id)
	assert.False(t, q.JSON("missing", "a string", &id))
	require.NoError(t, q.Err)
	for _, bad := range []func(q *Query){
		func(q *Query) { q.Flag("yes", false) },
		func(q *Query) { q.Count("n", 0) },
		func(q *Query) { q.JSON("id", "a string", &id) },
	} {
		q := query("yes=1&n=-1&id=a")
		bad(q)
		var failure *Failure
		require.ErrorAs(t, q.Err, &failure)
		assert.Equal(t, http.StatusBadRequest, failure.Status)
		q.Refuse("a later one")
		assert.Same(t, failure, q.Err, "the first error counts")
	}
	require.Error(t, query("%zz").Err)
}
