package docstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// bins returns the bins of a database, as text.
func (b *bundle) bins(t *testing.T) (shown []string) {
	t.Helper()
	bins, err := b.db.TimeBins(t.Context())
	require.NoError(t, err)
	for _, bin := range bins {
		shown = append(shown, fmt.Sprint(bin.Begin.UTC().Format(time.DateTime), " ", bin.Changes))
	}
	return shown
}

func TestTimeBins(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		assert.Empty(t, b.bins(t))
		times := map[string]int64{}
		for i, at := range []string{
			"2020-02-01T00:00:00Z", "2024-03-01T00:00:00Z", "2026-01-01T10:00:00Z", "2026-01-02T10:00:00Z", "2026-01-02T11:59:59Z",
			"2026-01-03T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-03T02:59:59Z", "2026-01-03T03:00:00Z",
		} {
			id := fmt.Sprint(i)
			b.put(t, id, "", `{}`)
			parsed, err := time.Parse(time.RFC3339, at)
			require.NoError(t, err)
			times[id] = parsed.Unix()
		}
		b.retime(t, times)
		assert.Equal(t, []string{
			"2019-12-20 00:00:00 1", "2023-12-19 00:00:00 1", "2026-01-01 00:00:00 1", "2026-01-02 09:00:00 2",
			"2026-01-03 00:00:00 3", "2026-01-03 03:00:00 1",
		}, b.bins(t))
		// The last bins have changes whose documents have changed again.
		rev := b.put(t, "twice", "", `{}`)
		b.put(t, "twice", rev, `{"v":1}`)
		b.retime(t, map[string]int64{"twice": times["8"]})
		assert.Equal(t, "2026-01-03 03:00:00 3", b.bins(t)[5])

		// Rows that were repaired have no time.
		for i := range 6 {
			b.retime(t, map[string]int64{fmt.Sprint(i): 0})
		}
		assert.Equal(t, []string{"1970-01-01 00:00:00 6", "2026-01-03 00:00:00 2", "2026-01-03 03:00:00 3"}, b.bins(t))
		for i := range 9 {
			b.retime(t, map[string]int64{fmt.Sprint(i): 0})
		}
		b.retime(t, map[string]int64{"twice": 0})
		assert.Equal(t, []string{"1970-01-01 00:00:00 11"}, b.bins(t))

		// A clock that was ahead, and one that was at its beginning.
		b.retime(t, map[string]int64{"0": 5, "8": time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), "twice": times["8"]})
		bins, err := b.db.TimeBins(t.Context())
		require.NoError(t, err)
		assert.LessOrEqual(t, len(bins), 60)
		require.NoError(t, b.db.Delete(t.Context()))
		_, err = b.db.TimeBins(t.Context())
		require.ErrorIs(t, err, docstore.ErrDatabaseNotFound)
	})
}
