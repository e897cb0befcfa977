package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The file that settee password prints makes an administrator, and does not contain the password.
func TestPassword(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(built(t), "password", "root", "--set", "chttpd_auth/iterations=10")
	cmd.Stdin = strings.NewReader("s3cret = ; word\nmore\n")
	printed, err := cmd.Output()
	require.NoError(t, err)
	assert.Regexp(t, `^\[admins\]\nroot = -pbkdf2\S+\n$`, string(printed))
	assert.NotContains(t, string(printed), "s3cret")
	file := filepath.Join(t.TempDir(), "admin.ini")
	require.NoError(t, os.WriteFile(file, printed, 0o400))
	node := begin(t, "settee is running", []string{"COUCHDB_USER=", "COUCHDB_PASSWORD="},
		"serve", "--config", file, "--store", "mem:", "--set", "chttpd/port=0")
	for password, want := range map[string]int{"s3cret = ; word": http.StatusOK, "s3cret": http.StatusUnauthorized} {
		r, err := http.NewRequest(http.MethodGet, withoutAdmin(node.url)+"_all_dbs", nil)
		require.NoError(t, err)
		r.SetBasicAuth("root", password)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, want, response.StatusCode)
	}
	assert.NotContains(t, node.logged(), "in plain text in the configuration files")
	assert.Zero(t, node.end(syscall.SIGTERM))
}

func TestPasswordIsRefused(t *testing.T) {
	t.Parallel()
	_, errs, status := settee(t, "password", "root") // without input
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, errs, "the password is empty")
	for _, name := range []string{"", "a b", "a:b", "a=b", "[a", ";a"} {
		_, errs, status := settee(t, "password", name)
		assert.Equal(t, exitUsage, status)
		assert.Contains(t, errs, "cannot be the name of an administrator")
	}
}
