package kv_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
)

// TestSlow: a transaction is reported when it runs again after 30 seconds, and then with growing distance.
func TestSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reports []kv.Slow
		db, err := memkv.Open(memkv.Options{Options: kv.Options{Slow: func(s kv.Slow) { reports = append(reports, s) }}})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()

		work := func(done func() bool) (string, error) {
			return kv.TransactValue(t.Context(), db, func(kv.Transaction) (string, error) {
				time.Sleep(5 * time.Second)
				if !done() {
					return "", errors.Join(errors.New("the fifth element"), kv.ErrTransactionTooOld)
				}
				return "done", nil
			})
		}
		began := time.Now()
		result, err := work(func() bool { return time.Since(began) >= 20*time.Second })
		require.NoError(t, err)
		assert.Equal(t, "done", result)
		assert.Empty(t, reports)

		_, err = work(func() bool { return len(reports) == 4 })
		require.NoError(t, err)
		previous := kv.Slow{Took: kv.DefaultSlowAfter / 2}
		for i, r := range reports {
			assert.GreaterOrEqual(t, r.Took, 2*previous.Took)
			assert.Greater(t, r.Runs, previous.Runs)
			assert.Equal(t, i > 0, r.Again)
			require.ErrorIs(t, r.Err, kv.ErrTransactionTooOld)
			assert.True(t, strings.HasPrefix(r.Name, "kv_test.TestSlow.func1."), r.Name)
			previous = r
		}
	})
}
