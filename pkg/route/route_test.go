package route_test

import (
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/route"
)

func headers(pairs ...string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := 0; i < len(pairs); i += 2 {
			if !yield(pairs[i], pairs[i+1]) {
				return
			}
		}
	}
}

// Whatever decides who answers is in the key, and what says who asks is not.
func TestKey(t *testing.T) {
	t.Parallel()
	const server, proxy = "http://a.example/", "http://p.example:3128"
	key := func(proxy string, with ...string) string { return route.Key(server, proxy, headers(with...)) }
	seen := map[string]bool{}
	for _, same := range [][]string{
		{server, key(""), key("", "Authorization", "Bearer x", "cookie", "AuthSession=x"), key("", "Accept", "application/json")},
		{key("", "Accept", "*/*")},
		{key("", "Host", "b.example"), key("", "hOST", "b.example", "authorization", "x")},
		{key("", "Host", "c.example")},
		{key("", "X-Tenant", "me")},
		{key("", "Host", "b.example", "X-Tenant", "me"), key("", "X-Tenant", "me", "Host", "b.example")},
		{key("", "Host", `b.example","x-tenant:me`)},
		{key(proxy), key("HTTP://P.example:3128")},
		{key("http://ann:one@p.example:3128"), key("http://ann:two@p.example:3128")},
		{key(proxy, "Host", "b.example")},
		{key("::")},
		{route.Key("http://b.example/", proxy, headers())},
	} {
		require.False(t, seen[same[0]], "%q is the key of others, too", same[0])
		seen[same[0]] = true
		for _, one := range same {
			require.Equal(t, same[0], one)
		}
	}
}

func TestServer(t *testing.T) {
	t.Parallel()
	for proxy, plain := range map[string]bool{"": true, "http://p.example": false} {
		server, is := route.Server(route.Key("http://a.example/x/", proxy, headers()))
		require.Equal(t, "http://a.example/x/", server)
		require.Equal(t, plain, is)
	}
}
