package seeds

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ran returns the seeds that Each runs, in order.
func ran(t *testing.T, first uint64, usual int) []uint64 {
	t.Helper()
	var mu sync.Mutex
	var all []uint64
	Each(t, first, usual, func(_ *testing.T, seed uint64) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, seed)
	})
	slices.Sort(all)
	return all
}

func TestEach(t *testing.T) {
	t.Setenv(CountVariable, "")
	t.Setenv(FirstVariable, "")
	assert.Equal(t, []uint64{10, 11, 12}, ran(t, 10, 3))
	t.Setenv(FirstVariable, "7")
	assert.Equal(t, []uint64{7, 8, 9}, ran(t, 10, 3))
	t.Setenv(CountVariable, "5")
	assert.Equal(t, []uint64{7, 8, 9, 10, 11}, ran(t, 10, 3))
	t.Setenv(CountVariable, "10ms")
	assert.NotEmpty(t, ran(t, 10, 3))
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
	assert.Equal(t, 20, Rounds(t, 100))
	assert.Equal(t, 1, Rounds(t, 3))
	t.Setenv(RoundsVariable, "all")
	assert.Equal(t, 100, Rounds(t, 100))
	t.Setenv(RoundsVariable, "few")
	_, err := readRounds(100)
	require.ErrorContains(t, err, `SETTEE_ROUNDS=few is not "all"`)
}
