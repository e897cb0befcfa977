package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/config"
)

func TestMemoryOfANode(t *testing.T) {
	t.Parallel()
	for machine, want := range map[uint64]int64{
		0: 1 << 30, 512 << 20: 128 << 20, 2 << 30: 512 << 20, 4 << 30: 1 << 30, 24 << 30: 1 << 30,
	} {
		require.Equal(t, want, defaultMemory(machine))
	}
	cfg, _, err := config.Load(config.Options{Flags: []string{"settee/memory_limit_bytes=268435456"}})
	require.NoError(t, err)
	require.EqualValues(t, 256<<20, nodeMemory(cfg))
	require.EqualValues(t, 64<<20, clientBytes(cfg))
	for memory, want := range map[int64]int64{
		256 << 20: 64 << 20, 512 << 20: 128 << 20, 1 << 30: 128 << 20, 2 << 30: 256 << 20, 4 << 30: 256 << 20,
	} {
		cfg, _, err := config.Load(config.Options{Flags: []string{fmt.Sprintf("settee/memory_limit_bytes=%d", memory)}})
		require.NoError(t, err)
		require.Equal(t, want, cacheBytes(cfg), memory)
	}
	_, _, err = config.Load(config.Options{Flags: []string{"settee/memory_limit_bytes=1000"}})
	require.ErrorContains(t, err, "memory_limit_bytes")
	require.ErrorContains(t, err, "67108864")
}

func TestLittleGarbageWhileLittleIsAllocated(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		allocated, used uint64
		starting        bool
		want            int
	}{
		{0, 500 << 20, false, quietGarbage},
		{399 << 20, 500 << 20, false, quietGarbage},
		{400 << 20, 500 << 20, false, busyGarbage}, // more than four collections in twenty seconds
		{99 << 20, 50 << 20, false, busyGarbage},
		{99 << 20, 50 << 20, true, quietGarbage},
		{0, 0, false, busyGarbage}, // nothing is known before the first collection
	} {
		require.Equal(t, test.want, garbagePercent(test.allocated, test.used, test.starting), test)
	}
}

func TestManyStart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		before, now int64
		want        bool
	}{
		{0, 99, false}, {0, 100, true}, {400, 500, true}, {4000, 4499, false}, {4000, 4500, true}, {5000, 5000, false}, {5000, 0, false},
	} {
		require.Equal(t, test.want, manyStart(test.before, test.now), test)
	}
}
