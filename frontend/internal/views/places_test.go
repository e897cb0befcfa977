package views

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlacesOfViews(t *testing.T) {
	t.Parallel()
	require.True(t, mayOpen(0, 0, false))
	require.True(t, mayOpen(199, 199, false))
	require.False(t, mayOpen(200, 200, false), "a user has two hundred")
	require.False(t, mayOpen(200, 200, true))
	require.False(t, mayOpen(700, 50, false), "half of what is left")
	require.True(t, mayOpen(700, 49, false))
	require.True(t, mayOpen(799, 0, false))
	require.False(t, mayOpen(800, 0, false), "the rest is for administrators")
	require.True(t, mayOpen(800, 0, true))
	require.True(t, mayOpen(999, 199, true))
	require.False(t, mayOpen(1000, 0, true))
}
