package worker

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnaskedGrowsWithWhatTheTargetLacked(t *testing.T) {
	u := unasked{most: maxUnasked}
	require.False(t, u.allows(1), "nothing is known yet")

	u.learn(500, 500)
	require.False(t, u.allows(2001))
	require.True(t, u.allows(1500))
	require.True(t, u.allows(500))
	require.False(t, u.allows(1))

	u.learn(500, 480) // nearly all
	require.True(t, u.allows(3920))
	require.False(t, u.allows(1))

	for range 100 {
		u.learn(1000, 1000)
	}
	require.True(t, u.allows(maxUnasked))
	require.False(t, u.allows(1))
}

func TestUnaskedNeedsManyAnswersOnceTheTargetHadSome(t *testing.T) {
	u := unasked{most: maxUnasked}
	u.learn(500, 500)
	u.learn(500, 440)
	for range maxUnasked / 500 {
		require.False(t, u.allows(1))
		u.learn(500, 500)
	}
	require.False(t, u.allows(1))
	u.learn(500, 500)
	require.True(t, u.allows(2000))
}
