package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hash replaces a password.
const hash = "-pbkdf2:sha256-abcd,ef,10"

var hashed = []Replacement{{"admins", "root", "pass word", hash}, {"admins", "a = b", "x", hash}}

func TestReplaceINI(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"":                           "",
		"[admins]\nroot = pass word": "[admins]\nroot = " + hash,
		"\ufeff; c\r\n [admins] ; c\r\n\troot=pass word \t; root = pass word\r\n\r\n[x]\r\nroot = pass word\r\n": "\ufeff; c\r\n [admins] ; c\r\n\troot=" + hash + " \t; root = pass word\r\n\r\n[x]\r\nroot = pass word\r\n",
		"[admins]\rroot = pass word\x1a\rother = pass word\n\n":                                                  "[admins]\rroot = " + hash + "\x1a\rother = pass word\n\n",
		"[admins]\nroot = old\n;root = pass word\nroot = pass word\n[admins]\nroot=pass word":                    "[admins]\nroot = old\n;root = pass word\nroot = " + hash + "\n[admins]\nroot=" + hash,
		"[admins]\nroot = pass word;\nRoot = pass word\nroot pass word = pass word\nroot = pass word too":        "[admins]\nroot = pass word;\nRoot = pass word\nroot pass word = pass word\nroot = pass word too",
		"root = pass word\n[admins] x\nroot = pass word":                                                         "root = pass word\n[admins] x\nroot = pass word",
	} {
		assert.Equal(t, want, replaceINI(data, hashed), "%q", data)
	}
	const data = "[admins]\nroot = pass word"
	assert.Equal(t, data, replaceINI(data, []Replacement{{"admins", "root", "pass word", "a\nb"}}), "no other line can be made")
}

func TestReplaceInFiles(t *testing.T) {
	t.Parallel()
	const with, without = "[admins]\nroot = pass word\n", "[admins]\nroot = " + hash + "\n"
	dir := t.TempDir()
	local := filepath.Join(dir, "local.d")
	require.NoError(t, os.Mkdir(local, 0o700))
	write := func(mode os.FileMode, names ...string) string {
		path := filepath.Join(append([]string{dir}, names...)...)
		require.NoError(t, os.WriteFile(path, []byte(with), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	has := func(want, path string, mode os.FileMode) {
		t.Helper()
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(text), path)
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm(), path)
	}
	first := write(0o640, "first.ini")
	a, b, other := write(0o600, "local.d", "a.ini"), write(0o604, "local.d", "b.ini"), write(0o600, "local.d", "c.txt")
	target, link := write(0o600, "target"), filepath.Join(dir, "link.ini")
	require.NoError(t, os.Symlink(target, link))
	readOnly := write(0o444, "readonly.ini")
	unrelated := filepath.Join(dir, "unrelated.ini")
	require.NoError(t, os.WriteFile(unrelated, []byte("[x]\nroot = pass word\n"), 0o400))

	changed, err := ReplaceInFiles([]string{first, local, link, readOnly, unrelated, filepath.Join(dir, "none")}, hashed)
	assert.Equal(t, []string{first, a, b, link}, changed)
	require.ErrorIs(t, err, ErrNotWritable)
	require.ErrorContains(t, err, readOnly)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotContains(t, err.Error(), "pass word")
	require.NotContains(t, err.Error(), unrelated)
	has(without, first, 0o640)
	has(without, a, 0o600)
	has(without, b, 0o604)
	has(with, other, 0o600)
	has(without, target, 0o600)
	has(with, readOnly, 0o444)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink, "a link stays one")

	changed, err = ReplaceInFiles([]string{first, local}, hashed)
	require.NoError(t, err)
	assert.Empty(t, changed)
	for path, want := range map[string]int{dir: 6, local: 3} { // no temporary files are left
		entries, err := os.ReadDir(path)
		require.NoError(t, err)
		assert.Len(t, entries, want, path)
	}

	// A file that was changed meanwhile is not replaced.
	require.Error(t, replaceFile(first, []byte(with), []byte("mine")))
	has(without, first, 0o640)
}
