//go:build fdb && fire

package fire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"

	"settee/pkg/couch/couchtest"
)

// source is a database that is replicated, and what is known of its documents.
type source struct {
	peer, database string

	mu    sync.Mutex
	acked map[string]string // the latest revision whose write was acknowledged, by document
	wrote int               // documents, acknowledged or not
}

func (s *source) String() string { return s.peer + "/" + s.database }

// known returns all that was acknowledged so far.
func (s *source) known() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.acked)
}

// task is a job.
type task struct {
	name       string
	document   string // the replicator database that has its document; empty: it is posted
	source     *source
	peer       string            // of the target, whose database has the task's name
	continuous bool              // it goes on for ever; else it completes
	before     map[string]string // what was acknowledged when a task that completes was added
}

func (k *task) target() string { return k.peer + "/" + k.name }

// between reports whether both ends of a task are CouchDBs.
func (k *task) between() bool { return k.source.peer != hosted && k.peer != hosted }

// definition is the task's document, or what is posted.
func (k *task) definition(c *cluster) string {
	text, _ := json.Marshal(map[string]any{ // strings
		"source": c.forNodes(k.source.peer, k.source.database), "target": c.forNodes(k.peer, k.name),
		"create_target": true, "continuous": k.continuous,
	})
	return string(text)
}

var replicatorDatabases = []string{"_replicator", "a/_replicator", "b/_replicator"}

// work is all that is asked of the cluster.
type work struct {
	*cluster
	random  *rand.Rand
	sources []*source

	mu     sync.Mutex
	tasks  []*task
	posted int // replications that were posted, and answered
	lies   []string
	writes int // that were acknowledged
}

// anyPeer draws a peer: seldom the cluster itself, whose frontends come and go.
func anyPeer(random *rand.Rand) string {
	return []string{couch0, couch0, couch1, couch1, hosted}[random.IntN(5)]
}

// newWork creates the sources and the replicator databases.
func newWork(c *cluster, seed uint64) *work {
	w := &work{cluster: c, random: rand.New(rand.NewPCG(seed, 1))}
	for _, name := range replicatorDatabases[1:] {
		c.must(http.MethodPut, c.forTest(hosted, url.PathEscape(name)), "", http.StatusCreated, nil)
	}
	for n := range 20 {
		s := &source{peer: []string{couch0, couch0, couch1, couch1, hosted}[n%5], database: fmt.Sprintf("source%02d", n), acked: map[string]string{}}
		c.must(http.MethodPut, c.forTest(s.peer, s.database), "", http.StatusCreated, nil)
		w.sources = append(w.sources, s)
		for range 20 {
			w.change(c.Context(), w.random, s)
		}
	}
	return w
}

// newTask draws a task.
func (w *work) newTask(random *rand.Rand, continuous bool) *task {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := &task{
		name: fmt.Sprintf("target%04d", len(w.tasks)), source: w.sources[random.IntN(len(w.sources))],
		peer: anyPeer(random), continuous: continuous,
	}
	w.tasks = append(w.tasks, k)
	return k
}

// all returns the tasks so far.
func (w *work) all() []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.tasks)
}

// change writes one document of a source: a new one, or another revision of an earlier one, or its deletion.
func (w *work) change(ctx context.Context, random *rand.Rand, s *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, rev := fmt.Sprintf("doc%05d", s.wrote), ""
	if old := slices.Sorted(maps.Keys(s.acked)); len(old) > 0 && random.IntN(4) == 0 {
		id = old[random.IntN(len(old))]
		rev = s.acked[id]
	} else {
		s.wrote++
	}
	doc := map[string]any{"number": random.IntN(1000), "text": strings.Repeat("x", random.IntN(500))}
	if rev != "" {
		doc["_rev"], doc["_deleted"] = rev, random.IntN(4) == 0
	}
	body, _ := json.Marshal(doc) // strings and numbers
	var written struct{ Rev string }
	status, err := ask(ctx, patience, http.MethodPut, w.forTest(s.peer, s.database)+"/"+id, string(body), &written)
	switch {
	case err == nil && (status == http.StatusCreated || status == http.StatusAccepted):
		s.acked[id] = written.Rev
		if doc["_deleted"] == true {
			s.acked[id] += " deleted"
		}
		w.mu.Lock()
		w.writes++
		w.mu.Unlock()
	case err == nil && status == http.StatusConflict:
		w.lie("%s does not have %s %s, which it acknowledged", s, id, rev)
		delete(s.acked, id)
	default:
		// Perhaps it was written, perhaps not: nobody may ask for it, nor write it again.
		delete(s.acked, id)
	}
}

// write writes into the sources of some peers until ctx ends, one document at a time.
func (w *work) write(ctx context.Context, random *rand.Rand, pause time.Duration, wanted func(*source) bool) {
	var own []*source
	for _, s := range w.sources {
		if wanted(s) {
			own = append(own, s)
		}
	}
	for ctx.Err() == nil {
		w.change(context.WithoutCancel(ctx), random, own[random.IntN(len(own))])
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// document adds a task as a document of a replicator database.
func (w *work) document(k *task, database string) {
	k.document, k.before = database, k.source.known()
	for deadline := time.Now().Add(limit); ; {
		var answer string
		status, err := ask(w.Context(), patience, http.MethodPut, w.forTest(hosted, url.PathEscape(database))+"/"+k.name, k.definition(w.cluster), &answer)
		switch {
		case err == nil && status == http.StatusConflict, err == nil && status == http.StatusCreated:
			return // conflict: it was written by a request that had no answer
		case err == nil:
			w.lie("the document of %s is refused: %d %s", k.name, status, answer)
			return
		case time.Now().After(deadline):
			w.lie("the document of %s: %v", k.name, err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// begin adds the continuous tasks.
func (w *work) begin(count int) {
	for n := range count {
		k := w.newTask(w.random, true)
		if n%6 == 0 {
			w.must(http.MethodPost, w.forTest(hosted, "_replicate"), k.definition(w.cluster), http.StatusAccepted, nil)
			continue
		}
		w.document(k, replicatorDatabases[n%len(replicatorDatabases)])
	}
}

// addDocuments adds tasks that complete, as documents, until ctx ends.
func (w *work) addDocuments(ctx context.Context, random *rand.Rand, pause time.Duration) {
	for n := 0; ctx.Err() == nil; n++ {
		w.document(w.newTask(random, false), replicatorDatabases[n%len(replicatorDatabases)])
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// post posts replications, and waits for each, until ctx ends.
func (w *work) post(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		if random.IntN(8) == 0 {
			w.postImpossible()
			continue
		}
		k := w.newTask(random, false)
		k.before = k.source.known()
		var answer struct {
			OK            bool
			Error, Reason string
			History       []struct {
				DocWriteFailures int `json:"doc_write_failures"`
			}
		}
		status := w.postUntilAnswered(k.definition(w.cluster), k.between(), &answer)
		switch {
		case status != http.StatusOK || !answer.OK || len(answer.History) == 0 || answer.History[0].DocWriteFailures > 0:
			w.lie("%s to %s: %d %+v", k.source, k.target(), status, answer)
		default:
			for _, lacks := range w.lacking(k) {
				w.lie("%s to %s was said to be complete: %s", k.source, k.target(), lacks)
			}
		}
	}
}

// postImpossible posts a replication whose source does not exist.
func (w *work) postImpossible() {
	nowhere := &task{name: "nowhere", source: &source{peer: couch0, database: "nowhere"}, peer: couch1}
	var answer struct{ Error string }
	if status := w.postUntilAnswered(nowhere.definition(w.cluster), true, &answer); status != http.StatusInternalServerError || answer.Error != "db_not_found" {
		w.lie("a replication of what does not exist: %d %s", status, answer.Error)
	}
}

// postUntilAnswered posts a replication, again until somebody says how it has ended. A run between CouchDBs ends well,
// or in the way it has to; one with an end at the frontends fails when these are gone for too long.
func (w *work) postUntilAnswered(definition string, steady bool, into any) (status int) {
	for deadline := time.Now().Add(2 * limit); ; {
		var text string
		status, err := ask(w.Context(), limit, http.MethodPost, w.forTest(hosted, "_replicate"), definition, &text)
		switch {
		case err == nil && !steady && status == http.StatusInternalServerError && time.Now().Before(deadline):
		case err == nil:
			w.mu.Lock()
			w.posted++
			w.mu.Unlock()
			if err := json.Unmarshal([]byte(text), into); err != nil {
				w.lie("%d %s: %v", status, text, err)
			}
			return status
		case !errors.Is(err, errNoAnswer) || time.Now().After(deadline):
			w.lie("no answer: %v", err)
			return 0
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// lie notes an answer that was not true.
func (w *work) lie(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lies = append(w.lies, fmt.Sprintf(format, args...))
}

// lacking lists what the target of a task that has completed does not have, of what was acknowledged before it was added.
func (w *work) lacking(k *task) (lacks []string) {
	var changes struct {
		Results []struct {
			ID      string
			Changes []struct{ Rev string }
		}
	}
	w.must(http.MethodGet, w.forTest(k.peer, k.name)+"/_changes?style=all_docs", "", http.StatusOK, &changes)
	has := map[string]int{}
	for _, row := range changes.Results {
		for _, change := range row.Changes {
			has[row.ID] = max(has[row.ID], generation(change.Rev))
		}
	}
	for id, rev := range k.before {
		if has[id] < generation(rev) {
			lacks = append(lacks, fmt.Sprintf("%s %s is missing", id, rev))
		}
	}
	return lacks
}

// generation is the number before the hash of a revision. No source has conflicts, so that it tells revisions of a
// document apart.
func generation(rev string) int {
	before, _, _ := strings.Cut(rev, "-")
	n, err := strconv.Atoi(before)
	if err != nil {
		panic(err) // revisions are those of the peers
	}
	return n
}

// compare waits until the continuous tasks have brought everything over, and checks that what was acknowledged is there.
func (w *work) compare() {
	want := map[*source]map[string]couchtest.Tree{}
	for _, s := range w.sources {
		trees := couchtest.Trees(w.T, w.forTest(s.peer, s.database))
		for id, rev := range s.known() {
			rev, deleted := strings.CutSuffix(rev, " deleted")
			_, there := trees[id].Leaves[rev]
			assert.True(w, there && trees[id].Deleted == deleted, "%s: %s %s was acknowledged", s, id, rev)
		}
		want[s] = trees
	}
	for _, k := range w.all() {
		if !k.continuous {
			continue
		}
		at := w.forTest(k.peer, k.name)
		assert.EventuallyWithT(w, func(t *assert.CollectT) {
			got := couchtest.Trees(w.T, at)
			missing := 0
			for id, tree := range want[k.source] {
				if !assert.ObjectsAreEqual(tree, got[id]) {
					missing++
				}
			}
			assert.Zero(t, missing, "documents of %s that %s does not have", k.source, k.target())
			assert.Len(t, got, len(want[k.source]))
		}, limit, 100*time.Millisecond)
	}
}
