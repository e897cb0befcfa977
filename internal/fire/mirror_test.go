//go:build fdb && fire

package fire

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
)

// A mirror keeps the sources of couch0, and databases that are created during the fire, at couch1. It is the document
// mirrorName of _replicator.
const (
	mirrorName   = "mirror"
	mirrorPrefix = "copy-of-"
)

// mirrored returns the task that a mirror has for a source.
func mirrored(s *source) *task {
	return &task{name: mirrorPrefix + s.database, source: s, peer: couch1, continuous: true}
}

// mirror adds the mirror, and returns when it has copied the sources once. Their replications are tasks from then on.
func (w *work) mirror() {
	definition := fmt.Sprintf(`{"source": %q, "target": %q, "continuous": true, "mirror": {"include": ["source*", "new*"], "prefix": %q}}`,
		w.forNodes(couch0, ""), w.forNodes(couch1, ""), mirrorPrefix)
	w.must(http.MethodPut, w.forTest(hosted, "_replicator/"+mirrorName), definition, http.StatusCreated, nil)
	var added []*task
	for _, s := range w.sources {
		if s.peer == couch0 {
			added = append(added, mirrored(s))
		}
	}
	w.awaitMirror(len(added))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks = append(w.tasks, added...)
}

// awaitMirror waits until a number of databases are up to date.
func (w *work) awaitMirror(databases int) {
	var info string
	if !assert.Eventually(w, func() bool {
		var answer struct {
			Info struct {
				Mirror struct {
					Known  int `json:"databases"`
					States map[string]int
				}
			}
		}
		w.must(http.MethodGet, w.forTest(hosted, "_scheduler/docs/_replicator/"+mirrorName), "", http.StatusOK, &answer)
		info = fmt.Sprintf("%+v", answer)
		return answer.Info.Mirror.Known == databases && answer.Info.Mirror.States["up_to_date"] == databases
	}, limit, 200*time.Millisecond, "%d databases of the mirror", databases) {
		w.explainMirror()
		w.Fatal(info)
	}
}

// explainMirror logs what is known of the mirror and of its databases that are not up to date: their jobs with their histories,
// and what the nodes logged about them.
func (w *work) explainMirror() {
	var doc json.RawMessage
	w.must(http.MethodGet, w.forTest(hosted, "_scheduler/docs/_replicator/"+mirrorName), "", http.StatusOK, &doc)
	w.Logf("the mirror: %s", doc)
	var live struct{ Jobs []json.RawMessage }
	w.must(http.MethodGet, w.forTest(hosted, "_scheduler/jobs")+"?limit=1000", "", http.StatusOK, &live)
	for _, text := range live.Jobs {
		var job struct {
			listed
			ID string
		}
		require.NoError(w, json.Unmarshal(text, &job))
		waits := job.Condition.State == replicator.ShownParked || job.Condition.Reason == replicator.Reason(replicator.DoingWaiting)
		if name := targetOf(job.Target); strings.HasPrefix(name, mirrorPrefix) && !waits {
			w.Logf("the job of %s: %s", name, text)
			w.explain(job.ID)
		}
	}
}

// createDatabases creates databases with a document at couch0, until ctx ends.
func (w *work) createDatabases(ctx context.Context, between time.Duration) {
	for ctx.Err() == nil {
		w.createDatabase()
		pause(ctx, between)
	}
}

func (w *work) createDatabase() {
	s := &source{peer: couch0, database: fmt.Sprintf("new%02d", len(w.created)), acked: map[string]string{}}
	status, answer, err := askAgain(w.Context(), patience, http.MethodPut, w.forTest(s.peer, s.database), "", anyAnswer)
	// An attempt without a response may have created it.
	if err != nil || status != http.StatusCreated && status != http.StatusPreconditionFailed {
		w.wrongAnswer("creating %s: %d %s, %v", s, status, answer, err)
		return
	}
	w.change(w.Context(), w.random, s)
	w.created = append(w.created, s)
}

// killMirror kills the node that runs the mirror, creates a database, and waits until another node has copied it.
func (w *work) killMirror(l *observer) {
	var runs *node
	require.Eventually(w, func() bool {
		now, err := l.take(w.Context())
		require.NoError(w, err)
		for _, n := range w.nodes {
			if process, healthy := n.now(); healthy && process.PID() == now.runs[targetOf(w.forNodes(couch1, ""))].pid {
				runs = n
			}
		}
		return runs != nil
	}, limit, 100*time.Millisecond)
	runs.kill()
	w.createDatabase()
	w.compareMirror()
	require.NoError(w, runs.start())
}

// compareMirror waits until the mirror has copied everything. The replications of the databases that were created are tasks
// from then on, so that they are compared with the others.
func (w *work) compareMirror() {
	known := 0
	for _, k := range w.all() {
		if strings.HasPrefix(k.name, mirrorPrefix) {
			known++
		}
	}
	assert.NotEmpty(w, w.created)
	w.awaitMirror(known + len(w.created))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.created {
		w.tasks = append(w.tasks, mirrored(s))
	}
	w.sources = append(w.sources, w.created...)
}
