package couch_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch"
)

// A server without an identity is something else than one that does not tell it.
func TestServerIdentity(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		status     int
		body, want string
		err        error
	}{
		"a CouchDB":        {200, `{"couchdb":"Welcome","uuid":"a1","vendor":{"name":"The Apache Software Foundation"}}`, "a1 The Apache Software Foundation", nil},
		"without a vendor": {200, `{"uuid":"a1"}`, "a1", nil},
		"without a uuid":   {200, `{"express-pouchdb":"Welcome!"}`, "", nil},
		"other contents":   {200, `welcome`, "", nil},
		"nothing there":    {404, `{"error":"not_found","reason":"missing"}`, "", nil},
		"not for the user": {403, `{"error":"forbidden","reason":"no"}`, "", couch.ErrForbidden},
		"not without one":  {401, `{"error":"unauthorized","reason":"no"}`, "", couch.ErrUnauthorized},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			}))
			t.Cleanup(server.Close)
			got, err := open(t, server.URL+"/db").ServerIdentity(t.Context())
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.want, got)
		})
	}
}
