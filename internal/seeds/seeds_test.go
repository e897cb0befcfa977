package seeds

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
)

// ran returns the seeds that Each runs, in order, and what it returns.
func ran(t *testing.T, first uint64, usual int) (all []uint64, n uint64) {
	t.Helper()
	var mu sync.Mutex
	n = Each(t, first, usual, func(_ *testing.T, seed uint64) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, seed)
	})
	slices.Sort(all)
	return all, n
}

func TestEach(t *testing.T) {
	t.Setenv(CountVariable, "")
	t.Setenv(FirstVariable, "")
	usual := []uint64{10, 11, 12}
	if testkit.Race {
		usual = usual[:1]
	}
	all, n := ran(t, 10, 3)
	assert.Equal(t, usual, all)
	assert.Len(t, usual, int(n))
	t.Setenv(FirstVariable, "7")
	all, _ = ran(t, 10, 1)
	assert.Equal(t, []uint64{7}, all)
	t.Setenv(CountVariable, "5")
	all, n = ran(t, 10, 3)
	assert.Equal(t, []uint64{7, 8, 9, 10, 11}, all)
	assert.Equal(t, uint64(5), n)
	t.Setenv(CountVariable, "2")
	all, n = ran(t, 10, 3)
	assert.Equal(t, []uint64{7, 8}, all)
	assert.Equal(t, uint64(2), n)
	t.Setenv(CountVariable, "10ms")
	all, _ = ran(t, 10, 3)
	assert.NotEmpty(t, all)
}

func TestPlans(t *testing.T) {
	t.Setenv(CountVariable, "1h")
	t.Setenv(FirstVariable, "18446744073709551615")
	p, err := read(1, 2)
	require.NoError(t, err)
	assert.Equal(t, plan{first: 1<<64 - 1, time: time.Hour}, p)
	assert.True(t, p.has(1_000_000, time.Hour-1))
	assert.False(t, p.has(1, time.Hour))
	for _, text := range []string{"0", "-1", "-1h", "0s", "many", "1 h"} {
		t.Setenv(CountVariable, text)
		_, err := read(1, 2)
		require.ErrorContains(t, err, "SETTEE_SEEDS="+text+" is neither a number of seeds nor a time")
	}
	t.Setenv(CountVariable, "")
	for _, text := range []string{"-1", "x", "18446744073709551616"} {
		t.Setenv(FirstVariable, text)
		_, err := read(1, 2)
		require.ErrorContains(t, err, "SETTEE_FIRST_SEED="+text+" is not a seed")
	}
}

func TestRounds(t *testing.T) {
	t.Setenv(RoundsVariable, "")
	if testkit.Race {
		assert.Equal(t, 7, Rounds(t, 100))
	} else {
		assert.Equal(t, 20, Rounds(t, 100))
	}
	assert.Equal(t, 1, Rounds(t, 3))
	assert.False(t, All(t))
	t.Setenv(RoundsVariable, "all")
	assert.Equal(t, 100, Rounds(t, 100))
	assert.True(t, All(t))
	t.Setenv(RoundsVariable, "few")
	_, err := readRounds(100)
	require.ErrorContains(t, err, `SETTEE_ROUNDS=few is not "all"`)
}
