package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// A mirror hears the names of databases only if its own login has listed them lately. Another one is told to look itself.
func TestWhichMirrorsAreToldNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	request, err := replicator.ParseRequest([]byte(`{"source":"http://eve:pw@a.example/","target":"http://b.example/","continuous":true,"mirror":{}}`),
		replicator.ParseOptions{})
	require.NoError(t, err)
	_, err = b.store.Requests.Replicate(t.Context(), request.Replication, nil)
	require.NoError(t, err)

	var run *jobs.Run
	told := func(server string) []jobs.News {
		t.Helper()
		require.NoError(t, b.store.Watches.Tell(t.Context(), server, []jobs.News{{Database: "payroll", Type: jobs.NewsCreated}}))
		read, err := run.MirrorNews(t.Context(), 10)
		require.NoError(t, err)
		require.NoError(t, run.DropNews(t.Context(), read))
		var news []jobs.News
		for _, one := range read {
			news = append(news, jobs.News{Database: one.Database, Type: one.Type})
		}
		return news
	}
	looked := func(at time.Time) {
		t.Helper()
		require.NoError(t, run.Update(t.Context(), func(state *replicator.JobState) { state.Mirror = &replicator.MirrorProgress{LastLook: at} }))
	}
	missed := []jobs.News{{Type: jobs.NewsMissed}}

	run = b.accept()
	require.NoError(t, run.BeginMirror(t.Context()))
	require.Equal(t, missed, told(sourceServer), "it has not listed anything")
	looked(time.Now())
	require.Equal(t, []jobs.News{{Database: "payroll", Type: jobs.NewsCreated}}, told(sourceServer))
	require.Empty(t, told(sourceServer+"#another machine answers"))
	looked(time.Now().Add(-26 * time.Hour))
	require.Equal(t, missed, told(sourceServer), "long ago")
	looked(time.Now())
	require.NoError(t, run.Crash(t.Context(), time.Now(), 1, replicator.TextFault("error", "the source does not let it list")))
	require.NoError(t, b.store.Watches.Tell(t.Context(), sourceServer, []jobs.News{{Database: "payroll", Type: jobs.NewsCreated}}))
	run = b.accept()
	read, err := run.MirrorNews(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, read, 1)
	require.Equal(t, jobs.NewsMissed, read[0].Type, "its last run has failed")
}
