package networks_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/networks"
)

func TestCrowd(t *testing.T) {
	t.Parallel()
	var crowd networks.Crowd[string]
	require.Nil(t, crowd.Next())
	a1 := crowd.Add("a", "a1")
	require.Equal(t, "a1", crowd.Next().Value)
	b1 := crowd.Add("b", "b1")
	require.Equal(t, "a1", crowd.Next().Value, "both have as many, and it is older")
	crowd.Add("b", "b2")
	require.Equal(t, "b1", crowd.Next().Value, "its network has the most members")
	crowd.Add("b", "b3")
	crowd.Remove(b1)
	require.Equal(t, "b2", crowd.Next().Value)
	crowd.Remove(crowd.Next())
	require.Equal(t, "a1", crowd.Next().Value)
	crowd.Remove(a1)
	require.Equal(t, "b3", crowd.Next().Value)
	crowd.Remove(crowd.Next())
	require.Nil(t, crowd.Next())
}

// member is a member of the model.
type member struct {
	network string
	in      *networks.Member[int]
}

// next searches all members for the one that should make room.
func next(members []member) *networks.Member[int] {
	count := map[string]int{}
	for _, m := range members {
		count[m.network]++
	}
	var found *networks.Member[int]
	most := 0
	for _, m := range members {
		if count[m.network] > most {
			most, found = count[m.network], m.in
		}
	}
	return found
}

// Next finds the same member as a search through all members.
func TestCrowdAgreesWithASearch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		var crowd networks.Crowd[int]
		var members []member
		for step := range 2_000 {
			switch what := random.IntN(10); {
			case len(members) == 0 || what < 5:
				network := strconv.Itoa(random.IntN(1 + random.IntN(12)))
				members = append(members, member{network, crowd.Add(network, step)})
			case what < 8:
				i := random.IntN(len(members))
				crowd.Remove(members[i].in)
				members = slices.Delete(members, i, i+1)
			default:
				i := slices.IndexFunc(members, func(m member) bool { return m.in == crowd.Next() })
				crowd.Remove(members[i].in)
				members = slices.Delete(members, i, i+1)
			}
			require.Same(t, next(members), crowd.Next(), "seed %d, step %d", seed, step)
		}
	}
}

func BenchmarkCrowd(b *testing.B) {
	var crowd networks.Crowd[int]
	for i := range 10_000 {
		crowd.Add(strconv.Itoa(i%1_000), i)
	}
	for i := 0; b.Loop(); i++ {
		crowd.Remove(crowd.Next())
		crowd.Add(strconv.Itoa(i%1_000), i)
	}
}
