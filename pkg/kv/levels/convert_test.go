package levels_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/levels"
)

var errEnd = errors.New("the process ends")

// appendOne returns a conversion to level 2 that appends a byte to each row "r...", one in each transaction, and fails once
// before a row.
func appendOne(failBefore string) levels.Conversion {
	return levels.Conversion{Level: 2, Step: func(tx kv.Transaction, from []byte) ([]byte, error) {
		all := kv.PrefixRange([]byte("r"))
		if from != nil {
			all.Begin = from
		}
		pairs, err := tx.GetRange(all, kv.RangeOptions{Limit: 1}).Slice()
		if err != nil || len(pairs) == 0 {
			return nil, err
		}
		if string(pairs[0].Key) == failBefore {
			failBefore = ""
			return nil, errEnd
		}
		tx.Set(pairs[0].Key, append(pairs[0].Value, '2'))
		return append(pairs[0].Key, 0), nil
	}}
}

// A conversion waits for the raise, goes on after an error where it was, converts each row once whatever happens to its
// commits, and holds up the next raise until it has ended.
func TestConversion(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		db = struct{ kv.Database }{db}
		faulty := faultkv.Wrap(db, faultkv.Options{Seed: 1, Rates: faultkv.Rates{
			faultkv.Conflict: 0.2, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.2,
		}})
		process := func(own int64) *levels.Guard {
			guard, err := levels.Open(t.Context(), faulty, levels.Options{Key: []byte("level"), Own: own, Conversions: []int64{2}})
			require.NoError(t, err)
			return guard
		}
		converted := func(g *levels.Guard) bool {
			done, err := kv.TransactValue(t.Context(), g, func(tx kv.Transaction) (bool, error) { return g.Converted(tx, 2) })
			require.NoError(t, err)
			return done
		}
		const count = 20
		row := func(i int) []byte { return fmt.Appendf(nil, "r%02d", i) }
		require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
			for i := range count {
				tx.Set(row(i), []byte("1"))
			}
			return nil
		}))
		// rewritten returns how many rows were converted.
		rewritten := func() (n int) {
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
				n = 0
				for i := range count {
					value, err := tx.Get(row(i)).Await()
					if err != nil {
						return err
					}
					if string(value) != "1" {
						require.Equal(t, "12", string(value))
						n++
					}
				}
				return nil
			}))
			return n
		}

		g := process(2)
		require.NoError(t, g.Convert(t.Context(), appendOne("")))
		assert.Zero(t, rewritten(), "before the raise")
		assert.False(t, converted(g))
		_, err := g.Raise(t.Context(), anyway)
		require.NoError(t, err)
		require.ErrorIs(t, g.Convert(t.Context(), appendOne(string(row(7)))), errEnd)
		assert.Equal(t, 7, rewritten())
		assert.False(t, converted(g))

		next := process(3)
		var converting *levels.ConvertingError
		_, err = next.Raise(t.Context(), anyway)
		require.ErrorAs(t, err, &converting)
		assert.EqualValues(t, 2, converting.Level)
		level, yet, err := next.Converting(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 2, level)
		assert.True(t, yet)

		ended := make(chan error)
		for _, p := range []*levels.Guard{g, next} {
			go func() { ended <- p.Convert(t.Context(), appendOne("")) }()
		}
		require.NoError(t, errors.Join(<-ended, <-ended))
		assert.Equal(t, count, rewritten())
		assert.True(t, converted(g))
		require.NoError(t, g.Convert(t.Context(), levels.Conversion{Level: 2}), "it has ended")
		raised, err := next.Raise(t.Context(), anyway)
		require.NoError(t, err)
		assert.True(t, raised)
		assert.True(t, converted(next))
	})
}

// A new store has the highest level, and nothing to convert.
func TestNewStore(t *testing.T) {
	t.Parallel()
	db := enginetest.Memory(t)
	opts := levels.Options{Key: []byte("level"), Own: 2, Conversions: []int64{2}}
	require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) error {
		levels.Set(tx, opts)
		return nil
	}))
	g, err := levels.Open(t.Context(), db, opts)
	require.NoError(t, err)
	level, yet, err := g.Converting(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, level)
	assert.False(t, yet)
}
