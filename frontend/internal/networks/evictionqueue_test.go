package networks_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/frontend/internal/networks"
)

func TestEvictionQueue(t *testing.T) {
	t.Parallel()
	var queue networks.EvictionQueue[string]
	require.Nil(t, queue.Next())
	a1 := queue.Add("a", "a1")
	require.Equal(t, "a1", queue.Next().Value)
	b1 := queue.Add("b", "b1")
	require.Equal(t, "a1", queue.Next().Value, "both have as many, and it is older")
	queue.Add("b", "b2")
	require.Equal(t, "b1", queue.Next().Value, "its network has the most members")
	queue.Add("b", "b3")
	queue.Remove(b1)
	require.Equal(t, "b2", queue.Next().Value)
	queue.Remove(queue.Next())
	require.Equal(t, "a1", queue.Next().Value)
	queue.Remove(a1)
	require.Equal(t, "b3", queue.Next().Value)
	queue.Remove(queue.Next())
	require.Nil(t, queue.Next())
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
func TestEvictionQueueAgreesWithASearch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		var queue networks.EvictionQueue[int]
		var members []member
		for step := range 2_000 {
			switch what := random.IntN(10); {
			case len(members) == 0 || what < 5:
				network := strconv.Itoa(random.IntN(1 + random.IntN(12)))
				members = append(members, member{network, queue.Add(network, step)})
			case what < 8:
				i := random.IntN(len(members))
				queue.Remove(members[i].in)
				members = slices.Delete(members, i, i+1)
			default:
				i := slices.IndexFunc(members, func(m member) bool { return m.in == queue.Next() })
				queue.Remove(members[i].in)
				members = slices.Delete(members, i, i+1)
			}
			require.Same(t, next(members), queue.Next(), "seed %d, step %d", seed, step)
		}
	}
}

func BenchmarkEvictionQueue(b *testing.B) {
	var queue networks.EvictionQueue[int]
	for i := range 10_000 {
		queue.Add(strconv.Itoa(i%1_000), i)
	}
	for i := 0; b.Loop(); i++ {
		queue.Remove(queue.Next())
		queue.Add(strconv.Itoa(i%1_000), i)
	}
}
