package scheduler_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator/jobs"
)

// A comparison of a job is kept alive while it runs. A cordoned node gives it back at once, also while it keeps its jobs, and begins
// none until it is no longer cordoned.
func TestComparison(t *testing.T) {
	inLab(t, jobs.Options{}, []string{"replicator/connection_timeout=7200000"}, func(l *lab) {
		job, err := l.post("anna", "")
		require.NoError(t, err)
		l.until(job.ID, func(j *jobs.Job) bool { return j.State.Result != nil })
		var opened, ended, takes atomic.Int64
		takes.Store(int64(time.Hour))
		l.peers.on("GET a.example/db/_changes", func(r *http.Request) (int, string) {
			opened.Add(1)
			pause(r, time.Duration(takes.Load()))
			ended.Add(1)
			return 0, ""
		})
		_, err = l.jobs.Requests.VerifyNow(t.Context(), job.ID)
		require.NoError(t, err)
		requests := func(after time.Duration, wantOpened, wantEnded int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			assert.Equal(t, wantOpened, opened.Load())
			assert.Equal(t, wantEnded, ended.Load())
		}
		requests(20*time.Minute, 1, 0)
		l.node.Cordon(true, false)
		requests(0, 1, 1)
		requests(20*time.Minute, 1, 1)
		takes.Store(0)
		l.node.Cordon(false, false)
		time.Sleep(time.Second)
		assert.Greater(t, opened.Load(), int64(1))
		time.Sleep(time.Minute)
		records, err := l.jobs.Lists.Records(t.Context(), job)
		require.NoError(t, err)
		known := records.Verification
		assert.Zero(t, known.Since)
		require.NotNil(t, known.Verified)
		assert.Empty(t, known.Verified.Error)
		assert.Equal(t, "n", known.Verified.Node)
	})
}
