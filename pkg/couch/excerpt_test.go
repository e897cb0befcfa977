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

// An error's text has no markup, control characters or secrets.
func TestErrorsOfServersThatAreNotCouchDB(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ content, body, want string }{
		"CouchDB":               {"application/json", `{"error":"a","reason":"b"}`, "502 a: b"},
		"CouchDB in pieces":     {"application/json", "{\"error\":\"a\\u0000\\u001b[31m\",\"reason\":\"b\\r\\nc\\u202ed\"}", "502 a [31m: b c d"},
		"a reason that is none": {"application/json", `{"error":"a","reason":null}`, "502 a"},
		"other JSON":            {"application/json", `{"message":"no"}`, `502 {"message":"no"}`},
		"text":                  {"text/plain; charset=utf-8", "upstream\tis\x00 down\n\n", "502 upstream is down"},
		"nothing":               {"text/plain", "", "502 Bad Gateway"},
		"nginx": {
			"text/html", "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1>" +
				"</center>\r\n<hr><center>nginx/1.18.0</center>\r\n</body>\r\n</html>\r\n",
			"502 502 Bad Gateway nginx/1.18.0",
		},
		"a page in disguise": {
			"text/plain", "\n<!DOCTYPE html><HEAD><style>p {}</style></HEAD><!-- > --><script>alert('<p>')</script><p class=x>M&uuml;ller &lt;3",
			"502 Müller <3",
		},
		"a title only":   {"text/html", "<html><head><title>no <b>one</b></title></head></html>", "502 no one"},
		"a page cut off": {"text/html", "<p>one<p", "502 one"},
		"the password":   {"text/html", "<p>Basic bWU6czNjcmV0 me:s3<b></b>cret s3cret", "502 Basic ***** me:s3 cret *****"},
		"a longer word":  {"text/plain", "s3crets, s3cret", "502 *****"},
		"not UTF-8":      {"text/plain", "a\xffb", "502 a?b"},
		"a lot":          {"text/plain", strings.Repeat("ü", 300), "502 " + strings.Repeat("ü", 100) + "..."},
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
