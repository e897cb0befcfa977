package revtree_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/pkg/docstore/internal/revtree"
)

type (
	leaf = revtree.Leaf[string]
	tree = revtree.Tree[string]
)

// edit parses a path such as "4-d c b", with ! at the end for a deleted revision. The value of
// the leaf is the text.
func edit(t testing.TB, s string) leaf {
	text, deleted := strings.CutSuffix(s, "!")
	pos, ids, ok := strings.Cut(text, "-")
	require.True(t, ok, s)
	n, err := strconv.ParseInt(pos, 10, 64)
	require.NoError(t, err)
	return leaf{Pos: n, IDs: strings.Fields(ids), Deleted: deleted, Value: s}
}

// show formats a tree for edit, the winner last.
func show(tr tree) []string {
	shown := []string{}
	for _, l := range tr {
		s := fmt.Sprintf("%d-%s", l.Pos, strings.Join(l.IDs, " "))
		if l.Deleted {
			s += "!"
		}
		shown = append(shown, s)
	}
	return shown
}

func TestMerge(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit int
		edits []string
		added string // y or n for each edit
		want  []string
	}{
		{"first", 9, []string{"1-a"}, "y", []string{"1-a"}},
		{"first revision with a history", 9, []string{"3-c b a"}, "y", []string{"3-c b a"}},
		{"again", 9, []string{"1-a", "1-a"}, "yn", []string{"1-a"}},
		{"extends", 9, []string{"1-a", "2-b a"}, "yy", []string{"2-b a"}},
		{"extends by several revisions", 9, []string{"1-a", "4-d c b a"}, "yy", []string{"4-d c b a"}},
		{"extends with a shorter path", 9, []string{"2-b a", "3-c b"}, "yy", []string{"3-c b a"}},
		{"extends with a longer path", 9, []string{"2-b", "3-c b a"}, "yy", []string{"3-c b a"}},
		{"older", 9, []string{"3-c b a", "2-b a"}, "yn", []string{"3-c b a"}},
		{"branches off", 9, []string{"3-c b a", "3-d b a"}, "yy", []string{"3-c b a", "3-d b a"}},
		{"branches off far back", 9, []string{"3-c b a", "2-x a"}, "yy", []string{"2-x a", "3-c b a"}},
		{"another root", 9, []string{"1-a", "1-b"}, "yy", []string{"1-a", "1-b"}},
		{"disconnected", 9, []string{"2-b a", "9-z y"}, "yy", []string{"2-b a", "9-z y"}},
		{"the missing piece, as a leaf", 9, []string{"4-d c", "2-b a", "3-c b"}, "yyn", []string{"4-d c b a"}},
		{"the missing piece, as a history", 9, []string{"1-a", "3-c", "4-d c b a"}, "yyy", []string{"4-d c b a"}},
		{"known, with more history", 9, []string{"3-c", "3-c b a"}, "yn", []string{"3-c b a"}},
		{"history for two branches", 9, []string{"3-c b", "3-d b", "2-b a"}, "yyn", []string{"3-c b a", "3-d b a"}},
		{"deleted loses", 9, []string{"1-a", "1-b", "2-x b!"}, "yyy", []string{"2-x b!", "1-a"}},
		{"all deleted", 9, []string{"1-a!", "2-b!"}, "yy", []string{"1-a!", "2-b!"}},
		{"deleted and created again", 9, []string{"1-a", "2-b a!", "3-c b a"}, "yyy", []string{"3-c b a"}},
		{"a longer branch wins", 9, []string{"1-z", "2-b a"}, "yy", []string{"1-z", "2-b a"}},
		{"stemmed", 2, []string{"1-a", "2-b a", "3-c b a"}, "yyy", []string{"3-c b"}},
		{"a stemmed revision becomes a leaf", 2, []string{"3-c b a", "1-a"}, "yy", []string{"1-a", "3-c b"}},
		{"stemmed to one", 1, []string{"2-b a", "3-c b", "3-d b"}, "yyy", []string{"3-c", "3-d"}},
		{"limit 0", 0, []string{"2-b a"}, "y", []string{"2-b"}},
		{"stems the others too", 2, []string{"2-c", "3-b c a", "1-z"}, "yyy", []string{"1-z", "3-b c"}},
		{"contradicts", 9, []string{"3-c b a", "4-d c x"}, "yy", []string{"4-d c b a"}},
		{"a contradicting path does not change others", 9, []string{"3-c b a", "2-x", "4-d c x"}, "yyy", []string{"2-x", "4-d c b a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var tr tree
			for i, s := range test.edits {
				before := show(tr)
				merged, added := tr.Merge(edit(t, s), test.limit)
				assert.Equal(t, test.added[i] == 'y', added, s)
				assert.Equal(t, before, show(tr), "a merge changes nothing that it was given")
				tr = merged
			}
			assert.Equal(t, test.want, show(tr))
		})
	}
}

func TestWinner(t *testing.T) {
	a, f := strings.Repeat("a0", 16), strings.Repeat("f0", 16)
	for _, test := range []struct{ loser, winner string }{
		{"1-a", "1-b"},
		{"1-b", "2-a"},
		{"9-z!", "1-a"},
		{"9-z!", "10-a!"},
		{"1-" + a, "1-" + f},
		{"1-aa", "1-" + a},                       // as bytes: 0xa0 sorts after 'a'
		{"1-" + strings.Repeat("31", 16), "1-2"}, // '1' sixteen times, and '2'
		{"1-1111111111111111", "1-" + strings.Repeat("31", 16)}, // for equal bytes, the digits win
	} {
		for _, order := range [][]string{{test.loser, test.winner}, {test.winner, test.loser}} {
			var tr tree
			for _, s := range order {
				tr, _ = tr.Merge(edit(t, s), 9)
			}
			assert.Equal(t, test.winner, tr.Winner().Value)
		}
	}
	assert.Nil(t, tree(nil).Winner())
}

func TestRaw(t *testing.T) {
	for _, id := range []string{"", "a", "1234567890abcdef", strings.Repeat("0a", 16), strings.Repeat("0A", 16), strings.Repeat("zz", 16)} {
		raw, isHex := revtree.Raw(id)
		assert.Equal(t, id == strings.Repeat("0a", 16), isHex)
		assert.Equal(t, id, revtree.FromRaw(raw, isHex))
	}
}

// honest draws a history in which each revision has one parent, and edits with parts of their
// paths.
func honest(draw func(n int) int) (edits []leaf) {
	type node struct{ ids []string }
	nodes := []node{}
	for i := range 1 + draw(12) {
		id := fmt.Sprintf("%02d", i)
		var ids []string
		if len(nodes) > 0 && draw(5) > 0 {
			ids = nodes[draw(len(nodes))].ids
		}
		nodes = append(nodes, node{append([]string{id}, ids...)})
	}
	deleted := make([]bool, len(nodes))
	for i := range deleted {
		deleted[i] = draw(3) == 0
	}
	for range 1 + draw(12) {
		i := draw(len(nodes))
		n := nodes[i]
		edits = append(edits, leaf{
			Pos: int64(len(n.ids)), IDs: slices.Clone(n.ids[:1+draw(len(n.ids))]), Deleted: deleted[i], Value: n.ids[0],
		})
	}
	return edits
}

// model returns the expected tree of a set of edits.
func model(edits []leaf) (want []string) {
	parents, inner, tips := map[revtree.Rev]revtree.Rev{}, map[revtree.Rev]bool{}, map[revtree.Rev]leaf{}
	for _, e := range edits {
		tips[e.Rev()] = e
		for i := range len(e.IDs) - 1 {
			child := revtree.Rev{Pos: e.Pos - int64(i), ID: e.IDs[i]}
			parent := revtree.Rev{Pos: child.Pos - 1, ID: e.IDs[i+1]}
			parents[child], inner[parent] = parent, true
		}
	}
	var tr tree
	for rev, e := range tips {
		if inner[rev] {
			continue
		}
		e.IDs = []string{rev.ID}
		for p, ok := parents[rev]; ok; p, ok = parents[p] {
			e.IDs = append(e.IDs, p.ID)
		}
		tr = append(tr, e)
	}
	slices.SortFunc(tr, leaf.Compare)
	return show(tr)
}

// checkOrders merges edits in several orders.
func checkOrders(t *testing.T, edits []leaf, draw func(n int) int) {
	t.Helper()
	want := model(edits)
	for range 6 {
		var tr tree
		for _, e := range edits {
			before := tr
			knew := before.Knows(e.Rev())
			merged, added := tr.Merge(e, 1000)
			require.Equal(t, !knew, added)
			tr = merged
		}
		require.Equal(t, want, show(tr), "%v", show(edits))
		for _, e := range edits { // merging them again changes nothing
			again, added := tr.Merge(e, 1000)
			require.False(t, added)
			require.Equal(t, want, show(again))
		}
		for i := len(edits) - 1; i > 0; i-- {
			j := draw(i + 1)
			edits[i], edits[j] = edits[j], edits[i]
		}
	}
}

func TestAnyOrder(t *testing.T) {
	for seed := range uint64(400) {
		draw := rand.New(rand.NewPCG(seed, 1)).IntN
		checkOrders(t, honest(draw), draw)
	}
}

// valid checks the invariants of a tree.
func valid(t *testing.T, tr tree, limit int) {
	t.Helper()
	require.True(t, slices.IsSortedFunc(tr, leaf.Compare))
	for i, l := range tr {
		require.NotEmpty(t, l.IDs)
		require.LessOrEqual(t, len(l.IDs), limit)
		for j, m := range tr {
			require.False(t, i != j && m.Contains(l.Rev()), "%v", show(tr))
		}
	}
}

// FuzzMerge reads bytes as a history and edits of it, which must make the same tree in any order,
// and as contradicting and stemmed paths, which must make a valid tree.
func FuzzMerge(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{7, 1, 0, 2, 1, 3, 0, 1, 9, 4, 4, 2, 8, 1, 5, 3, 3, 1, 0, 2, 6, 5, 1, 4})
	f.Add([]byte("\x03\x02\x01\x00\x05\x04\x03\x02\x01\x01\x01\x02\x03\x05\x08\x0d"))
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0
		draw := func(n int) int {
			if at == len(data) {
				return 0
			}
			at++
			return int(data[at-1]) % n
		}
		checkOrders(t, honest(draw), draw)
		at = 0
		limit := 1 + draw(5)
		var tr tree
		for at < len(data) {
			e := leaf{Deleted: draw(2) == 0}
			for range 1 + draw(4) {
				e.IDs = append(e.IDs, string(rune('a'+draw(3))))
			}
			e.Pos = int64(len(e.IDs) + draw(3))
			merged, added := tr.Merge(e, limit)
			valid(t, merged, limit)
			if added {
				require.NotNil(t, merged.Leaf(e.Rev()))
			}
			require.GreaterOrEqual(t, len(merged), min(1, len(tr)))
			tr = merged
		}
	})
}
