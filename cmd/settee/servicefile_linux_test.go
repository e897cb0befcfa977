package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGroupOfAService(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("it is about what root writes")
	}
	const service = 54321
	for _, folder := range []struct {
		user, group int
		mode        fs.FileMode
		gives       bool
	}{
		{0, service, 0o750, true}, {0, service, 0o770, true},
		{0, service, 0o755, false}, {0, service, 0o700, false}, {0, service, 0o740, false}, {0, 0, 0o750, false}, {1, service, 0o750, false},
	} {
		dir := t.TempDir()
		require.NoError(t, os.Chown(dir, folder.user, folder.group))
		require.NoError(t, os.Chmod(dir, folder.mode))
		info, err := os.Stat(dir)
		require.NoError(t, err)
		group, gives := serviceGroup(info)
		assert.Equal(t, folder.gives, gives, "%+v", folder)
		assert.Equal(t, folder.group, group)
	}
}

// In the folder of a service root writes files that the service can read, whatever the umask is. Elsewhere a file is for its
// owner alone, and one that was there keeps its owner.
func TestFilesForTheService(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("it is about what root writes")
	}
	const service = 54321
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(built(t), args...)
		cmd.Stdin = strings.NewReader("relax\n")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	type access struct {
		user, group uint32
		mode        fs.FileMode
	}
	of := func(path string) access {
		t.Helper()
		info, err := os.Stat(path)
		require.NoError(t, err)
		owner, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		return access{owner.Uid, owner.Gid, info.Mode()}
	}
	for _, folder := range []struct {
		group int
		mode  fs.FileMode
		want  access
	}{
		{service, 0o750, access{0, service, 0o640}},
		{service, 0o755, access{0, 0, 0o600}},
		{service, 0o700, access{0, 0, 0o600}},
		{0, 0o750, access{0, 0, 0o600}},
	} {
		dir := t.TempDir()
		require.NoError(t, os.Chown(dir, 0, folder.group))
		require.NoError(t, os.Chmod(dir, folder.mode))
		admin, keys := filepath.Join(dir, "admin.ini"), filepath.Join(dir, "keys")
		run("password", "admin", "--file", admin, "--set", "chttpd_auth/iterations=10")
		run("secrets", "new-key", "a", "--append", keys)
		require.NoError(t, writeForService(filepath.Join(dir, "couchdb.ini"), nil)) // of import-couchdb --ini
		for _, name := range []string{"admin.ini", "keys", "couchdb.ini"} {
			assert.Equal(t, folder.want, of(filepath.Join(dir, name)), "%s in %+v", name, folder)
		}
		if folder.want.group != 0 {
			continue
		}
		require.NoError(t, os.Chown(keys, service, service))
		run("secrets", "new-key", "b", "--append", keys)
		assert.Equal(t, access{service, service, 0o600}, of(keys))
		text, err := os.ReadFile(keys)
		require.NoError(t, err)
		assert.Regexp(t, `^a \S+\nb \S+\n$`, string(text))
	}
	admin := filepath.Join(t.TempDir(), "admin.ini")
	require.NoError(t, os.WriteFile(admin, []byte("mine"), 0o600))
	_, errs, status := settee(t, "password", "admin", "--file", admin)
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, errs, "exists")
}
