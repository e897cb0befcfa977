package redact_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/redact"
)

func TestPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/db/doc": "/db/doc",
		"/_users/org.couchdb.user:jan@example.com": "/_users/org.couchdb.user:jan@example.com",
		"/db/a%2Fb%":                               "/db/a%2Fb%",
		"/http://adm:secret@host/db":               "/http://adm:*****@host/db",
		"/http:/adm:secret@host/db":                "/http://adm:*****@host/db",
		"/db/https:/adm:se/cret@host/db":           "/db/https://adm:*****@host/db",
		"/http%3A%2F%2Fadm%3Asecret%40host":        "/http://adm:*****@host",
		"/http%253A%252F%252Fadm%253Asecret%2540h": "/http://adm:*****@h",
		"/http:/token@host":                        "/http://*****@host",
		"/http:/host/a@b":                          "/http:/host/a@b",
	} {
		require.Equal(t, want, redact.Path(path))
	}
}
