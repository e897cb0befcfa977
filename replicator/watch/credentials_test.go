package watch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// Jobs with other credentials for access tokens are others to a watch: it tries each, and stops to use one that its job no longer
// has.
func TestCredentialsForTokens(t *testing.T) {
	t.Parallel()
	with := func(auth string) replicator.Endpoint {
		r, err := replicator.ParseRequest([]byte(`{"source":{"url":"http://a.example/db","auth":`+auth+`},"target":"http://b.example/db"}`),
			replicator.ParseOptions{})
		require.NoError(t, err)
		return withoutURL(r.Replication.Source)
	}
	seed := newSeed()
	one, same := with(`{"ibm":{"api_key":"a"}}`), with(`{"iam":{"api_key":"a"}}`)
	require.True(t, sameEndpoint(one, same))
	require.Equal(t, seed.hash(credentials{endpoint: one}), seed.hash(credentials{endpoint: same}))
	for _, auth := range []string{`{}`, `{"ibm":{"api_key":"b"}}`, `{"oauth2":{"token_url":"http://h/","client_id":"a","client_secret":"a"}}`} {
		other := with(auth)
		require.False(t, sameEndpoint(one, other), auth)
		require.NotEqual(t, seed.hash(credentials{endpoint: one}), seed.hash(credentials{endpoint: other}), auth)
	}
}
