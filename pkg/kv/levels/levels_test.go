package levels_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/kvtest"
	"settee/pkg/kv/levels"
)

// otherProcess is called when the program starts. It does not return if the program is to be another process of a test.
var otherProcess = func() {}

func TestMain(m *testing.M) {
	otherProcess()
	goleak.VerifyTestMain(m, kvtest.NetworkThread)
}

func open(t *testing.T, db kv.Database, own int64) (*levels.Guard, error) {
	return levels.Open(t.Context(), db, levels.Options{Key: []byte("level"), Own: own, Release: "test"})
}

func anyway(kv.Transaction) error { return nil }

// A transaction of an older process that runs across the raise is not committed. Later ones do not run.
func TestRaise(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		old, err := open(t, db, 1)
		require.NoError(t, err)
		next, err := open(t, enginetest.UnknownOnce(struct{ kv.Database }{db}), 2)
		require.NoError(t, err)
		runs := 0
		err = old.Transact(t.Context(), func(tx kv.Transaction) error {
			if runs++; runs == 1 {
				_, err := next.Raise(t.Context(), anyway)
				require.NoError(t, err)
			}
			tx.Set([]byte("old"), nil)
			return nil
		})
		var unknown *levels.UnknownLevelError
		require.ErrorAs(t, err, &unknown)
		assert.True(t, unknown.TooOld())
		assert.Equal(t, 1, runs)
		require.ErrorAs(t, old.Transact(t.Context(), func(kv.Transaction) error {
			runs++
			return nil
		}), &unknown)
		assert.Equal(t, 1, runs)
		require.NotErrorIs(t, old.Transact(t.Context(), anyway), kv.ErrCommitUnknown)
		require.NoError(t, next.Transact(t.Context(), func(tx kv.Transaction) error {
			value, err := tx.Get([]byte("old")).Await()
			assert.Nil(t, value)
			return err
		}))
		assert.EqualValues(t, 2, next.Latest())
		_, err = open(t, db, 1)
		require.ErrorContains(t, err, "the store has level 2 (of version test), and this version knows only 1")
		_, err = open(t, db, 4)
		require.ErrorContains(t, err, "this version knows only 3 and 4")
	})
}
