package worker_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

// tokens returns databases that want access tokens, and the server that gives them.
func tokens(t *testing.T, docs int) (source, target *stub, server *couchtest.TokenServer, url string) {
	t.Helper()
	source, target = stubs(t, docs)
	server = couchtest.NewTokenServer()
	for _, s := range []*stub{source, target} {
		s.Config.Handler = server.Guard(s.Config.Handler)
	}
	peer := httptest.NewServer(server)
	t.Cleanup(peer.Close)
	return source, target, server, peer.URL + "/token"
}

// withTokens returns a replication whose endpoints have credentials for tokens.
func withTokens(t *testing.T, source, target, auth string) *replicator.Replication {
	t.Helper()
	request, err := replicator.ParseRequest([]byte(`{"source":{"url":"`+source+`","auth":`+auth+`},"target":{"url":"`+target+`","auth":`+auth+`}}`),
		replicator.ParseOptions{})
	require.NoError(t, err)
	return request.Replication
}

// Runs with the same credentials use one token, however the settings want users to log in.
func TestRunsShareTokens(t *testing.T) {
	t.Parallel()
	source, target, server, url := tokens(t, 3)
	auth := `{"oauth2":{"token_url":"` + url + `","client_id":"me","client_secret":"s3cret-key"}}`
	shared := worker.Impatient()
	for _, basic := range []bool{false, true} {
		result := run(t, withTokens(t, source.URL, target.URL, auth), func(cfg *worker.Config) { cfg.Shared, cfg.BasicAuth = shared, basic })
		require.EqualValues(t, 3, result.RunStats.DocsWritten)
	}
	require.Len(t, server.Asked(), 1)
}

// The server for API keys of IBM Cloud is a setting.
func TestRunWithAPIKey(t *testing.T) {
	t.Parallel()
	source, target, server, url := tokens(t, 3)
	result := run(t, withTokens(t, source.URL, target.URL, `{"ibm":{"iam":{"api_key":"s3cret-key"}}}`), func(cfg *worker.Config) { cfg.IBMTokenURL = url })
	require.EqualValues(t, 3, result.Stats.DocsWritten)
	require.Equal(t, "/token", server.Asked()[0].Path)
}

// A token server that refuses or fails is named in the fault, which says what helps.
func TestFaultsOfTokens(t *testing.T) {
	t.Parallel()
	source, target, server, url := tokens(t, 3)
	auth := `{"oauth2":{"token_url":"` + url + `","client_id":"me","client_secret":"wr0ng-key"}}`
	failure := fails(t, withTokens(t, source.URL, target.URL, auth))
	f := failure.Fault
	require.Equal(t, []any{replicator.FaultTokenRefused, replicator.RequestToken, replicator.SideSource, "unauthorized"},
		[]any{f.Code, f.Request, f.Side, failure.Code})
	require.Equal(t, url, "http://"+f.Host+"/token")
	require.Equal(t, []string{"invalid_client", "not *****"}, []string{f.Word, f.Said})
	require.NotContains(t, failure.Reason, "wr0ng-key")
	require.NotNil(t, f.Code.Advice(replicator.Advised{Side: f.Side, Host: f.Host}))

	server.Set(func(s *couchtest.TokenServer) {
		s.Answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	})
	failure = fails(t, withTokens(t, source.URL, target.URL, auth))
	f = failure.Fault
	require.Equal(t, []any{replicator.FaultTokenFailed, replicator.RequestToken, "error"}, []any{f.Code, f.Request, failure.Code})
	require.Equal(t, url, "http://"+f.Host+"/token")
	require.Contains(t, failure.Reason, "no access token: 503 Service Unavailable")
}
