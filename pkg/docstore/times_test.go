package docstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// since returns the ids of the changes since a time.
func (b *bundle) since(t *testing.T, at time.Time) []string {
	t.Helper()
	before, err := b.db.SequenceBefore(t.Context(), at)
	require.NoError(t, err)
	rows, _ := b.changes(t, docstore.ChangesOptions{Since: before})
	return changedIDs(rows)
}

// retime gives the last changes of documents other times, in seconds since the epoch; 0 is none, as in rows that
// were repaired.
func (b *bundle) retime(t *testing.T, times map[string]int64) {
	t.Helper()
	require.NoError(t, b.kv.Transact(t.Context(), func(tx kv.Transaction) error {
		var err error
		for id, to := range times {
			err = errors.Join(err, b.db.Retime(tx, id, to))
		}
		return err
	}))
}

func TestChangesSinceATime(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		began := time.Now()
		assert.Empty(t, b.since(t, began))
		first := b.put(t, "a", "", `{}`)
		after(time.Minute)
		b.merge(t, "b", "2-b a")
		after(time.Minute)
		b.put(t, "a", first, `{"v":1}`)
		after(time.Hour)
		for wait, want := range map[time.Duration][]string{
			-time.Hour:                     {"b", "a"},
			0:                              {"b", "a"},
			time.Minute:                    {"b", "a"},
			time.Minute + 10*time.Second:   {"b", "a"}, // as clocks differ
			time.Minute + 11*time.Second:   {"a"},
			2 * time.Minute:                {"a"},
			2*time.Minute + 11*time.Second: {},
			time.Hour:                      {},
			365 * 24 * time.Hour:           {},
			-60 * 365 * 24 * time.Hour:     {"b", "a"},
			200 * 365 * 24 * time.Hour:     {},
		} {
			assert.Equal(t, want, b.since(t, began.Add(wait)), wait)
		}
		before, err := b.db.SequenceBefore(t.Context(), time.Now().Add(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, b.info(t).UpdateSeq, before)
		require.NoError(t, b.db.Delete(t.Context()))
		_, err = b.db.SequenceBefore(t.Context(), began)
		require.ErrorIs(t, err, docstore.ErrDatabaseNotFound)
	})
}

// A client that has the time of a clock that was ahead misses nothing after the clock was set right: the changes that
// follow have the time of the last one, whatever process writes them.
func TestTimesAfterAClockWasSetBack(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		b.put(t, "a", "", `{}`)
		ahead := time.Now().Add(time.Hour)
		b.retime(t, map[string]int64{"a": ahead.Unix()})
		b.store.Close()
		b.store = docstore.Open(db, prefix, docstore.Options{})
		var err error
		b.db, err = b.store.Database(t.Context(), "db")
		require.NoError(t, err)
		for _, id := range []string{"b", "c", "d"} { // c and d do not read the last change
			b.put(t, id, "", `{}`)
			after(5 * time.Second)
		}
		assert.Equal(t, []string{"a", "b", "c", "d"}, b.since(t, ahead))
		assert.Empty(t, b.since(t, ahead.Add(time.Minute)))

		// A clock that was years ahead is not followed.
		b.retime(t, map[string]int64{"d": ahead.AddDate(20, 0, 0).Unix()})
		after(time.Minute)
		for i := range 4 {
			b.put(t, fmt.Sprint("e", i), "", `{}`)
		}
		at, err := kv.TransactValue(t.Context(), db, func(tx kv.Transaction) (int64, error) { return b.db.TimeOf(tx, "e3") })
		require.NoError(t, err)
		assert.Equal(t, time.Now().Unix(), at)
	})
}

// Whatever the rows say, no change that was committed since the time is left out, if the clocks are as good as they have to be,
// and none is given that is more than some seconds older.
func TestChangesSinceATimeRandom(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		const n = 250
		var edits []docstore.Edit
		for i := range n {
			edits = append(edits, docstore.Edit{ID: fmt.Sprint(i)})
		}
		for _, some := range [][]docstore.Edit{edits[:1], edits[1:100], edits[100:101], edits[101:]} {
			b.write(t, some, docstore.WriteOptions{})
		}
		random := rand.New(rand.NewPCG(7, 7))
		for range 6 {
			commits, stored := make([]int64, n), map[string]int64{}
			timed := random.IntN(n) // rows before that have no time
			now := int64(1_700_000_000)
			for i := range n {
				if random.IntN(3) == 0 {
					now += random.Int64N([]int64{2, 20, 20_000}[random.IntN(3)])
				}
				commits[i], stored[fmt.Sprint(i)] = now, 0
				if i >= timed {
					stored[fmt.Sprint(i)] = now - 5 + random.Int64N(6)
				}
			}
			b.retime(t, stored)
			for range 30 {
				at := commits[random.IntN(n)] + random.Int64N(3) - 1
				given := b.since(t, time.Unix(at, 0))
				first := n - len(given)
				for i := range first {
					assert.Less(t, commits[i], at, "a change that is left out")
				}
				if first > timed {
					assert.GreaterOrEqual(t, commits[first], at-20, "the first change that is given")
				}
			}
		}
	})
}

// A search among many changes reads few of them.
func TestChangesSinceATimeCost(t *testing.T) {
	db := enginetest.Memory(t)
	c := enginetest.Control(db)
	b := newBundle(t, c, docstore.Options{})
	times := map[string]int64{}
	for range 20 {
		var edits []docstore.Edit
		for range 500 {
			id := fmt.Sprint(len(times))
			edits = append(edits, docstore.Edit{ID: id})
			times[id] = 1_700_000_000 + 60*int64(len(times))
		}
		b.write(t, edits, docstore.WriteOptions{})
	}
	b.retime(t, times)
	before := c.KeysRead.Load()
	_, err := b.db.SequenceBefore(t.Context(), time.Unix(1_700_000_000+60*3_456, 0))
	require.NoError(t, err)
	assert.LessOrEqual(t, c.KeysRead.Load()-before, int64(2*96+10))
	assert.Len(t, b.since(t, time.Unix(1_700_000_000+60*3_456, 0)), 10_000-3_456)
}

// Rows that were repaired have no times. Then a time that has come may be before any of them.
func TestRowsWithoutTimes(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		began := time.Now()
		b.put(t, "a", "", `{}`)
		b.put(t, "b", "", `{}`)
		b.transact(t, b.db.ForgetTimes)
		after(time.Hour)
		now := time.Now()
		assert.Equal(t, []string{"a", "b"}, b.since(t, now))
		assert.Equal(t, []string{"created", "updated"}, b.updatesAfter(t, now))
		assert.Empty(t, b.since(t, now.Add(time.Minute)))
		assert.Empty(t, b.updatesAfter(t, now.Add(time.Minute)))
		b.put(t, "c", "", `{}`)
		assert.Equal(t, []string{"a", "b", "c"}, b.since(t, now))
		after(time.Hour)
		b.put(t, "d", "", `{}`)
		assert.Equal(t, []string{"d"}, b.since(t, now.Add(time.Hour)), "c was before it, and so were a and b")
		assert.Equal(t, []string{"a", "b", "c", "d"}, b.since(t, began))
		assert.Equal(t, []string{"created", "updated"}, b.updatesAfter(t, now.Add(time.Hour)))
	})
}

// updatesSince returns the types of the updates since a time.
func (b *bundle) updatesAfter(t *testing.T, at time.Time) []string {
	t.Helper()
	before, err := b.store.UpdatesBefore(t.Context(), at)
	require.NoError(t, err)
	kinds := []string{}
	for row, err := range b.store.Updates(docstore.UpdatesOptions{Since: before}).All(t.Context()) {
		require.NoError(t, err)
		kinds = append(kinds, string(row.Type))
	}
	return kinds
}

func TestUpdatesSinceATime(t *testing.T) {
	enginetest.InBubble(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		began := time.Now()
		for i := range 40 { // in all stripes
			after(time.Minute)
			_, err := b.store.Create(t.Context(), fmt.Sprint("other", i))
			require.NoError(t, err)
		}
		after(time.Minute)
		b.put(t, "a", "", `{}`)
		after(time.Minute)
		other, err := b.store.Database(t.Context(), "other3")
		require.NoError(t, err)
		require.NoError(t, other.Delete(t.Context()))
		assert.Len(t, b.updatesAfter(t, began), 42)
		for i := range 40 {
			want := 40 - i + 2
			if i <= 3 {
				want-- // the creation of other3 is gone
			}
			assert.Len(t, b.updatesAfter(t, began.Add(time.Duration(i+1)*time.Minute)), want, i)
		}
		assert.Equal(t, []string{"updated", "deleted"}, b.updatesAfter(t, began.Add(41*time.Minute)))
		assert.Equal(t, []string{"deleted"}, b.updatesAfter(t, began.Add(42*time.Minute)))
		assert.Empty(t, b.updatesAfter(t, began.Add(43*time.Minute)))
	})
}
