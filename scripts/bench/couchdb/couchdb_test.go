package couchdb

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A ratio compares the turns of a pair, not the medians.
func TestRatios(t *testing.T) {
	var p pairs
	for _, pair := range [][2]float64{{10, 20}, {1, 4}, {3, 2}} {
		p = append(p, [2]sample{{wall: pair[0]}, {wall: pair[1]}})
	}
	require.Equal(t, "0.50 (0.25-1.50)", p.ratios(measures[0]))
	require.Equal(t, "3.00", p.median(settee, measures[0]))
	require.Equal(t, "-", p.ratios(measures[1]), "an unknown value")
}

func TestChosenCases(t *testing.T) {
	for want, b := range map[string]bench{
		"docs large small burst": {}, "docs large small far-50ms burst": {all: true}, "docs burst": {names: "burst,docs"},
	} {
		chosen, err := b.chosen()
		require.NoError(t, err)
		var names []string
		for _, c := range chosen {
			names = append(names, c.name)
		}
		require.Equal(t, want, strings.Join(names, " "))
	}
}
