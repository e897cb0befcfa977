package couch_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
)

// A 403 says as which user the request was made, unless that is not known or is the password.
func TestForbiddenNamesTheUser(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit func(*couch.Config)
		want string
	}{
		"a user":          {func(c *couch.Config) { c.Username, c.Password = "ann", "s3cret" }, `403 forbidden: no (as user "ann")`},
		"no user":         {func(*couch.Config) {}, "403 forbidden: no (without a user)"},
		"a header":        {func(c *couch.Config) { c.Header = http.Header{"Authorization": {"Bearer t0ken"}} }, "403 forbidden: no"},
		"a secret's name": {func(c *couch.Config) { c.Username, c.Password = "s3cret", "s3cret" }, "403 forbidden: no (as user *****)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := serving(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				_, _ = w.Write([]byte(`{"error":"forbidden","reason":"no"}`))
			}, noRetries, test.edit)
			_, err := db.Info(t.Context())
			require.ErrorIs(t, err, couch.ErrForbidden)
			require.True(t, strings.HasSuffix(err.Error(), test.want), "%v", err)
		})
	}
}

// A certificate of an unknown authority says which setting would name the authority.
func TestUnknownAuthorityNamesTheSetting(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	_, err := open(t, server.URL+"/db", noRetries).Info(t.Context())
	require.ErrorContains(t, err, "certificate signed by unknown authority")
	require.ErrorContains(t, err, "[replicator] ssl_trusted_certificates_file")
}

// A login that stalls says where, in the cause alone.
func TestStalledLoginNamesTheHost(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		door := &doorman{login: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}
		_, err := knocks(t, door, noRetries).Info(t.Context())
		require.ErrorIs(t, err, couch.ErrStalled)
		var failed *couch.Error
		require.ErrorAs(t, err, &failed)
		require.Contains(t, failed.Cause(), "logging in at http://couch.example/_session: stalled")
	})
}
