package fdbjobs_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/tuple"
)

// TestListOwners compares lists, counts and skips over all owners with a sorted slice, for random jobs and positions.
func TestListOwners(t *testing.T) {
	testkit.SkipRace(t)
	testkit.SkipShort(t)
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		random := rand.New(rand.NewPCG(1, 1))
		labels, tags := []string{"", "red"}, []string{"", "late"}
		var all []fdbjobs.Spec
		for i := range 600 {
			spec := fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint(random.IntN(200)), Label: labels[random.IntN(2)], Token: fmt.Sprint(i)}
			if i%10 == 0 {
				spec.Owner += "\x00" // comes after the owner without it
			}
			switch {
			case i < 100:
				spec.Owner = "100" // has many
			case random.IntN(2) == 0:
				spec.Scheduled = time.Now().Add(time.Hour)
			}
			if random.IntN(3) == 0 {
				spec.Ended, spec.Tag = true, tags[random.IntN(2)]
			}
			all = append(all, spec)
		}
		for some := range slices.Chunk(all, 100) {
			b.add(t, some...)
		}
		slices.SortFunc(all, func(x, y fdbjobs.Spec) int { return cmp.Or(cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.ID, y.ID)) })
		parts := []fdbjobs.Part{}
		for _, label := range labels {
			parts = append(parts, fdbjobs.Part{Status: fdbjobs.Pending, Label: label}, fdbjobs.Part{Status: fdbjobs.Finished, Label: label}, fdbjobs.Part{Status: fdbjobs.Finished, Label: label, Tag: "late"})
		}
		for range 150 {
			var in []fdbjobs.Part
			for _, part := range parts {
				if random.IntN(3) > 0 {
					in = append(in, part)
				}
			}
			at, limit := all[random.IntN(len(all))], []int{0, 1, 7, 130, 1_000}[random.IntN(5)]
			after := fdbjobs.Position{Owner: at.Owner, ID: at.ID}
			switch random.IntN(4) {
			case 0:
				after = fdbjobs.Position{}
			case 1:
				after = fdbjobs.Position{Owner: at.Owner + "\x00"}
			}
			instead := map[string][]fdbjobs.Part{}
			for _, owner := range []string{all[random.IntN(len(all))].Owner, "100"}[:random.IntN(3)] {
				instead[owner] = parts[:random.IntN(len(parts))]
			}
			selected := fdbjobs.Selection{Parts: in, Instead: instead}

			var want []fdbjobs.Position
			var end fdbjobs.Position
			total := int64(0)
			for _, spec := range all {
				part := fdbjobs.Part{Status: fdbjobs.Pending, Label: spec.Label}
				if spec.Ended {
					part = fdbjobs.Part{Status: fdbjobs.Finished, Label: spec.Label, Tag: spec.Tag}
				}
				wanted, has := instead[spec.Owner]
				if !has {
					wanted = in
				}
				if !slices.Contains(wanted, part) {
					continue
				}
				total++
				if place := (fdbjobs.Position{Owner: spec.Owner, ID: spec.ID}); comparePositions(place, after) > 0 {
					want = append(want, place)
				}
			}
			if len(want) > 0 {
				end = want[min(max(limit, 1), len(want))-1]
			}
			b.transact(t, func(tx kv.Transaction) error {
				n, err := b.jobs.Count(tx, selected)
				if err != nil {
					return err
				}
				assert.Equal(t, total, n)
				jobs, err := b.jobs.List(tx, selected, after, limit)
				if err != nil {
					return err
				}
				got := []fdbjobs.Position{}
				for _, job := range jobs {
					got = append(got, fdbjobs.Position{Owner: job.Owner, ID: job.ID})
				}
				require.Equal(t, append([]fdbjobs.Position{}, want[:min(limit, len(want))]...), got)

				// What follows the position is what follows the job there.
				place, err := b.jobs.Skip(tx, selected, after, limit)
				if err != nil {
					return err
				}
				if limit == 0 || len(want) == 0 {
					assert.Equal(t, after, place)
					return nil
				}
				next, err := b.jobs.List(tx, selected, place, 10)
				if err != nil {
					return err
				}
				following, err := b.jobs.List(tx, selected, end, 10)
				if err != nil {
					return err
				}
				assert.Equal(t, following, next, "%v and %v", place, end)
				return nil
			})
		}
		b.check(t)
	})
}

func comparePositions(x, y fdbjobs.Position) int {
	return cmp.Or(cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.ID, y.ID))
}

// TestListOfRunning: pending and running jobs without a tag have the same entries, and lists tell them apart.
func TestListOfRunning(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db)
		all := map[string]fdbjobs.Part{}
		for i := range 60 {
			spec := fdbjobs.Spec{ID: fmt.Sprintf("%02d", i*37%60), Owner: "o", Label: string("xy"[i%2])}
			part := fdbjobs.Part{Status: fdbjobs.Running, Label: spec.Label}
			if i >= 30 {
				part.Status = fdbjobs.Pending
			}
			if i%10 == 9 {
				spec.Tag, spec.Scheduled, part.Tag, part.Status = "t", time.Now().Add(time.Hour), "t", fdbjobs.Pending
			}
			b.add(t, spec)
			if part.Status == fdbjobs.Running {
				b.accept(t)
			}
			all[spec.ID] = part
		}
		for _, parts := range [][]fdbjobs.Part{
			{{Status: fdbjobs.Pending, Label: "x"}},
			{{Status: fdbjobs.Running, Label: "x"}},
			{{Status: fdbjobs.Running, Label: "y", Tag: "t"}},
			{{Status: fdbjobs.Pending, Label: "y"}, {Status: fdbjobs.Running, Label: "x"}},
			{{Status: fdbjobs.Running, Label: "y"}, {Status: fdbjobs.Pending, Label: "y"}, {Status: fdbjobs.Pending, Label: "y", Tag: "t"}},
		} {
			var want []string
			for _, id := range slices.Sorted(maps.Keys(all)) {
				if slices.Contains(parts, all[id]) {
					want = append(want, id)
				}
			}
			for _, limit := range []int{1, 4, 100} {
				var found []string
				b.transact(t, func(tx kv.Transaction) error {
					found = nil
					for at := (fdbjobs.Position{}); ; {
						page, err := b.jobs.List(tx, fdbjobs.Selection{Owner: new("o"), Parts: parts}, at, limit)
						for _, job := range page {
							at = fdbjobs.Position{Owner: "o", ID: job.ID}
							found = append(found, job.ID)
						}
						if err != nil || len(page) < limit {
							return err
						}
					}
				})
				assert.Equal(t, want, found, "%v, %d at a time", parts, limit)
			}
		}
	})
}

// TestUnlisted: the jobs of a queue without lists run, are counted until they end, and expire, and Check finds and
// repairs a tally that is wrong.
func TestUnlisted(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		unlisted := fdbjobs.Options{Derive: map[string]fdbjobs.Derivation{"work": {Unlisted: true}}}
		b, plain := newBundleWith(t, enginetest.UnknownOnce(db), unlisted), newBundleWith(t, db, unlisted)
		for i := range 6 {
			b.add(t, fdbjobs.Spec{ID: fmt.Sprint(i), Owner: fmt.Sprint("o", i%2), Token: fmt.Sprint(i)})
		}
		b.add(t, fdbjobs.Spec{ID: "ended", Owner: "o0", Token: "ended", Ended: true})
		held := b.take(t, 3)
		require.Len(t, held, 3)
		held[0].Expires = time.Now().Add(-time.Minute)
		require.NoError(t, held[0].Finish(t.Context(), nil, nil))
		require.NoError(t, held[1].Resubmit(t.Context(), time.Now().Add(time.Hour), nil, nil))
		assert.EqualValues(t, 4, b.count(t, fdbjobs.Pending))
		assert.EqualValues(t, 1, b.count(t, fdbjobs.Running))
		assert.Zero(t, b.count(t, fdbjobs.Finished))
		b.check(t)
		selected := fdbjobs.Selection{Parts: fdbjobs.Parts(fdbjobs.Pending)}
		b.transact(t, func(tx kv.Transaction) error {
			_, err := b.jobs.List(tx, selected, fdbjobs.Position{}, 10)
			require.ErrorIs(t, err, fdbjobs.ErrInvalid)
			_, err = b.jobs.Skip(tx, selected, fdbjobs.Position{}, 1)
			require.ErrorIs(t, err, fdbjobs.ErrInvalid)
			return nil
		})
		var expired []*fdbjobs.Job
		b.transact(t, func(tx kv.Transaction) error {
			removed, err := b.jobs.RemoveExpired(tx, 10)
			expired = append(expired, removed...)
			return err
		})
		require.Len(t, expired, 1)
		assert.Equal(t, held[0].Job().ID, expired[0].ID)
		b.remove(t, "ended")
		b.check(t)

		counter := tuple.SubspaceFromBytes(prefix).Pack(15, "work", "_jobs", 4, 0, "o1", "", "", "pending")
		stray := tuple.SubspaceFromBytes(prefix).Pack(15, "work", "_jobs", 2, 0, "o1", "pending")
		for _, key := range [][]byte{counter, stray} {
			plain.transact(t, func(tx kv.Transaction) error { tx.Add(key, 1); return nil })
			said, _ := plain.faults(t, true)
			assert.Len(t, said, 1)
			plain.check(t)
		}
	})
}
