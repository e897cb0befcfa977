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

// Due jobs of the same owner are counted, up to a limit, and no others.
func TestDueBefore(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		now := time.Now().Truncate(time.Second)
		for i := range 5 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: "a"})
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint("of b ", i), Owner: "b"})
		}
		b.add(t, fdbjobs.Spec{ID: "later", Owner: "a", Scheduled: now.Add(time.Hour)})
		type count struct {
			n    int
			more bool
		}
		before := func(id string, limit int) count {
			var c count
			require.NoError(t, db.Transact(t.Context(), func(tx kv.Transaction) (err error) {
				c.n, c.more, err = b.jobs.DueBefore(tx.Snapshot(), id, limit)
				return err
			}))
			return c
		}
		assert.Equal(t, count{}, before("0", 10))
		assert.Equal(t, count{3, false}, before("3", 10))
		assert.Equal(t, count{3, false}, before("3", 3))
		assert.Equal(t, count{2, true}, before("3", 2))
		assert.Equal(t, count{}, before("later", 10), "it is not due")
		assert.Equal(t, count{}, before("missing", 10))
		assert.Len(t, b.take(t, 10), 10)
		assert.Equal(t, count{}, before("4", 10), "it runs")
	})
}
