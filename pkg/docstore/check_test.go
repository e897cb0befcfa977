package docstore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
)

// seen is what a check got for an edit.
type seen struct {
	ID, Parent, Body string
	Designs          []string
}

// TestCheck has a check that refuses some edits, and commits whose results are unknown.
func TestCheck(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, enginetest.UnknownOnce(db), docstore.Options{})
		a := b.put(t, "a", "", `{}`)
		d := b.put(t, "_design/d", "", `{}`)
		b.remove(t, "_design/gone", b.put(t, "_design/gone", "", `{}`))
		e := b.put(t, "_design/e", "", `{}`)
		b.merge(t, "x", "2-b a", "2-c a")

		got := map[int]seen{}
		check := func(edit int, c *docstore.Change, designs []docstore.Design) error {
			s := seen{ID: c.ID, Body: string(c.Body.Bytes())}
			if c.Parent != (docstore.Rev{}) {
				s.Parent = c.Parent.String()
			}
			for _, design := range designs {
				s.Designs = append(s.Designs, design.ID+" "+design.Rev.String())
			}
			got[edit] = s
			if string(c.Body.Bytes()) == `{"bad":true}` {
				return errRefused
			}
			return nil
		}
		designs := []string{"_design/d " + d, "_design/e " + e}
		results := b.write(t, []docstore.Edit{
			{ID: "a", Rev: parse(t, a), Body: docjson.Must(`{"n":1}`)}, {ID: "a"}, {ID: "b", Body: docjson.Must(`{"bad":true}`)}, {ID: "c"},
		}, docstore.WriteOptions{Check: check})
		require.NoError(t, results[0].Err)
		require.ErrorIs(t, results[1].Err, docstore.ErrConflict)
		require.ErrorIs(t, results[2].Err, errRefused)
		require.NoError(t, results[3].Err)
		assert.Equal(t, map[int]seen{
			0: {"a", a, `{"n":1}`, designs}, 2: {"b", "", `{"bad":true}`, designs}, 3: {"c", "", `{}`, designs},
		}, got, "a conflict is not checked")

		clear(got)
		edits := []docstore.Edit{replicated(t, "x", "3-d b a"), replicated(t, "x", "2-c a"), replicated(t, "x", "2-e a"), replicated(t, "y", "1-a")}
		for _, result := range b.write(t, edits, docstore.WriteOptions{Replicated: true, Check: check}) {
			require.NoError(t, result.Err)
		}
		parents := map[int]string{}
		for edit, s := range got {
			parents[edit] = s.Parent
		}
		assert.Equal(t, map[int]string{0: "2-b", 2: "", 3: ""}, parents, "a revision that is there is not checked")
		b.check(t)
	})
}

// TestCheckConflictsWithDesigns changes a design document between a check and its commit: the check is repeated.
func TestCheckConflictsWithDesigns(t *testing.T) {
	enginetest.Each(t, func(t *testing.T, db kv.Database) {
		b := newBundle(t, db, docstore.Options{})
		rev := b.put(t, "_design/d", "", `{}`)
		var revs []string
		results := b.write(t, []docstore.Edit{{ID: "a"}}, docstore.WriteOptions{
			Check: func(_ int, _ *docstore.Change, designs []docstore.Design) error {
				revs = append(revs, designs[0].Rev.String())
				if len(revs) == 1 {
					rev = b.put(t, "_design/d", rev, `{"n":1}`)
				}
				return nil
			},
		})
		require.NoError(t, results[0].Err)
		require.Len(t, revs, 2)
		assert.NotEqual(t, rev, revs[0])
		assert.Equal(t, rev, revs[1])
	})
}
