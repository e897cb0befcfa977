package worker_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/replicator"
	"settee/replicator/worker"
)

// questions records the bodies of a stub's requests, and answers those of them that answer answers.
func questions(s *stub, request string, answer func(body string) string) func() []string {
	var mu sync.Mutex
	var bodies []string
	s.on(request, func(w http.ResponseWriter, _ *http.Request, body []byte) bool {
		mu.Lock()
		bodies = append(bodies, string(body))
		mu.Unlock()
		if answer == nil {
			return false
		}
		text := answer(string(body))
		_, _ = w.Write([]byte(text))
		return text != ""
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return bodies
	}
}

func TestTheTargetIsNotAskedWhileItLacksEverything(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 100)
	asked := questions(target, "POST /_revs_diff", nil)
	result := run(t, replication(t, source.URL, target.URL, `"worker_processes":1`, `"worker_batch_size":5`))
	require.Len(t, asked(), 3)
	var written []string
	for _, body := range target.bodies() {
		written = append(written, idsIn(t, body)...)
	}
	require.Len(t, written, 100)
	require.Equal(t, replicator.Stats{
		RevisionsChecked: 100, MissingRevisionsFound: 100, DocCounts: replicator.DocCounts{DocsRead: 100, DocsWritten: 100}, BulkGetDocs: 100, BulkGetAttempts: 100,
	}, result.Stats)
}

func TestTheTargetIsAskedWhileItHasEverything(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 100)
	asked := questions(target, "POST /_revs_diff", func(string) string { return "{}" })
	result := run(t, replication(t, source.URL, target.URL, `"worker_processes":1`, `"worker_batch_size":5`))
	require.Len(t, asked(), 20)
	require.Empty(t, target.bodies())
	require.Equal(t, replicator.Stats{RevisionsChecked: 100}, result.Stats)
}

// A source without _bulk_get costs a request for each revision.
func TestTheTargetIsAskedBeforeDocumentsAreReadOneByOne(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 20)
	asked := questions(target, "POST /_revs_diff", nil)
	run(t, replication(t, source.URL, target.URL, `"worker_processes":1`, `"worker_batch_size":5`, `"use_bulk_get":false`))
	require.Len(t, asked(), 4)
}

// Of an unasked batch, the target is asked about documents with attachments only. It has one of them, and an ancestor
// of another.
func TestTheTargetIsAskedAboutAttachments(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 5)
	for _, id := range []string{"has", "lacks", "older"} {
		source.add(id, "1-a", "")
		source.attach(id, strings.Repeat("x", 100_000)) // not small
	}
	source.addSmall(2) // d0 and d1 again, but in the next batch
	asked := questions(target, "POST /_revs_diff", func(body string) string {
		if !strings.Contains(body, `"lacks"`) {
			return ""
		}
		return `{"lacks":{"missing":["1-a"]},"older":{"missing":["1-a"],"possible_ancestors":["0-z"]}}`
	})
	result := run(t, replication(t, source.URL, target.URL, `"worker_processes":1`, `"worker_batch_size":5`))
	require.Len(t, asked(), 2)
	var late map[string][]string
	require.NoError(t, json.Unmarshal([]byte(asked()[1]), &late))
	require.Equal(t, map[string][]string{"has": {"1-a"}, "lacks": {"1-a"}, "older": {"1-a"}}, late)
	require.Equal(t, replicator.Stats{
		RevisionsChecked: 10, MissingRevisionsFound: 9, DocCounts: replicator.DocCounts{DocsRead: 9, DocsWritten: 9}, BulkGetDocs: 7, BulkGetAttempts: 10,
	}, result.Stats)
}

// The shards of a cluster may send a row twice. The answers of _revs_diff name a document once.
func TestTheTargetIsAskedAboutDocumentsThatTheFeedRepeats(t *testing.T) {
	t.Parallel()
	source, target := stubs(t, 5)
	source.addSmall(3)
	source.addSmall(2)
	asked := questions(target, "POST /_revs_diff", nil)
	run(t, replication(t, source.URL, target.URL, `"worker_processes":1`, `"worker_batch_size":5`))
	require.Len(t, asked(), 2)
}

// A live feed brings one change at a time. What others write to both sides may change there at any time.
func TestALiveFeedAsksAgainAfterFewChanges(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		source, target, begin := pipedStubs(t)
		next := feedOnDemand(source)
		var known atomic.Bool
		asked := questions(target, "POST /_revs_diff", func(string) string {
			if known.Load() {
				return "{}"
			}
			return ""
		})
		r := begin(`"continuous":true`, `"checkpoint_interval":600000`)
		change := func(n int) (questions int) {
			before := len(asked())
			for range n {
				next()
				time.Sleep(time.Second)
				synctest.Wait()
			}
			return len(asked()) - before
		}
		require.Equal(t, 16, change(16*17/2*4+16), "four are left out for each that the target lacked")
		require.Equal(t, 3, change(3*65))
		require.Equal(t, 1, change(1))
		require.Zero(t, change(64))
		known.Store(true)
		require.Equal(t, 100, change(100))
		known.Store(false)
		require.Equal(t, 65, change(64+1))
		require.Zero(t, change(4))
		r.stop()
		require.ErrorIs(t, r.ended(), worker.ErrStopped)
	})
}
