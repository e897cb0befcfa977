package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConfigCheck checks files, and leaves it to the exit status whether a node would start with them.
func TestConfigCheck(t *testing.T) {
	t.Parallel()
	engines := regexp.MustCompile(`this binary has .*`)
	for text, want := range map[string]struct {
		status int
		out    string // FILE stands for the file
	}{
		"[replicator]\nmax_jobs = 5\n": {0, ""},
		"[settee]\nstore = pebbel:///x\n": {exitFailed,
			"error: [settee] store (FILE:2): store \"pebbel:///x\": unknown engine \"pebbel\", this binary has ENGINES\n"},
		"[settee]\nstore = pebble://x/y\nspool_dir = FILE\n": {exitFailed,
			"error: [settee] store (FILE:2): store \"pebble://x/y\": the directory follows three slashes, as in pebble:///var/lib/settee\n" +
				"error: [settee] spool_dir (FILE:3): FILE is not a folder\n"},
		"[ssl]\nenable = true\ncert_file = FILE\n[secrets]\nkey_file = /nowhere/keys\n": {exitFailed,
			"error: [secrets] key_file (FILE:5): reading the key file: open /nowhere/keys: no such file or directory\n" +
				"error: [ssl] cert_file (FILE:3): the node's certificate: FILE: it has no certificate in PEM\n"},
		"[replicator]\nssl_trusted_certificates_file = FILE\ncert_file = /nowhere/cert.pem\nkey_file = FILE\n": {exitFailed,
			"error: [replicator] ssl_trusted_certificates_file (FILE:2): FILE: it has no certificate in PEM\n" +
				"error: [replicator] cert_file (FILE:3): open /nowhere/cert.pem: no such file or directory\n"},
		"[replicator]\nmax_jbos = 5\n": {exitFindings, "warning: [replicator] max_jbos, FILE:2: is not a setting; did you mean [replicator] max_jobs?\n"},
		"[chttpd]\nport = x\nprot = 1\n": {exitFailed, "error: [chttpd] port (FILE:2): \"x\" is refused: it must be a whole number from 0 to 65535\n" +
			"warning: [chttpd] prot, FILE:3: is not used by settee; did you mean [chttpd] port?\n"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "local.ini")
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "FILE", path)), 0o600))
		for _, named := range []string{path, dir} {
			out, errs, status := settee(t, "config", "--check", named)
			assert.Equal(t, want.status, status, errs)
			out = engines.ReplaceAllString(out, "this binary has ENGINES")
			assert.Equal(t, want.out, strings.ReplaceAll(out, path, "FILE"))
			assert.Empty(t, errs)
		}
	}
	for _, args := range [][]string{{"--check"}, {"local.ini"}, {"--defaults", "local.ini"}} {
		_, _, status := settee(t, append([]string{"config"}, args...)...)
		assert.Equal(t, exitUsage, status, args)
	}
}
