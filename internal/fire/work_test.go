//go:build fdb && fire

package fire

import (
	"context"
	"encoding/json"
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

// source is a database that is replicated, and its known documents.
type source struct {
	peer, database string
	quiet          bool // changes seldom, so that its jobs are parked between two changes

	mu    sync.Mutex
	acked map[string]string // the latest acknowledged revision, by document
	wrote int               // number of documents, acknowledged or not
}

func (s *source) String() string { return s.peer + "/" + s.database }

// known returns all acknowledged revisions so far.
func (s *source) known() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.acked)
}

// task is a replication that the test asks for.
type task struct {
	name       string
	document   string // the replicator database of its document; empty for a POST
	source     *source
	peer       string            // of the target, a database with the task's name
	continuous bool              // otherwise it completes
	before     map[string]string // the acknowledged revisions when it was added
}

func (k *task) target() string { return k.peer + "/" + k.name }

// between reports whether both ends of a task are CouchDBs.
func (k *task) between() bool { return k.source.peer != hosted && k.peer != hosted }

// definition returns the task's document, or the body of its POST.
func (k *task) definition(c *cluster) string {
	text, _ := json.Marshal(map[string]any{ // strings
		"source": c.forNodes(k.source.peer, k.source.database), "target": c.forNodes(k.peer, k.name),
		"create_target": true, "continuous": k.continuous,
	})
	return string(text)
}

var replicatorDatabases = []string{"_replicator", "a/_replicator", "b/_replicator"}

// work is the load on the cluster.
type work struct {
	*cluster
	random  *rand.Rand
	sources []*source
	created []*source // for the mirror, during the fire

	mu           sync.Mutex
	tasks        []*task
	posted       int // replications that were posted and got a response
	wrongAnswers []string
	writes       int // acknowledged writes
}

// anyPeer draws a peer, seldom the cluster itself, whose frontends come and go.
func anyPeer(random *rand.Rand) string {
	return []string{couch0, couch0, couch1, couch1, hosted}[random.IntN(5)]
}

// busySources and quietSources are how many sources there are.
const busySources, quietSources = 20, 40

// newWork creates the sources and the replicator databases.
func newWork(c *cluster, seed uint64) *work {
	w := &work{cluster: c, random: rand.New(rand.NewPCG(seed, 1))}
	for _, name := range replicatorDatabases[1:] {
		c.must(http.MethodPut, c.forTest(hosted, url.PathEscape(name)), "", http.StatusCreated, nil)
	}
	// The nodes learn of the changes of couch0 from its _db_updates, for which a CouchDB needs this
	// database. They ask couch1.
	c.must(http.MethodPut, c.forTest(couch0, "_global_changes"), "", http.StatusCreated, nil)
	for n := range busySources + quietSources {
		s := &source{peer: []string{couch0, couch0, couch1, couch1, hosted}[n%5], database: fmt.Sprintf("source%02d", n), acked: map[string]string{},
			quiet: n >= busySources}
		c.must(http.MethodPut, c.forTest(s.peer, s.database), "", http.StatusCreated, nil)
		w.sources = append(w.sources, s)
		first := 20
		if s.quiet {
			first = 2
		}
		for range first {
			w.change(c.Context(), w.random, s)
		}
	}
	return w
}

// newTask draws a task with a quiet source or another one.
func (w *work) newTask(random *rand.Rand, quiet, continuous bool) *task {
	from := w.sources[:busySources]
	if quiet {
		from = w.sources[busySources:]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := &task{
		name: fmt.Sprintf("target%04d", len(w.tasks)), source: from[random.IntN(len(from))],
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

// change writes a random document of a source: a new one, or a new revision or the deletion of an
// old one.
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
	body, _ := json.Marshal(doc) // of strings and numbers
	status, answer, err := ask(ctx, patience, http.MethodPut, w.forTest(s.peer, s.database)+"/"+id, string(body))
	var written struct{ Rev string }
	switch {
	case err == nil && (status == http.StatusCreated || status == http.StatusAccepted) && json.Unmarshal([]byte(answer), &written) == nil:
		s.acked[id] = written.Rev
		if doc["_deleted"] == true {
			s.acked[id] += " deleted"
		}
		w.mu.Lock()
		w.writes++
		w.mu.Unlock()
	case err == nil && status == http.StatusConflict:
		w.wrongAnswer("%s does not have %s %s, which it acknowledged", s, id, rev)
		delete(s.acked, id)
	default:
		// It is unknown whether the document was written, so it is neither checked nor written
		// again.
		delete(s.acked, id)
	}
}

// write writes to the sources of some peers until ctx ends, one document at a time.
func (w *work) write(ctx context.Context, random *rand.Rand, between time.Duration, wanted func(*source) bool) {
	var own []*source
	for _, s := range w.sources {
		if wanted(s) {
			own = append(own, s)
		}
	}
	for ctx.Err() == nil {
		w.change(context.WithoutCancel(ctx), random, own[random.IntN(len(own))])
		pause(ctx, between)
	}
}

// document adds a task as a document of a replicator database.
func (w *work) document(k *task, database string) {
	k.document, k.before = database, k.source.known()
	at := w.forTest(hosted, url.PathEscape(database)) + "/" + k.name
	status, answer, err := askAgain(w.Context(), patience, http.MethodPut, at, k.definition(w.cluster), anyAnswer)
	// A conflict means that an attempt without a response has written it.
	if err != nil || status != http.StatusCreated && status != http.StatusConflict {
		w.wrongAnswer("the document of %s is refused: %d %s, %v", k.name, status, answer, err)
	}
}

// begin adds the continuous tasks. Five of seven have quiet sources.
func (w *work) begin(count int) {
	var adding sync.WaitGroup
	defer adding.Wait()
	places := make(chan struct{}, 8)
	for n := range count {
		k := w.newTask(w.random, n%7 > 1, true)
		if n%6 == 0 {
			w.must(http.MethodPost, w.forTest(hosted, "_replicate"), k.definition(w.cluster), http.StatusAccepted, nil)
			continue
		}
		places <- struct{}{}
		adding.Go(func() {
			defer func() { <-places }()
			w.document(k, replicatorDatabases[n%len(replicatorDatabases)])
		})
	}
}

// addDocuments adds tasks that complete, as documents, until ctx ends.
func (w *work) addDocuments(ctx context.Context, random *rand.Rand, between time.Duration) {
	for n := 0; ctx.Err() == nil; n++ {
		w.document(w.newTask(random, false, false), replicatorDatabases[n%len(replicatorDatabases)])
		pause(ctx, between)
	}
}

// post posts replications one after another until ctx ends.
func (w *work) post(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		if random.IntN(8) == 0 {
			w.postImpossible()
			continue
		}
		k := w.newTask(random, false, false)
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
			w.wrongAnswer("%s to %s: %d %+v", k.source, k.target(), status, answer)
		default:
			for _, lacks := range w.lacking(k) {
				w.wrongAnswer("%s to %s was reported complete: %s", k.source, k.target(), lacks)
			}
		}
	}
}

// postImpossible posts a replication whose source does not exist.
func (w *work) postImpossible() {
	nowhere := &task{name: "nowhere", source: &source{peer: couch0, database: "nowhere"}, peer: couch1}
	var answer struct{ Error string }
	if status := w.postUntilAnswered(nowhere.definition(w.cluster), true, &answer); status != http.StatusInternalServerError || answer.Error != "db_not_found" {
		w.wrongAnswer("a replication of a missing database: %d %s", status, answer.Error)
	}
}

// postUntilAnswered posts a replication until a response says how it has ended. A run between
// CouchDBs ends as expected; one with a database at the frontends may fail because they are gone,
// and is posted again.
func (w *work) postUntilAnswered(definition string, steady bool, into any) (status int) {
	status, answer, err := askAgain(w.Context(), limit, http.MethodPost, w.forTest(hosted, "_replicate"), definition, func(status int) bool {
		return !steady && status == http.StatusInternalServerError
	})
	if err != nil {
		w.wrongAnswer("%v", err)
		return 0
	}
	w.mu.Lock()
	w.posted++
	w.mu.Unlock()
	if err := json.Unmarshal([]byte(answer), into); err != nil {
		w.wrongAnswer("%d %s: %v", status, answer, err)
	}
	return status
}

// wrongAnswer records a response that was not true.
func (w *work) wrongAnswer(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrongAnswers = append(w.wrongAnswers, fmt.Sprintf(format, args...))
}

// lacking returns the acknowledged documents that the target of a completed task lacks.
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

// generation returns the number at the start of a revision. Sources have no conflicts, so it
// identifies the revisions of a document.
func generation(rev string) int {
	before, _, _ := strings.Cut(rev, "-")
	n, err := strconv.Atoi(before)
	if err != nil {
		panic(err) // all revisions come from the peers
	}
	return n
}

// compare waits until the continuous tasks have copied everything, and checks the acknowledged
// documents.
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
	behind := w.all()
	for deadline := time.Now().Add(limit); ; pause(w.Context(), 100*time.Millisecond) {
		if behind = w.behind(behind, want); len(behind) == 0 {
			break
		} else if time.Now().After(deadline) {
			for _, k := range behind {
				w.explain(k.name)
				w.Errorf("%s lacks changes of %s", k.target(), k.source)
			}
			w.FailNow()
		}
	}
	for _, k := range w.all() {
		if k.continuous {
			assert.Equal(w, want[k.source], couchtest.Trees(w.T, w.forTest(k.peer, k.name)), "%s and %s", k.source, k.target())
		}
	}
}

// behind returns those of some tasks that are continuous and whose targets do not have the same leaves
// as their sources.
func (w *work) behind(some []*task, want map[*source]map[string]couchtest.Tree) (behind []*task) {
	for _, k := range some {
		if k.continuous && !maps.EqualFunc(want[k.source], couchtest.Leaves(w, w.forTest(k.peer, k.name)), func(tree couchtest.Tree, leaves []string) bool {
			return slices.Equal(slices.Sorted(maps.Keys(tree.Leaves)), leaves)
		}) {
			behind = append(behind, k)
		}
	}
	return behind
}
