//go:build fdb && fire

package fire

import (
	"context"
	"encoding/base64"
	"flag"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/replicator"
)

var (
	seed   = flag.Uint64("fire.seed", 1, "the seed of the faults and of the work")
	length = flag.Duration("fire.time", 90*time.Second, "how long the cluster is under fire")
	logs   = flag.String("fire.logs", "", "an existing directory where the logs of the nodes stay")
	count  = flag.Int("fire.jobs", 220, "how many continuous jobs there are")
)

func TestUnderFire(t *testing.T) {
	faults := plan(*seed, *length)
	l := disturbed(t, (*cluster).build, func(l *observer) {
		t.Logf("the plan, from %s on:", time.Now().Format(time.TimeOnly))
		for _, b := range faults {
			t.Log(b)
		}
		l.execute(faults)
	}, (*work).killMirror)
	for peer := range l.ports {
		assert.NotZero(t, l.parks[peer], "jobs with a source at %s that were parked", peer)
		assert.NotZero(t, l.wakes[peer], "jobs with a source at %s that ran again after they were parked", peer)
	}
	t.Logf("%d faults", len(faults))
}

// disturbed gives a cluster of nodes of one settee all its work, lets disturb do something to it meanwhile, and checks what
// has to hold whatever that was. completeMirror waits until the mirror has copied all databases.
func disturbed(t *testing.T, build func(*cluster) string, disturb func(*observer), completeMirror func(*work, *observer)) *observer {
	began := time.Now()
	stage := func(name string) { t.Logf("%5.1f s: %s", time.Since(began).Seconds(), name) }
	t.Logf("seed %d", *seed)
	c := newCluster(t, build)
	stage("all servers and nodes run")
	w := newWork(c, *seed)
	w.begin(*count)
	w.mirror()
	stage("the continuous jobs were added, and a mirror has copied its databases")

	watching, endWatch := context.WithCancel(t.Context())
	l := &observer{cluster: c, work: w}
	var looking sync.WaitGroup
	looking.Go(func() { l.watch(watching) })
	defer looking.Wait()
	defer endWatch()
	w.awaitRunning(l)
	stage("they run")

	working, endWork := context.WithCancel(t.Context())
	var at sync.WaitGroup
	defer at.Wait()
	defer endWork()
	random := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(*seed, 10+n)) }
	write := func(n uint64, between time.Duration, quiet, atFrontends bool) {
		at.Go(func() {
			w.write(working, random(n), between, func(s *source) bool { return s.quiet == quiet && (s.peer == hosted) == atFrontends })
		})
	}
	write(0, 100*time.Millisecond, false, false)
	write(1, 300*time.Millisecond, false, true)
	write(6, 400*time.Millisecond, true, false)
	write(7, 1500*time.Millisecond, true, true)
	at.Go(func() { w.addDocuments(working, random(2), time.Second) })
	h := newHistory(w)
	for n := range registerClients {
		at.Go(func() { h.client(working, n, random(20+uint64(n))) })
	}
	at.Go(func() { h.lifecycles(working, random(30)) })
	at.Go(func() { w.createDatabases(working, 2*time.Second) })
	for n := range uint64(3) {
		at.Go(func() { w.post(working, random(3+n)) })
	}
	at.Go(func() { w.keepSession(working) })
	disturb(l)
	stage("the fire has ended")
	endWork()
	at.Wait()
	stage("all clients have their answers")
	completeMirror(w, l)
	stage("the mirror has copied all databases")
	w.awaitRunning(l)
	w.compare()
	stage("all continuous jobs run or are parked, and their targets are complete")
	w.awaitCompleted()
	stage("all one-shot jobs have completed, truthfully")
	endWatch()
	looking.Wait()

	h.check(random(40))
	w.checkLists()
	assert.Empty(t, w.wrongAnswers)
	assert.Empty(t, l.reports(), "jobs without a healthy process")
	assert.Empty(t, l.dead, "nodes that exited by themselves")
	assert.Empty(t, l.lateWrites(c.recorder.writes))
	for _, n := range c.nodes {
		require.NoError(t, n.terminate())
	}
	w.checkLogs()
	c.checkStore()
	stage("done")
	t.Logf("%d jobs, of which %v were parked and %v woken; %d replications posted, %d writes acknowledged; %d writes of jobs recorded; a job was without a healthy process for %s at most, and of %d samples of the store %d were not prompt, and %d had no free slot; %d writes of a thawed process came after another one had taken the job",
		len(w.all()), l.parks, l.wakes, w.posted, w.writes, len(c.recorder.writes), l.worst, len(l.samples), len(l.slow), l.full, l.swept)
	return l
}

// awaitRunning waits until all continuous tasks run, or are parked.
func (w *work) awaitRunning(l *observer) {
	assert.EventuallyWithT(w, func(t *assert.CollectT) {
		now, err := l.take(w.Context())
		if !assert.NoError(t, err) {
			return
		}
		for _, k := range w.all() {
			if _, runs := now.runs[k.name]; k.continuous && !runs && !now.parked[k.name] {
				assert.Fail(t, "does not run", "%s from %s", k.target(), k.source)
			}
		}
	}, limit, 200*time.Millisecond)
}

// awaitCompleted waits for the documents of tasks that complete, and compares their targets.
func (w *work) awaitCompleted() {
	for _, k := range w.all() {
		if k.continuous || k.document == "" {
			continue
		}
		var doc struct {
			State  replicator.State `json:"_replication_state"`
			Reason string           `json:"_replication_state_reason"`
		}
		require.Eventually(w, func() bool {
			w.must(http.MethodGet, w.forTest(hosted, url.PathEscape(k.document))+"/"+k.name, "", http.StatusOK, &doc)
			return doc.State != ""
		}, limit, 50*time.Millisecond, "%s in %s", k.name, k.document)
		assert.Equal(w, replicator.StateCompleted, doc.State, "%s: %s", k.name, doc.Reason)
		if !assert.Empty(w, w.lacking(k), "%s to %s has completed", k.source, k.target()) {
			w.explain(k.name)
		}
	}
}

// explain logs what the nodes logged about a task or a replication.
func (w *work) explain(name string) {
	for _, path := range w.logged() {
		text, _ := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, name) {
				w.Logf("%s: %s", filepath.Base(path), line)
			}
		}
	}
}

// listed is a row of _scheduler/docs or _scheduler/jobs.
type listed struct {
	Database  string
	DocID     string `json:"doc_id"`
	Target    string
	State     replicator.State
	Condition replicator.Condition
}

// checkLists checks that each job is listed once, and that lists and documents agree.
func (w *work) checkLists() {
	var docs struct {
		Total int `json:"total_rows"`
		Docs  []listed
	}
	w.must(http.MethodGet, w.forTest(hosted, "_scheduler/docs")+"?limit=1000", "", http.StatusOK, &docs)
	var live struct {
		Total int `json:"total_rows"`
		Jobs  []listed
	}
	w.must(http.MethodGet, w.forTest(hosted, "_scheduler/jobs")+"?limit=1000", "", http.StatusOK, &live)
	states, times := map[string]replicator.State{}, map[string]int{}
	for _, doc := range docs.Docs {
		if doc.Condition.State == replicator.ShownParked {
			doc.State = replicator.StateRunning
		}
		states[doc.Database+" "+doc.DocID] = doc.State
		times[doc.Database+" "+doc.DocID]++
	}
	running := map[string]int{}
	for _, job := range live.Jobs {
		running[targetOf(job.Target)]++
	}
	documents, continuous := 1, 1 // the mirror's
	for _, k := range w.all() {
		if k.continuous {
			continuous++
			assert.Equal(w, 1, running[k.name], "%s in _scheduler/jobs", k.name)
		} else {
			assert.Zero(w, running[k.name], "%s in _scheduler/jobs", k.name)
		}
		if k.document == "" {
			continue
		}
		documents++
		row := k.document + " " + k.name
		assert.Equal(w, 1, times[row], "%s in _scheduler/docs", row)
		var doc struct {
			State replicator.State `json:"_replication_state"`
		}
		w.must(http.MethodGet, w.forTest(hosted, url.PathEscape(k.document))+"/"+k.name, "", http.StatusOK, &doc)
		if k.continuous {
			assert.Equal(w, replicator.StateRunning, states[row], row)
			assert.Empty(w, doc.State, row)
		} else {
			assert.Equal(w, doc.State, states[row], row)
		}
	}
	assert.Equal(w, documents, docs.Total)
	assert.Len(w, docs.Docs, docs.Total)
	assert.Equal(w, continuous, live.Total)
	counts, err := w.jobs.Lists.Counts(w.Context())
	require.NoError(w, err)
	left := int64(0)
	for state, n := range counts.Jobs {
		if !state.Ended() {
			left += n
		}
	}
	assert.EqualValues(w, continuous, left, counts)
}

// checkLogs checks that no log contains a credential, and that no node panicked.
func (w *work) checkLogs() {
	secrets := map[string]bool{}
	add := func(name, password string) {
		secrets[password] = true
		secrets[base64.StdEncoding.EncodeToString([]byte(name+":"+password))] = true
	}
	add(adminName, w.password)
	for _, couch := range w.couches {
		add(couch.Username, couch.Password)
	}
	for cookie := range w.recorder.cookies {
		secrets[cookie] = true
	}
	for _, path := range w.logged() {
		text, err := os.ReadFile(path)
		require.NoError(w, err)
		for line := range strings.Lines(string(text)) {
			for secret := range secrets {
				assert.NotContains(w, line, secret, path)
			}
			assert.NotContains(w, line, "goroutine ", path)
		}
	}
}
