package fdbjobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// oldestDue returns what OldestDue returns, in seconds since the epoch, or 0 if no job is due.
func (b *bundle) oldestDue(t *testing.T) int64 {
	t.Helper()
	at, err := kv.TransactValue(t.Context(), b.db, func(tx kv.Transaction) (time.Time, error) { return b.jobs.OldestDue(tx) })
	require.NoError(t, err)
	if at.IsZero() {
		return 0
	}
	return at.Unix()
}

// The job that waits longest may be one that has become ready, of any owner, or one that no process has moved yet.
func TestOldestDue(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		now := time.Now().Truncate(time.Second)
		assert.Zero(t, b.oldestDue(t), "no jobs")
		b.add(t, fdbjobs.Spec{ID: "later", Owner: "a", Scheduled: now.Add(time.Hour)})
		assert.Zero(t, b.oldestDue(t), "none is due")
		for i := range 5 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint(i % 3), Scheduled: now.Add(-time.Duration(10*i) * time.Minute)})
		}
		assert.Equal(t, now.Add(-20*time.Minute).Unix(), b.oldestDue(t), "the first of the owner 2; those after the first ones do not count")
		b.delay(t, "3", now.Add(-2*time.Hour))
		assert.Equal(t, now.Add(-2*time.Hour).Unix(), b.oldestDue(t), "it is due, and no process has moved it")
		b.weigh(t, "2", 0)
		require.True(t, b.remove(t, "3"))
		assert.Equal(t, now.Add(-10*time.Minute).Unix(), b.oldestDue(t), "the owner 2 is paused")
		assert.Len(t, b.take(t, 10), 3)
		assert.Zero(t, b.oldestDue(t), "all run")
	})
}
