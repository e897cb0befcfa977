package couchtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReleases(t *testing.T) {
	t.Parallel()
	before, ids, main := Release{Before352: true, Before36: true}, Release{Before36: true}, Release{}
	for version, want := range map[string]Release{
		"3.5.0": before, "3.5.1-RC1": before, "2.3.1": before, "3.5.0-a6778e5": before, "": before,
		"3.5.2": ids, "3.5.2-RC1": ids, "3.5.3": ids,
		"3.5.2-a6778e5": main, "3.6.0": main, "3.10.0": main, "4.0": main,
	} {
		require.Equal(t, want, releaseOf(version), version)
	}
}
