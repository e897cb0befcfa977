package couchtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReleases(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"3.5.0": false, "3.5.1-RC1": false, "3.5.2": true, "3.5.2-a6778e5": true, "3.10.0": true, "4.0": true, "2.3.1": false, "": false,
	} {
		require.Equal(t, want, releaseOf(version).SinceSeqInIDs, version)
	}
}
