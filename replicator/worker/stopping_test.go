package worker_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/replicator/worker"
)

// sendSlowly makes the source answer _bulk_get with one document after each pause.
func sendSlowly(s *stub, pause time.Duration) {
	s.on("POST /_bulk_get", func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		var asked struct {
			Docs []struct{ ID, Rev string }
		}
		assertNoError(s.t, json.Unmarshal(body, &asked))
		w.Header().Set("Content-Type", "application/json")
		between := `{"results":[`
		for _, ref := range asked.Docs {
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return true
			}
			_, _ = io.WriteString(w, between+`{"id":`+quoted(ref.ID)+`,"docs":[{"ok":`+s.docs[ref.ID+" "+ref.Rev]+`}]}`)
			w.(http.Flusher).Flush()
			between = ","
		}
		_, _ = io.WriteString(w, "]}")
		return true
	})
}

// lackUnwritten makes the target lack what was not written to it.
func lackUnwritten(target *stub) {
	target.on("POST /_revs_diff", func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		var asked map[string][]string
		assertNoError(target.t, json.Unmarshal(body, &asked))
		written := strings.Join(target.bodies(), "")
		for id := range asked {
			if strings.Contains(written, `"_id":`+quoted(id)) {
				delete(asked, id)
			}
		}
		text, _ := json.Marshal(asked)
		target.lackAll(w, text)
		return true
	})
}

// A batch of 100 documents takes 1,000 s, and a turn a minute. Each run writes what it has read, so that the turns come
// to the end of the batch.
func TestTurnsThatAreShorterThanABatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, target, begin := pipedStubs(t)
		source.addSmall(100)
		sendSlowly(source, 10*time.Second)
		lackUnwritten(target)
		written, turns := int64(0), 0
		for ; written < 100 && turns < 100; turns++ {
			r := begin()
			select {
			case <-time.After(time.Minute):
				r.stop()
			case <-r.done:
				require.NoError(t, r.err)
			}
			if err := r.ended(); err != nil {
				require.ErrorIs(t, err, worker.ErrStopped)
				require.False(t, r.result.Progressed.IsZero())
				require.Equal(t, r.result.RunStats.DocsRead, r.result.RunStats.DocsWritten, "what is read is written")
			}
			require.GreaterOrEqual(t, r.result.RunStats.DocsWritten, int64(4))
			written += r.result.RunStats.DocsWritten
		}
		require.EqualValues(t, 100, written, "nothing is copied twice")
		require.LessOrEqual(t, turns, 25)
	})
}

// A run that is stopped ends in time even if neither side answers.
func TestStopsAreBounded(t *testing.T) {
	for _, silent := range []string{"POST /_bulk_get", "POST /_bulk_docs"} {
		testkit.RunBubble(t, silent, func(t *testing.T) {
			source, target, begin := pipedStubs(t)
			source.addSmall(10)
			side := map[bool]*stub{true: source, false: target}[silent == "POST /_bulk_get"]
			side.on(silent, func(w http.ResponseWriter, r *http.Request, _ []byte) bool { return stay(w, r, "") })
			r := begin()
			time.Sleep(5 * time.Second)
			began := time.Now()
			r.stop()
			require.ErrorIs(t, r.ended(), worker.ErrStopped)
			require.LessOrEqual(t, time.Since(began), worker.DefaultConfig().StopTimeout)
			require.Zero(t, r.result.Progressed)
			require.Zero(t, r.result.RunStats.DocsWritten)
		})
	}
}

// At each moment the statistics agree with each other, whichever way documents are read.
func TestStatisticsAgreeWithinARun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, _, begin := pipedStubs(t)
		for i := range 60 { // ten fill a portion
			id := fmt.Sprintf("d%d", i)
			source.add(id, "1-a", fmt.Sprintf(`{"_id":%q,"_rev":"1-a","x":"%s"}`, id, strings.Repeat("x", 100_000)))
		}
		for i := range 20 { // read one by one, because their attachments are large
			id := fmt.Sprintf("a%d", i)
			source.add(id, "1-a", "")
			source.attach(id, strings.Repeat("x", 100_000))
		}
		sendSlowly(source, time.Second)
		r := begin()
		var wrote atomic.Bool
		r.mu.Lock()
		r.report = func(p worker.Progress) error {
			s := p.RunStats
			assert.LessOrEqual(t, s.DocsWritten+s.DocWriteFailures, s.DocsRead)
			assert.LessOrEqual(t, s.DocsRead, s.MissingRevisionsFound)
			assert.LessOrEqual(t, s.MissingRevisionsFound, s.RevisionsChecked)
			assert.LessOrEqual(t, s.BulkGetDocs, s.BulkGetAttempts)
			wrote.Store(wrote.Load() || s.DocsRead > 0 && s.DocsRead < 60)
			return nil
		}
		r.mu.Unlock()
		require.NoError(t, r.ended())
		synctest.Wait()
		require.True(t, wrote.Load(), "reports show what is read as it is read")
		require.EqualValues(t, 80, r.result.RunStats.DocsWritten)
		require.EqualValues(t, 80, r.result.RunStats.DocsRead)
	})
}
