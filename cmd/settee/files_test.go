package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFileShares: what all parts of a node may have open is within the limit of the process, and clients come last.
func TestFileShares(t *testing.T) {
	t.Parallel()
	require.Equal(t, fileShares{}, sharesOf(0, true, true))
	require.Equal(t, fileShares{store: 1000, endpoints: 32768, clients: 65536 - 1000 - 32768 - 64}, sharesOf(65536, true, true))
	require.Equal(t, fileShares{store: 256, endpoints: 512, clients: 192}, sharesOf(1024, true, true))
	require.Equal(t, fileShares{clients: 960}, sharesOf(1024, false, false))
	require.Equal(t, fileShares{store: 64, endpoints: 64, clients: 8}, sharesOf(128, true, true))
	for limit := 256; limit < 5000; limit += 7 {
		s := sharesOf(limit, true, true)
		require.LessOrEqual(t, s.store+s.endpoints+s.clients+min(limit/reservePart, mostReserve), limit)
	}
}
