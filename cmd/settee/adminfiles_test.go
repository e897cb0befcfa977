package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Plain-text passwords are replaced in writable files, and are valid before and after that.
func TestPasswordsInFilesAreHashed(t *testing.T) {
	t.Parallel()
	dir, store := t.TempDir(), aStore(t)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	serve := func() *process {
		return begin(t, "settee is running", nil, "serve", "--store", store, "--set", "chttpd/port=0", "--set", "chttpd_auth/iterations=10",
			"--config", filepath.Join(dir, "a.ini"), "--config", filepath.Join(dir, "b.ini"))
	}
	logsIn := func(node *process, name, password string) {
		t.Helper()
		url := strings.Replace(withoutAdmin(node.url), "://", "://"+name+":"+password+"@", 1)
		ask(t, http.StatusOK, http.MethodGet, url+"_all_dbs", "")
	}
	const kept = "[admins]\nbob = b0b-same\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.ini"), []byte("; mine\n[admins]\nann = s3same ; hers\n[x]\nann = s3same\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.ini"), []byte(kept), 0o400))

	node := serve()
	node.says("are hashed now", "stay in plain text", "b.ini: the file is not writable")
	hashed := regexp.MustCompile(`^; mine\n\[admins\]\nann = (-pbkdf2:sha256-[0-9a-f]{64},[0-9a-f]{32},10) ; hers\n\[x\]\nann = s3same\n$`)
	first := read("a.ini")
	require.Regexp(t, hashed, first)
	require.Equal(t, kept, read("b.ini"))
	logsIn(node, "ann", "s3same")
	logsIn(node, "bob", "b0b-same")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.ini"), []byte("[admins]\nann = n3w\n"), 0o600))
	require.NoError(t, node.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return !strings.Contains(read("a.ini"), "n3w") }, limit, 5*time.Millisecond)
	logsIn(node, "ann", "n3w")
	require.Zero(t, node.end(syscall.SIGTERM))
	for _, password := range []string{"s3same", "b0b-same", "n3w"} {
		require.NotContains(t, node.logged(), password)
	}

	node = serve()
	logsIn(node, "ann", "n3w")
	require.Zero(t, node.end(syscall.SIGTERM))
}
