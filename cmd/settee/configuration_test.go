package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConfigCheck checks files, and leaves it to the exit status whether a node would start with them.
func TestConfigCheck(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		status int
		out    string // FILE stands for the file
	}{
		"[replicator]\nmax_jobs = 5\n": {0, ""},
		"[replicator]\nmax_jbos = 5\n": {exitRefused, "warning: [replicator] max_jbos, FILE:2: is not a setting; did you mean [replicator] max_jobs?\n"},
		"[chttpd]\nport = x\nprot = 1\n": {exitFailed, "error: [chttpd] port (FILE:2): \"x\" is refused: it must be a whole number from 0 to 65535\n" +
			"warning: [chttpd] prot, FILE:3: is not used by settee; did you mean [chttpd] port?\n"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "local.ini")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		for _, named := range []string{path, dir} {
			out, errs, status := settee(t, "config", "--check", named)
			assert.Equal(t, want.status, status, errs)
			assert.Equal(t, want.out, strings.ReplaceAll(out, path, "FILE"))
			assert.Empty(t, errs)
		}
	}
	for _, args := range [][]string{{"--check"}, {"local.ini"}, {"--defaults", "local.ini"}} {
		_, _, status := settee(t, append([]string{"config"}, args...)...)
		assert.Equal(t, exitUsage, status, args)
	}
}
