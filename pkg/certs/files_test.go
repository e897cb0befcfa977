package certs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFilesChange(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cert.pem")
	require.NoError(t, os.WriteFile(path, []byte("first"), 0o600))
	files := Watch("", path)
	now := time.Now()
	require.False(t, files.Changed(now))

	require.NoError(t, os.WriteFile(path, []byte("another"), 0o600))
	require.False(t, files.Changed(now.Add(checkInterval-1)), "the files are looked at once a second")
	now = now.Add(checkInterval)
	require.True(t, files.Changed(now))
	require.False(t, files.Changed(now.Add(checkInterval)), "a change is reported once")

	require.NoError(t, os.Remove(path))
	require.True(t, files.Changed(now.Add(2*checkInterval)))
	require.False(t, Watch("").Changed(now))
}

func TestDirectoriesChangeWithTheirFiles(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere.pem")
	files := Watch(dir)
	now := time.Now()
	changes := func(change error) {
		t.Helper()
		require.NoError(t, change)
		now = now.Add(checkInterval)
		require.True(t, files.Changed(now))
		now = now.Add(checkInterval)
		require.False(t, files.Changed(now))
	}
	path, link := filepath.Join(dir, "a.pem"), filepath.Join(dir, "b.pem")
	changes(os.WriteFile(path, []byte("first"), 0o600))
	changes(os.WriteFile(path, []byte("second"), 0o600))
	require.NoError(t, os.WriteFile(elsewhere, []byte("first"), 0o600))
	changes(os.Symlink(elsewhere, link))
	changes(os.WriteFile(elsewhere, []byte("second"), 0o600))
	changes(os.Remove(elsewhere))
	changes(os.Remove(path))
	changes(os.RemoveAll(dir))
}
