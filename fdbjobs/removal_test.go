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

// TestRemoveListed: the jobs of a list are removed in pages, and only these.
func TestRemoveListed(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db))
		for i := range 10 {
			id := fmt.Sprintf("%02d", i)
			b.add(t, fdbjobs.Spec{ID: id, Owner: "a", Token: id, State: fmt.Appendf(nil, `{"s":%d}`, i), Args: text(`{"a":1}`)})
		}
		b.add(t, fdbjobs.Spec{ID: "later", Owner: "a", Scheduled: time.Now().Add(time.Hour), Token: "l"})
		held := b.take(t, 3)
		require.Len(t, held, 3)
		held[0].Expires = time.Now().Add(time.Hour)
		require.NoError(t, held[0].Finish(t.Context(), nil, nil))
		b.add(t, fdbjobs.Spec{ID: "05x", Owner: "b", Token: "x"})

		remove := func(after string, limit int, statuses ...fdbjobs.Status) map[string]fdbjobs.Status {
			t.Helper()
			removed := map[string]fdbjobs.Status{}
			b.transact(t, func(tx kv.Transaction) error {
				owned := fdbjobs.Selection{Owner: new("a"), Parts: fdbjobs.Parts(statuses...)}
				listed, err := b.jobs.List(tx.Snapshot(), owned, fdbjobs.Position{ID: after}, limit)
				if err != nil {
					return err
				}
				ids := []string{"none"} // which does not exist
				for _, job := range listed {
					ids = append(ids, job.ID)
				}
				jobs, err := b.jobs.Remove(tx, append(ids, ids...)...)
				require.Len(t, jobs, len(listed))
				for i, job := range jobs {
					assert.Equal(t, listed[i], job)
					assert.Nil(t, job.Args)
					assert.Equal(t, "a", job.Owner)
					assert.NotEmpty(t, job.State)
					removed[job.ID] = job.Status
				}
				return err
			})
			b.check(t)
			return removed
		}
		running := remove("", 100, fdbjobs.Running)
		assert.Equal(t, map[string]fdbjobs.Status{held[1].Job().ID: fdbjobs.Running, held[2].Job().ID: fdbjobs.Running}, running)
		require.ErrorIs(t, held[1].Update(t.Context(), nil, nil), fdbjobs.ErrHalt)
		assert.Empty(t, remove("later", 100, fdbjobs.Pending, fdbjobs.Finished), "none lies after the last")
		assert.Empty(t, remove("", 0, fdbjobs.Pending, fdbjobs.Finished))

		all := []fdbjobs.Status{fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished}
		pages := 0
		for len(remove("", 2, all...)) > 0 {
			pages++
		}
		assert.LessOrEqual(t, pages, 3, "nine jobs, two in each run of a transaction, and each runs at least twice")
		assert.EqualValues(t, 1, b.count(t, all...))
		assert.Equal(t, "b", b.get(t, "05x").Owner)
		assert.NotContains(t, b.owners(t), "a")
		assert.Contains(t, b.owners(t), "b")
	})
}
