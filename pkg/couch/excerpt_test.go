package couch_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch"
)

// An error's text has no control characters or secrets, and only what CouchDB's protocol has of the answer.
func TestErrorsOfServers(t *testing.T) {
	t.Parallel()
	reason := func(text string) string { return `{"error":"a","reason":"` + text + `"}` }
	for name, test := range map[string]struct{ content, body, want string }{
		"CouchDB":               {"application/json", reason("b"), "502 a: b"},
		"CouchDB in pieces":     {"application/json", "{\"error\":\"a\\u0000\\u001b[31m\",\"reason\":\"b\\r\\nc\\u202ed\"}", "502 a [31m: b c d"},
		"a reason that is none": {"application/json", `{"error":"a","reason":null}`, "502 a"},
		"an object as reason":   {"application/json", `{"error":"a","reason":{"b":1}}`, "502 a: map[b:1]"},
		"the password":          {"application/json", reason("Basic bWU6czNjcmV0 me:s3cret"), "502 a: Basic ***** me:*****"},
		"a longer word":         {"text/plain", reason("s3crets, s3cret"), "502 a: *****"},
		"not UTF-8":             {"text/plain", reason("a\xffb"), "502 a: a\ufffdb"},
		"a lot":                 {"text/plain", reason(strings.Repeat("ü", 300)), "502 a: " + strings.Repeat("ü", 100) + "..."},
		"other JSON":            {"application/json", `{"message":"no"}`, "502 Bad Gateway"},
		"half of it":            {"application/json", `{"error":"a"}`, "502 Bad Gateway"},
		"text":                  {"text/plain; charset=utf-8", "upstream is down", "502 Bad Gateway"},
		"nothing":               {"text/plain", "", "502 Bad Gateway"},
		"a page":                {"text/html", "<html><title>a</title><body>b</body></html>", "502 Bad Gateway"},
	} {
		testkit.RunBubble(t, name, func(t *testing.T) {
			db := piped(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", test.content)
				w.WriteHeader(http.StatusBadGateway)
				_, _ = io.WriteString(w, test.body)
			}, noRetries, func(cfg *couch.Config) { cfg.Username, cfg.Password = "me", "s3cret" })
			_, err := db.Info(t.Context())
			require.EqualError(t, err, "GET http://couch.example/db: "+test.want)
		})
	}
}
