package couchtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/couch/couchtest"
)

func TestPopulateWritesWhatItSays(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		t.Parallel()
		p := couchtest.Population{
			Seed: 7, Docs: 60, Conflicted: 10, Deleted: 5, Attachments: [][]int{{0}, {1, 70_000}, {100_000}},
		}
		a, b, other := peer.DB(t, "trees"), peer.DB(t, "trees"), peer.DB(t, "trees")
		couchtest.Populate(t, a, p)
		couchtest.Populate(t, b, p)
		couchtest.SameTrees(t, a, b)

		trees := couchtest.Trees(t, a)
		require.Len(t, trees, 60)
		conflicted, deleted, attached := 0, 0, 0
		for _, tree := range trees {
			if len(tree.Leaves) > 1 {
				conflicted++
			}
			if tree.Deleted {
				deleted++
				require.Empty(t, tree.Winner)
			}
			for _, leaf := range tree.Leaves {
				require.Contains(t, leaf, `"_revisions"`)
				if strings.Contains(leaf, `"_attachments"`) {
					require.Contains(t, leaf, `"md5-`)
					attached++
				}
			}
		}
		require.Equal(t, []int{10, 5, 3}, []int{conflicted, deleted, attached})

		p.Seed = 8
		couchtest.Populate(t, other, p)
		failed := failing{TB: t}
		func() {
			defer func() { _ = recover() }()
			couchtest.SameTrees(&failed, a, other)
		}()
		require.Contains(t, failed.message, "differ in 60 documents")
	})
}

func TestSizes(t *testing.T) {
	t.Parallel()
	sizes := couchtest.Sizes(1, 100, 5000)
	require.Equal(t, sizes, couchtest.Sizes(1, 100, 5000))
	require.Len(t, sizes, 100)
	require.Equal(t, 5000, sizes[0][0])
	several := 0
	for _, one := range sizes {
		require.NotEmpty(t, one)
		if len(one) > 1 {
			several++
		}
		for _, size := range one {
			require.LessOrEqual(t, size, 5000)
		}
	}
	require.Positive(t, several)
	require.Empty(t, couchtest.Sizes(1, 0, 5000))
}

// failing is a test that records its failures.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic("failed")
}
