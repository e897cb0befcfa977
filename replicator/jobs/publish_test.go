package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// A mirror hears the names of databases only if its own login has listed them lately. Another one looks itself.
func TestWhichMirrorsAreToldNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	request, err := replicator.ParseRequest([]byte(`{"source":"http://eve:pw@a.example/","target":"http://b.example/","continuous":true,"mirror":{}}`),
		replicator.ParseOptions{})
	require.NoError(t, err)
	_, err = b.store.Requests.Replicate(t.Context(), request.Replication, nil)
	require.NoError(t, err)

	var run *jobs.Run
	follow := func() (events []jobs.MirrorEvent) {
		t.Helper()
		_, err := asMirror(run).FollowEvents(t.Context(), 10, func(some []jobs.MirrorEvent) error {
			events = some
			return nil
		})
		require.NoError(t, err)
		return events
	}
	published := func(server string) []jobs.MirrorEvent {
		t.Helper()
		require.NoError(t, b.store.Watches.Publish(t.Context(), server, []jobs.MirrorEvent{{Database: "payroll", Type: jobs.EventCreated}}))
		return follow()
	}
	looked := func(at time.Time) {
		t.Helper()
		require.NoError(t, run.Update(t.Context(), func(state *replicator.JobState) { state.Mirror = &replicator.MirrorProgress{LastLook: at} }))
	}
	missed := []jobs.MirrorEvent{{Type: jobs.EventMissed}}

	run = b.accept()
	require.NoError(t, asMirror(run).Subscribe(t.Context()))
	require.Equal(t, missed, published(sourceServer), "it has not listed anything")
	looked(time.Now())
	require.Equal(t, []jobs.MirrorEvent{{Database: "payroll", Type: jobs.EventCreated}}, published(sourceServer))
	require.Empty(t, published(sourceServer+"#another machine answers"))
	looked(time.Now().Add(-26 * time.Hour))
	require.Equal(t, missed, published(sourceServer), "long ago")
	looked(time.Now())
	require.NoError(t, run.Crash(t.Context(), time.Now(), 1, replicator.TextFault("error", "the source does not let it list")))
	require.NoError(t, b.store.Watches.Publish(t.Context(), sourceServer, []jobs.MirrorEvent{{Database: "payroll", Type: jobs.EventCreated}}))
	run = b.accept()
	require.Equal(t, missed, follow(), "its last run has failed")
}
