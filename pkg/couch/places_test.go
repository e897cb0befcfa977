package couch

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlaces(t *testing.T) {
	t.Parallel()
	ids := []string{"a", "b", "b", "c", "d", "a", ""}
	dice := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		p := places{id: func(i int) string { return ids[i] }, n: len(ids)}
		for range 20 {
			want := ids[dice.IntN(len(ids))]
			at, ok := p.find([]byte(want))
			require.True(t, ok)
			require.Equal(t, want, ids[at])
			_, ok = p.find([]byte("x"))
			require.False(t, ok)
			require.Equal(t, want, p.text([]byte(want)))
			require.Equal(t, "x", p.text([]byte("x")))
		}
	}
	none := places{}
	_, ok := none.find(nil)
	require.False(t, ok)
}
