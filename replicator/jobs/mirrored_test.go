package jobs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
	"settee/replicator"
	"settee/replicator/jobs"
)

// mirrorOne makes a mirror with one database. It returns its run, and the run of the database's job.
func (b *bundle) mirrorOne(database string) (mirror, child *jobs.Run) {
	b.Helper()
	b.create("_replicator")
	_, err := b.write("_replicator", "m", "", []byte(`{"source": "http://a.example/", "target": "http://b.example/", "continuous": true, "mirror": {}}`))
	require.NoError(b, err)
	mirror = b.accept()
	require.NoError(b, mirror.AddMirrored(b.Context(), []string{database}, 0))
	_, err = mirror.StartMirrored(b.Context(), 1)
	require.NoError(b, err)
	return mirror, b.accept()
}

// After a write whose result the run does not know, the row may follow from that write or from the one before.
func TestMirroredRowAfterUnknownResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mirror, run := b.mirrorOne("films")
	does := func(doing replicator.Doing) func(*replicator.JobState) {
		return func(s *replicator.JobState) { s.Activity = &replicator.Activity{Doing: doing} }
	}
	is := func(state replicator.MirroredState) {
		t.Helper()
		list, err := mirror.Mirrored(t.Context(), "", 1)
		require.NoError(t, err)
		require.Equal(t, state, list[0].State)
	}
	require.NoError(t, run.Update(t.Context(), does(replicator.DoingWaiting)))
	is(replicator.MirroredCurrent)
	b.db.mute.Store(true)
	require.ErrorIs(t, run.Update(t.Context(), does(replicator.DoingCopying)), kv.ErrCommitUnknown)
	b.db.mute.Store(false)
	is(replicator.MirroredCopying)
	require.NoError(t, run.Update(t.Context(), does(replicator.DoingWaiting)))
	is(replicator.MirroredCurrent)
}
