package causes

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCauses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Cause{
		"http_request_failed: target: GET http://h:1/full-0: 500 internal_server_error: disk is full": {"http://h:1/full-0", "h:1", "target", "500 internal_server_error: disk is full"},
		"nxdomain: could not resolve https://h/orders/":                                               {"https://h/orders/", "h", "", "nxdomain: could not resolve the host"},
		"db_not_found: could not open http://h/none/":                                                 {"http://h/none/", "h", "", "db_not_found: could not open the database"},
		"replication_auth_error: unauthorized to access or create database http://h/x/ as \"ann\": no": {
			"http://h/x/", "h", "", "unauthorized to access or create database as \"ann\": no"},
		"filter_fetch_error: source: `a/b` of `_design/a` is missing":             {Text: "filter_fetch_error: source: … of … is missing"},
		"unauthorized: unauthorized to access or create database http://h/x/: no": {"http://h/x/", "h", "", "unauthorized to access or create database: no"},
		"something else": {Text: "something else"},
		"":               {},
	} {
		assert.Equal(t, want, Of(text), text)
	}
	assert.Equal(t, "`a` is missing", Short("`a` is missing").Text)
}

func TestRemedies(t *testing.T) {
	t.Parallel()
	for cause, want := range map[string]Remedy{
		"db_not_found: could not open": Database, "tls: x509: unknown authority": Certificate, "forbidden to access database": Credentials,
		Refuses: Documents, FeedRefused: WatchLogin, FeedMissing: Feed, FeedFails: Server, "disk is full": Unknown,
	} {
		assert.Equal(t, want, RemedyOf(cause), cause)
	}
	assert.Contains(t, Certificate.Advice(), "ssl_trusted_certificates_file")
	assert.Empty(t, Unknown.Advice())
}
