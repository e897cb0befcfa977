package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
	"settee/replicator/jobs"
)

// outcomes returns the latest runs of a job, the newest first, and checks that they lie in this order.
func (b *bundle) outcomes(id string) (out []string) {
	b.Helper()
	records, err := b.store.Lists.Records(b.Context(), b.get(id))
	require.NoError(b, err)
	runs := records.Runs
	var later replicator.EndedRun
	for i, text := range runs {
		var run replicator.EndedRun
		require.NoError(b, json.Unmarshal(text, &run))
		require.Equal(b, "node1", run.Node)
		require.False(b, run.End.Before(run.Start))
		if i > 0 {
			require.False(b, run.End.After(later.Start), "%s and %s", text, runs[i-1])
		}
		later = run
		out = append(out, fmt.Sprintf("%s %d %s", run.Outcome, run.DocsWritten, run.Reason))
	}
	return out
}

// The end of each run is recorded, and the latest ones are kept until the job is removed.
func TestRuns(t *testing.T) {
	t.Parallel()
	for _, lossy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			b.db.on.Store(lossy)
			b.create(repdb)
			b.put(repdb, "d", "", `"every": "1s"`)
			id := b.jobID(repdb, "d")
			require.Empty(t, b.outcomes(id))
			ran := func(n int64) *jobs.Run {
				run := b.accept()
				run.Last(replicator.DocCounts{DocsWritten: n}, nil)
				<-time.After(time.Second)
				return run
			}
			require.NoError(t, ran(1).Stop(b.Context(), "", "", nil))
			require.NoError(t, ran(2).Crash(b.Context(), time.Now(), 1, replicator.TextFault("db_not_found", "http://adm:secret@a.example/db")))
			require.NoError(t, ran(3).Restart(b.Context(), "the replication id has changed"))
			require.NoError(t, ran(4).Complete(b.Context(), nil))
			lost := b.accept()
			stop := b.monitor(nil)
			again := b.accept()
			stop()
			require.NotSame(t, lost, again)
			require.NoError(t, again.Stop(b.Context(), "", "", nil))
			require.Equal(t, []string{
				"stopped 0 ", "lost 0 ", "completed 4 ", "restarted 3 ",
				"crashed 2 db_not_found: http://adm:*****@a.example/db", "stopped 1 ",
			}, b.outcomes(id))
			for n := range int64(jobs.MaxRuns) {
				require.NoError(t, ran(100+n).Stop(b.Context(), "", "", nil))
			}
			latest := b.outcomes(id)
			require.Len(t, latest, jobs.MaxRuns)
			assert.Equal(t, "stopped 119 ", latest[0])
			assert.Equal(t, "stopped 100 ", latest[jobs.MaxRuns-1])
			assert.EqualValues(t, 26, b.get(id).State.Runs)

			// A document that asks for something else has another history.
			b.put(repdb, "d", b.document(repdb, "d")["_rev"].(string), "")
			require.Empty(t, b.outcomes(id))
			require.Empty(t, b.rows("runs"))
			run := ran(7)
			b.put(repdb, "d", b.document(repdb, "d")["_rev"].(string), `"doc_ids": ["y"]`)
			require.Error(t, run.Stop(b.Context(), "", "", nil))
			require.NoError(t, ran(8).Fail(b.Context(), replicator.TextFault("", "no")))
			require.Equal(t, []string{"failed 8 no"}, b.outcomes(id))
			b.remove(repdb, "d", b.document(repdb, "d")["_rev"].(string))
			require.Empty(t, b.rows("runs"))
		})
	}
}

// A transient job keeps its runs when it is posted again, until it expires.
func TestRunsOfTransientJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, jobs.Options{TransientMaxAge: time.Minute})
		id := b.replicate("").ID
		require.NoError(t, b.accept().Fail(b.Context(), replicator.TextFault("", "one")))
		<-time.After(time.Second)
		b.replicate("")
		require.NoError(t, b.accept().Complete(b.Context(), nil))
		require.Equal(t, []string{"completed 0 ", "failed 0 one"}, b.outcomes(id))
		<-time.After(2 * time.Minute)
		for _, task := range b.store.Upkeep.Tasks() {
			require.NoError(t, task.Run(context.Background(), nil))
		}
		b.gone(id)
		require.Empty(t, b.rows("runs"))
	})
}
