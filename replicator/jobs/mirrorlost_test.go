package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/replicator"
	"settee/replicator/jobs"
)

// What a target has lost is behind, and its job runs: a parked one at once, and one that runs after its run. The row has the
// instance of the target.
func TestLostMirrored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create("_replicator")
	_, err := b.write("_replicator", "m", "", []byte(`{"source": "http://a.example/", "target": "http://b.example/", "continuous": true, "mirror": {}}`))
	require.NoError(t, err)
	mirror := b.accept()
	require.NoError(t, asMirror(mirror).Subscribe(t.Context()))
	require.NoError(t, asMirror(mirror).AddDatabases(t.Context(), []string{"one", "two"}, 0))
	_, err = asMirror(mirror).StartDatabases(t.Context(), 10)
	require.NoError(t, err)
	known := func() []jobs.MirroredDatabase {
		list, err := asMirror(mirror).Databases(t.Context(), "", 10)
		require.NoError(t, err)
		return list
	}
	waits := func(instance string) func(*replicator.JobState) {
		return func(s *replicator.JobState) {
			s.Activity = &replicator.Activity{Doing: replicator.DoingWaiting}
			s.Target = replicator.MirrorTarget{Claim: replicator.TargetMade, Instance: instance}
		}
	}
	children := map[string]*jobs.Run{}
	for range 2 {
		child := b.accept()
		children[child.Job().Args.MirroredDatabase] = child
		require.NoError(t, child.Update(t.Context(), waits("6")))
	}
	for _, d := range known() {
		assert.Equal(t, replicator.MirroredCurrent, d.State)
		assert.Equal(t, "6", d.Instance)
	}
	require.NoError(t, children["one"].Parking(t.Context(), replicator.Parked{Server: "http://a.example/", Database: "one"}))
	woken, err := children["one"].Park(t.Context(), waits("6"))
	require.NoError(t, err)
	require.False(t, woken)

	since := time.Now().Add(-time.Minute).Truncate(time.Second)
	lost, err := asMirror(mirror).LostDatabases(t.Context(), []string{"one", "three", "two"}, since)
	require.NoError(t, err)
	assert.Equal(t, []string{"one", "two"}, lost)
	for _, d := range known() {
		assert.Equal(t, replicator.MirroredCopying, d.State)
		assert.Empty(t, d.Instance)
	}
	summary, err := asMirror(mirror).Summary(t.Context())
	require.NoError(t, err)
	assert.True(t, summary.Behind.Equal(since))
	lost, err = asMirror(mirror).LostDatabases(t.Context(), []string{"one", "two"}, since)
	require.NoError(t, err)
	assert.Empty(t, lost, "it is copied already")

	assert.Equal(t, "one", b.accept().Job().Args.MirroredDatabase)
	require.ErrorIs(t, children["two"].Update(t.Context(), waits("6")), fdbjobs.ErrHalt)
	require.NoError(t, children["two"].Release(t.Context()))
	again := b.accept()
	assert.Equal(t, "two", again.Job().Args.MirroredDatabase)
	assert.Equal(t, replicator.MirroredCopying, known()[1].State, "it has not looked yet")
}
