package pebblekv_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/pebblekv"
)

// contents returns all pairs of a store in dir, or the error of opening or reading it.
func contents(t *testing.T, dir string) (pairs []kv.KeyValue, err error) {
	t.Helper()
	db, err := pebblekv.Open(dir, pebblekv.WithMemTables(pebblekv.Options{Options: kv.Options{Existing: true}}, smallMemTable))
	if err != nil {
		return nil, err
	}
	defer func() { require.NoError(t, db.Close()) }()
	return kv.TransactValue(t.Context(), db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		return tx.GetRange(kv.KeyRange{Begin: []byte{}, End: []byte{0xff}}, kv.RangeOptions{}).Slice()
	})
}

// TestFlippedBits flips one bit of one file of a store, and opens and reads it: the error names the file, or everything
// that was acknowledged is there as it was.
func TestFlippedBits(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	t.Parallel()
	const flips = 30
	original := t.TempDir()
	db := open(t, original, pebblekv.WithMemTables(pebblekv.Options{}, smallMemTable))
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 120 {
		value := make([]byte, 3000)
		for j := range value {
			value[j] = byte(random.Uint32())
		}
		require.NoError(t, set(t.Context(), db, fmt.Sprint("k", i), string(value)))
	}
	// As a kill leaves it: with commits that are only in the log.
	copied := t.TempDir()
	require.NoError(t, os.CopyFS(copied, os.DirFS(original)))
	require.NoError(t, db.Close())
	probe := t.TempDir()
	require.NoError(t, os.CopyFS(probe, os.DirFS(copied)))
	want, err := contents(t, probe)
	require.NoError(t, err)
	require.Len(t, want, 120)
	entries, err := os.ReadDir(copied)
	require.NoError(t, err)
	refused := map[string]int{} // by the extension
	for _, entry := range entries {
		whole, err := os.ReadFile(filepath.Join(copied, entry.Name()))
		require.NoError(t, err)
		for n := range min(flips, len(whole)) {
			at := random.IntN(len(whole))
			if n < 2 {
				at = n * (len(whole) - 1)
			}
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(copied)))
			flipped := bytes.Clone(whole)
			flipped[at] ^= 1 << random.IntN(8)
			require.NoError(t, os.WriteFile(filepath.Join(dir, entry.Name()), flipped, 0o600))
			got, err := contents(t, dir)
			if err != nil {
				// Pebble names a table by its number.
				number, _, _ := strings.Cut(entry.Name(), ".sst")
				require.ErrorContains(t, err, number, "a bit at %d of %s", at, entry.Name())
				refused[filepath.Ext(entry.Name())]++
				continue
			}
			require.Equal(t, want, got, "a bit at %d of %s", at, entry.Name())
		}
	}
	for _, ext := range []string{".log", ".sst", ""} { // a manifest has none
		require.NotZero(t, refused[ext], ext)
	}
}

// TestMarkOfALog: Pebble refuses a store with an older log that does not end with the mark of its end. A wrong bit in the mark is
// put right, because it has nothing of the store. Any other error names the log.
func TestMarkOfALog(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	g := gate{ext: ".sst"}
	files := g.fs()
	db := open(t, "/store", pebblekv.WithMemTables(pebblekv.Options{FS: files}, smallMemTable))
	release := g.hold() // no log becomes superfluous
	for i := range 60 {
		require.NoError(t, set(t.Context(), db, fmt.Sprint("k", i), strings.Repeat("x", 3000)))
	}
	original := filepath.Join(t.TempDir(), "store")
	_, err := vfs.Clone(files, vfs.Default, "/store", original)
	require.NoError(t, err)
	release(nil)
	require.NoError(t, db.Close())
	logs, err := filepath.Glob(filepath.Join(original, "*.log"))
	require.NoError(t, err)
	require.Greater(t, len(logs), 2)
	older := filepath.Base(logs[1])
	whole, err := os.ReadFile(logs[1])
	require.NoError(t, err)
	const mark = 11
	for _, at := range []int{0, 3, 4, 6, 7, 10} {
		for bit := range 8 {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(original)))
			flipped := bytes.Clone(whole)
			flipped[len(whole)-mark+at] ^= 1 << bit
			require.NoError(t, os.WriteFile(filepath.Join(dir, older), flipped, 0o600))
			got, err := contents(t, dir)
			require.NoError(t, err, "bit %d of byte %d", bit, at)
			require.Len(t, got, 60)
		}
	}
	require.NoError(t, os.WriteFile(logs[1], whole[:len(whole)-mark/2], 0o600))
	_, err = contents(t, original)
	require.ErrorContains(t, err, older)
}
