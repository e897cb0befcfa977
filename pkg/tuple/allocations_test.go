package tuple_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/tuple"
)

// The parts of a typical key of the job layer: (ready, type, owner, since, id).
var (
	jobLayer = tuple.NewSubspace("settee", "fdbjobs")
	jobType  = "replication"
	jobOwner = "accounts/eu-west/_replicator"
	jobSince = int64(1_700_000_000)
	jobID    = "3d8f6a0c5f2b4c3e9a7d1b6e8c4f2a10|orders-to-warehouse"
)

func appendJobKey(dst []byte) []byte {
	return jobLayer.Append(dst, "ready", jobType, jobOwner, jobSince, jobID)
}

var sink []byte

// TestPackAllocations checks that packing allocates nothing if the buffer has room, and otherwise
// only the key. It is not parallel because the counter is global.
func TestPackAllocations(t *testing.T) {
	buf := make([]byte, 0, 256)
	require.Zero(t, testing.AllocsPerRun(100, func() { appendJobKey(buf) }), "Append")
	require.Equal(t, 1.0, testing.AllocsPerRun(100, func() {
		sink = jobLayer.Pack("ready", jobType, jobOwner, jobSince, jobID)
	}), "Pack")
	stamp := tuple.IncompleteVersionstamp(1)
	require.Equal(t, 1.0, testing.AllocsPerRun(100, func() {
		sink, _ = jobLayer.PackWithVersionstamp("active", jobType, stamp, jobID)
	}), "PackWithVersionstamp")
}
