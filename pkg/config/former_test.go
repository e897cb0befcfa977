package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func loaded(t *testing.T, file string, flags ...string) (*Config, []Warning) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "local.ini")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	cfg, warnings, err := Load(Options{Files: []string{path}, Flags: flags})
	require.NoError(t, err)
	return cfg, warnings
}

func TestOlderSections(t *testing.T) {
	t.Parallel()
	cfg, warnings := loaded(t, "[httpd]\nenable_cors = true\n[couch_httpd_auth]\ntimeout = 7\nsecret = hidden\n")
	assert.Empty(t, warnings)
	assert.True(t, EnableCORS.Get(cfg))
	assert.Equal(t, 7., SessionTimeout.Get(cfg).Seconds())
	assert.Contains(t, EnableCORS.From(cfg), "local.ini:2")
	shown := cfg.Shown()
	assert.Equal(t, map[string]string{"enable_cors": "true"}, shown["httpd"])
	assert.Equal(t, map[string]string{"timeout": "7", "secret": masked}, shown["couch_httpd_auth"])
	assert.Equal(t, "true", shown["chttpd"]["enable_cors"], "what is in effect")
	assert.Equal(t, masked, shown["chttpd_auth"]["secret"])
	assert.Contains(t, cfg.Sourced()["chttpd"]["enable_cors"].Origin, "local.ini:2")

	cfg, _ = loaded(t, "[chttpd]\nenable_cors = false\n", "httpd/enable_cors=true")
	assert.False(t, EnableCORS.Get(cfg), "the present name precedes in whichever layer it is")
	assert.Equal(t, "true", cfg.Shown()["httpd"]["enable_cors"])

	cfg, _ = loaded(t, "[httpd]\nenable_cors = false\n", "httpd/enable_cors=true")
	assert.True(t, EnableCORS.Get(cfg), "of one name the stronger layer counts")

	cfg, _ = loaded(t, "[couch_httpd_auth]\nsecret =\n")
	assert.NotContains(t, cfg.Shown(), "couch_httpd_auth", "empty texts are left out")

	_, _, err := Load(Options{Flags: []string{"httpd/enable_cors=maybe"}})
	require.ErrorContains(t, err, "[httpd] enable_cors (--set): \"maybe\" is refused")

	for _, unchanged := range []string{"[httpd]\nport = 1\n", "[couch_httpd_auth]\nupgrade_hash_on_auth = maybe\n"} {
		cfg, warnings = loaded(t, unchanged)
		assert.Empty(t, warnings, "CouchDB does not read it there")
		assert.Equal(t, new(Config).Shown()["chttpd"], cfg.Shown()["chttpd"])
	}
	_, warnings = loaded(t, "[couch_httpd_auth]\nusers_db_public = true\n[httpd]\nallow_jsonp = true\n")
	require.Len(t, warnings, 2)
	assert.Contains(t, warnings[0].Reason, "has no effect: only its owner")
	assert.Contains(t, warnings[1].Reason, "has no effect: answers are JSON")
}

// A value of an older name in the store does not replace one of the present name, and may be read and removed.
func TestOlderSectionsInTheStore(t *testing.T) {
	t.Parallel()
	rows, err := new(Config).change(nil, Value{Section: "chttpd", Key: "enable_cors", Text: "false"})
	require.NoError(t, err)
	rows, err = new(Config).change(rows, Value{Section: "httpd", Key: "enable_cors", Text: "true"})
	require.NoError(t, err)
	require.Len(t, rows, 2)
	cfg, warnings := new(Config).withStored(rows)
	assert.Empty(t, warnings)
	assert.False(t, EnableCORS.Get(cfg))
	text, from := cfg.text(name{"httpd", "enable_cors"})
	assert.Equal(t, [2]string{"true", "store"}, [2]string{text, from})
	rows, err = cfg.remove(rows, name{"chttpd", "enable_cors"})
	require.NoError(t, err)
	cfg, _ = new(Config).withStored(rows)
	assert.True(t, EnableCORS.Get(cfg))
	_, err = new(Config).change(nil, Value{Section: "httpd", Key: "enable_cors", Text: "maybe"})
	require.ErrorAs(t, err, new(*RefusedError))
}
