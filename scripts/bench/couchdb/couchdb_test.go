package couchdb

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
