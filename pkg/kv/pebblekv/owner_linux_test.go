package pebblekv

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Root does not write into the store of a service, which could not read what root has written.
func TestRootLeavesStoresOfOthers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("it is about what root does")
	}
	dir := filepath.Join(t.TempDir(), "store")
	db, err := Open(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	before, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.NoError(t, os.Chown(dir, 54321, 54321))
	const says = "belongs to the user #54321"
	_, err = Open(dir, Options{})
	require.ErrorContains(t, err, says)
	_, err = RepairLog("pebble:" + dir)
	require.ErrorContains(t, err, says)
	require.ErrorContains(t, Restore(new(bytes.Buffer), dir), says)
	after, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, after, len(before))
	require.NoError(t, os.Chown(dir, 0, 0))
	db, err = Open(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
