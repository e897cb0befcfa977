package tuple_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/pkg/tuple"
)

// The parts of a typical key of the job layer: (ready, type, owner, since, id).
var (
	benchLayer = tuple.NewSubspace("settee", "fdbjobs")
	benchType  = "replication"
	benchOwner = "accounts/eu-west/_replicator"
	benchSince = int64(1_700_000_000)
	benchID    = "3d8f6a0c5f2b4c3e9a7d1b6e8c4f2a10|orders-to-warehouse"
)

func appendJobKey(dst []byte) []byte {
	return benchLayer.Append(dst, "ready", benchType, benchOwner, benchSince, benchID)
}

// TestPackAllocations holds packing to its promise: nothing is allocated where
// the buffer has room, and only the key otherwise. Not parallel: the counter is
// the process's.
func TestPackAllocations(t *testing.T) {
	buf := make([]byte, 0, 256)
	require.Zero(t, testing.AllocsPerRun(100, func() { appendJobKey(buf) }), "Append")
	require.Equal(t, 1.0, testing.AllocsPerRun(100, func() {
		sink = benchLayer.Pack("ready", benchType, benchOwner, benchSince, benchID)
	}), "Pack")
	stamp := tuple.IncompleteVersionstamp(1)
	require.Equal(t, 1.0, testing.AllocsPerRun(100, func() {
		sink, _ = benchLayer.PackWithVersionstamp("active", benchType, stamp, benchID)
	}), "PackWithVersionstamp")
}

var (
	sink      []byte
	sinkTuple tuple.Tuple
)

// concatenate is the least that making such a key can cost: its parts copied
// one behind the other, in no order that would survive reading.
func concatenate(dst []byte) []byte {
	dst = append(dst, benchLayer.Bytes()...)
	dst = append(dst, "ready"...)
	dst = append(dst, benchType...)
	dst = append(dst, benchOwner...)
	dst = append(dst, byte(benchSince>>24), byte(benchSince>>16), byte(benchSince>>8), byte(benchSince))
	return append(dst, benchID...)
}

// BenchmarkJobKey prints, beside the time of each operation, its ratio to plain
// concatenation of the same parts in the same run.
func BenchmarkJobKey(b *testing.B) {
	key := appendJobKey(nil)
	buf := make([]byte, 0, 2*len(key))
	for _, c := range []struct {
		name string
		run  func()
	}{
		{"Append", func() { sink = appendJobKey(buf) }},
		{"Pack", func() { sink = benchLayer.Pack("ready", benchType, benchOwner, benchSince, benchID) }},
		{"Unpack", func() { sinkTuple, _ = benchLayer.Unpack(key) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			floor := timed(b.N, func() { sink = concatenate(buf) })
			b.ReportAllocs()
			b.ResetTimer()
			spent := timed(b.N, c.run)
			b.ReportMetric(float64(spent)/float64(floor), "x-concatenation")
		})
	}
}

func timed(n int, run func()) time.Duration {
	start := time.Now()
	for range n {
		run()
	}
	return time.Since(start)
}
