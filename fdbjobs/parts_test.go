package fdbjobs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// TestParts: labels and tags select jobs in lists and counts, and follow the jobs.
func TestParts(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db))
		ids := func(parts ...fdbjobs.Part) string {
			var found []string
			b.transact(t, func(tx kv.Transaction) error {
				jobs, err := b.jobs.List(tx, fdbjobs.Selection{Parts: parts}, fdbjobs.Position{}, 100)
				if err != nil {
					return err
				}
				found = found[:0]
				for _, job := range jobs {
					found = append(found, job.ID)
					assert.Contains(t, parts, fdbjobs.Part{Status: job.Status, Label: job.Label, Tag: job.Tag})
					assert.Nil(t, job.Args)
				}
				n, err := b.jobs.Count(tx, fdbjobs.Selection{Parts: parts})
				assert.EqualValues(t, len(found), n)
				owned, err2 := b.jobs.List(tx, fdbjobs.Selection{Owner: new("o"), Parts: parts}, fdbjobs.Position{}, 100)
				require.NoError(t, err2)
				assert.Len(t, owned, len(found))
				last, err2 := b.jobs.Skip(tx, fdbjobs.Selection{Owner: new("o"), Parts: parts}, fdbjobs.Position{}, 100)
				require.NoError(t, err2)
				if len(found) > 0 {
					assert.Equal(t, found[len(found)-1], last.ID)
				}
				return err
			})
			b.check(t)
			return strings.Join(found, " ")
		}
		b.add(t,
			fdbjobs.Spec{ID: "a", Owner: "o", Label: "red", Args: text(`{"n":1}`), Listed: text(`{"n":"a"}`)},
			fdbjobs.Spec{ID: "b", Owner: "o", Label: "blue"}, fdbjobs.Spec{ID: "c", Owner: "o"},
		)
		assert.Equal(t, "a", ids(fdbjobs.Part{Status: fdbjobs.Pending, Label: "red"}))
		assert.Equal(t, "b c", ids(fdbjobs.Part{Status: fdbjobs.Pending, Label: "blue"}, fdbjobs.Part{Status: fdbjobs.Pending}))

		held := map[string]*fdbjobs.Held{}
		for _, h := range b.take(t, 3) {
			held[h.Job().ID] = h
		}
		assert.Equal(t, "red", held["a"].Job().Label)
		assert.JSONEq(t, `{"n":1}`, string(held["a"].Job().Args))
		assert.Equal(t, "a", ids(fdbjobs.Part{Status: fdbjobs.Running, Label: "red"}))
		held["a"].Tag = "late"
		require.NoError(t, held["a"].Resubmit(t.Context(), time.Now(), nil, nil))
		assert.Equal(t, "a", ids(fdbjobs.Part{Status: fdbjobs.Pending, Label: "red", Tag: "late"}))
		assert.Empty(t, ids(fdbjobs.Part{Status: fdbjobs.Pending, Label: "red"}))
		held["b"].Tag = "well"
		require.NoError(t, held["b"].Finish(t.Context(), nil, nil))
		assert.Equal(t, "b", ids(fdbjobs.Part{Status: fdbjobs.Finished, Label: "blue", Tag: "well"}))

		// A tag lasts until the job's next change, a label until it is added again.
		a := b.accept(t)
		assert.Equal(t, "a", ids(fdbjobs.Part{Status: fdbjobs.Running, Label: "red"}))
		require.NoError(t, a.Resubmit(t.Context(), time.Now(), nil, nil))
		assert.Equal(t, "a", ids(fdbjobs.Part{Status: fdbjobs.Pending, Label: "red"}))
		b.add(t, fdbjobs.Spec{ID: "b", Owner: "o", Label: "green"})
		assert.Equal(t, "b", ids(fdbjobs.Part{Status: fdbjobs.Pending, Label: "green"}))

		listed := func() (text string) {
			b.transact(t, func(tx kv.Transaction) error {
				jobs, err := b.jobs.List(tx, fdbjobs.Selection{Parts: []fdbjobs.Part{{Status: fdbjobs.Pending, Label: "red"}}}, fdbjobs.Position{}, 1)
				if err == nil && len(jobs) == 1 {
					text = string(jobs[0].Listed)
				}
				return err
			})
			return text
		}
		assert.JSONEq(t, `{"n":"a"}`, listed())
		b.add(t, fdbjobs.Spec{ID: "a", Owner: "o", Label: "red"})
		assert.Empty(t, listed())

		c := held["c"]
		c.Tag = strings.Repeat("x", 101)
		require.ErrorIs(t, c.Finish(context.Background(), nil, nil), fdbjobs.ErrTooLarge)
		for _, spec := range []fdbjobs.Spec{
			{ID: "d", Label: strings.Repeat("x", 101)},
			{ID: "d", Listed: text(`{"x":"` + strings.Repeat("x", fdbjobs.MaxListedSize) + `"}`)},
		} {
			err := b.db.Transact(t.Context(), func(tx kv.Transaction) error { return b.jobs.Add(tx, spec) })
			require.ErrorIs(t, err, fdbjobs.ErrTooLarge)
		}
	})
}
