package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
)

var clusterSeed = flag.Uint64("cluster.seed", 1, "the seed of what happens to the nodes of a cluster, and when")

// sources is the number of source databases. The first half does not change until the last one-shot replication has
// ended. The others, which only have continuous replications, change all the time.
const sources = 20

// expected is the expected outcome of a job.
type expected int

const (
	completes  expected = iota
	goesOn              // for ever
	crashes             // again and again
	fails               // for good
	goesOnOnce          // of the job and its twin, one goes on and the other fails
	isRemoved           // while it runs or waits, or after its end
	isRefused           // by the response to its POST
)

// task is a job of the test.
type task struct {
	name       string
	database   string // of its document; empty for a posted job
	source     int
	continuous bool
	docIDs     []string
	members    string // further members of its definition
	wants      expected
	reason     string // part of the reason why it crashes or fails
	twin       *task  // added directly after it, with the same source and target
	twinOf     *task
	id         string // replication id of a posted continuous job
	answer     chan answer
}

// answer is the response to a POST.
type answer struct {
	status int
	body   string
}

func sourceName(n int) string { return fmt.Sprintf("source-%02d", n) }

func (k *task) targetName() string {
	if k.twinOf != nil {
		return k.twinOf.targetName()
	}
	return "target-" + k.name
}

// definition returns the document or the body of the POST.
func (k *task) definition(c *cluster, more string) string {
	ids := ""
	if k.docIDs != nil {
		text, _ := json.Marshal(k.docIDs) // strings always encode
		ids = `,"doc_ids":` + string(text)
	}
	return fmt.Sprintf(`{"source":"%[1]s%[2]s","target":"%[1]s%[3]s","create_target":true,"continuous":%[4]t%[5]s%[6]s%[7]s}`,
		c.url, sourceName(k.source), k.targetName(), k.continuous, ids, k.members, more)
}

// replicatorDatabases are the databases of the documents. The last one is deleted.
var replicatorDatabases = []string{"_replicator", "a/_replicator", "b/_replicator", "doomed/_replicator"}

// tasks returns n tasks.
func (c *cluster) tasks(random *rand.Rand, count int, forbidding string) (tasks []*task) {
	for len(tasks) < count {
		n := len(tasks)
		k := &task{name: fmt.Sprintf("%04d", n), database: replicatorDatabases[n%3], source: random.IntN(sources / 2)}
		if random.IntN(3) == 0 {
			for i := range 30 {
				if random.IntN(5) == 0 {
					k.docIDs = append(k.docIDs, fmt.Sprintf("doc-%06d", i))
				}
			}
		}
		tasks = append(tasks, k)
		switch kind := n % 20; kind {
		case 10, 11:
			k.database = ""
		case 12, 13, 14, 15:
			k.live()
			if n%60 == 15 {
				k.database = ""
			}
		case 16:
			k.goWrong(n/20, forbidding)
		case 17:
			k.live()
			tasks = append(tasks, k.makeTwin(n/20))
		case 19:
			k.wants = isRemoved
			switch n / 20 % 4 {
			case 0:
				k.live()
			case 1:
				k.database = ""
				k.live()
			case 2:
				k.database = replicatorDatabases[3]
				k.live()
			}
			k.wants = isRemoved
		}
	}
	return tasks
}

// goesOn reports whether a task or its twin goes on for ever.
func (k *task) goesOn() bool { return k.wants == goesOn || k.wants == goesOnOnce && k.twin != nil }

// live makes a task continuous.
func (k *task) live() {
	k.continuous, k.docIDs, k.wants = true, nil, goesOn
	k.source += sources / 2
}

// goWrong makes a task fail or crash.
func (k *task) goWrong(which int, forbidding string) {
	k.wants = crashes
	switch which % 4 {
	case 0:
		k.source, k.reason = 99, "db_not_found: could not open"
	case 1:
		k.members, k.reason = fmt.Sprintf(`,"source":%q`, forbidding), "not for you"
	case 2:
		k.database, k.wants = "", fails
		k.source, k.reason = 99, "could not open"
	case 3:
		// The nodes have stricter settings than the frontend.
		k.members, k.reason, k.wants = `,"proxy":"socks5://127.0.0.1:1/"`, "proxy", fails
	}
}

// makeTwin makes a second task with the same replication id.
func (k *task) makeTwin(which int) *task {
	twin := &task{name: k.name + "-twin", database: "b/_replicator", source: k.source, continuous: true, twinOf: k}
	k.twin = twin
	switch which % 3 {
	case 0:
		k.database = "a/_replicator"
		k.wants, twin.wants = goesOnOnce, goesOnOnce
		twin.reason = "already started"
	case 1:
		k.database = "" // a document's job would wait until the transient one has gone, which does not happen
		twin.wants, twin.reason = crashes, "already running as transient"
	case 2:
		twin.database, twin.wants = "", isRefused
	}
	return twin
}

// add adds tasks: first the posted ones, then documents, all of a database at once, and last those that are refused
// because of the others.
func (c *cluster) add(tasks []*task) {
	c.Helper()
	documents := map[string][]json.RawMessage{}
	var refused []*task
	for _, k := range tasks {
		switch {
		case k.database != "":
			id := fmt.Sprintf(`,"_id":%q`, k.name)
			documents[k.database] = append(documents[k.database], json.RawMessage(k.definition(c, id)))
		case k.wants == isRefused:
			refused = append(refused, k)
		case k.continuous:
			var accepted struct {
				LocalID string `json:"_local_id"`
			}
			c.exchange(http.MethodPost, "_replicate", k.definition(c, ""), http.StatusAccepted, &accepted)
			k.id = accepted.LocalID
		default:
			k.answer = make(chan answer, 1)
			go func() { k.answer <- c.post(k.definition(c, "")) }()
		}
	}
	for name, docs := range documents {
		body, err := json.Marshal(map[string]any{"docs": docs})
		require.NoError(c, err)
		var written []struct {
			OK    bool
			Error string
		}
		repeated := c.exchange(http.MethodPost, url.PathEscape(name)+"/_bulk_docs", string(body), http.StatusCreated, &written)
		require.Len(c, written, len(docs))
		for _, w := range written { // a conflict, if an attempt without an answer has written it
			require.True(c, w.OK || repeated && w.Error == "conflict", w.Error)
		}
	}
	for _, k := range refused {
		c.exchange(http.MethodPost, "_replicate", k.definition(c, ""), http.StatusConflict, nil)
	}
}

// exchange makes a request to the frontend, and reads the response. It repeats a request that the store does not answer in
// time.
func (c *cluster) exchange(method, path, body string, status int, into any) (repeated bool) {
	c.Helper()
	got, text := request(c.T, method, c.url+path, body)
	for ; got == http.StatusServiceUnavailable && c.Context().Err() == nil; repeated = true {
		got, text = request(c.T, method, c.url+path, body)
	}
	require.Equal(c, status, got, text)
	if into != nil {
		require.NoError(c, json.Unmarshal([]byte(text), into))
	}
	return repeated
}

// post posts a one-shot replication and waits for its end.
func (c *cluster) post(definition string) answer {
	response, err := http.Post(c.url+"_replicate", "application/json", strings.NewReader(definition))
	if err != nil {
		return answer{body: err.Error()}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	return answer{response.StatusCode, string(body)}
}

// path returns the path of a task's document.
func (k *task) path() string { return url.PathEscape(k.database) + "/" + k.name }

// remove deletes a task's document, or cancels a posted task.
func (c *cluster) remove(k *task) {
	c.Helper()
	if k.database == "" { // posted and continuous
		c.exchange(http.MethodPost, "_replicate", k.definition(c, `,"cancel":true`), http.StatusOK, nil)
		return
	}
	for {
		var doc struct {
			Rev string `json:"_rev"`
		}
		c.exchange(http.MethodGet, k.path(), "", http.StatusOK, &doc)
		status, body := request(c.T, http.MethodDelete, c.url+k.path()+"?rev="+doc.Rev, "")
		if status == http.StatusOK {
			return
		}
		require.Equal(c, http.StatusConflict, status, body) // the job has just changed the document
	}
}

// listed is a job in _scheduler/docs or _scheduler/jobs.
type listedJob struct {
	ID       string           `json:"id"`
	DocID    string           `json:"doc_id"`
	Database string           `json:"database"`
	State    replicator.State `json:"state"`
	Info     struct {
		Error string `json:"error"`
	} `json:"info"`
}

// list reads all pages of a list.
func (c *cluster) list(path string) (all []listedJob, total int) {
	c.Helper()
	for start := ""; ; {
		var page struct {
			TotalRows  int `json:"total_rows"`
			Docs, Jobs []listedJob
			Next       string `json:"next_start_key"`
		}
		c.exchange(http.MethodGet, path+"?limit=300&start_key="+url.QueryEscape(start), "", http.StatusOK, &page)
		all = slices.Concat(all, page.Docs, page.Jobs)
		if start = page.Next; start == "" {
			return all, page.TotalRows
		}
	}
}

// unlike lists the tasks whose jobs do not have the expected final state.
func (c *cluster) unlike(tasks []*task) (unlike []string) {
	c.Helper()
	found := map[string]listedJob{}
	docs, _ := c.list("_scheduler/docs")
	for _, doc := range docs {
		found[doc.Database+" "+doc.DocID] = doc
	}
	live, _ := c.list("_scheduler/jobs")
	for _, job := range live {
		if job.Database == "" {
			found[job.ID] = job
		}
	}
	for _, k := range tasks {
		job := found[k.database+" "+k.name]
		if k.database == "" {
			job = found[k.id]
		}
		if what := k.judge(job, found); what != "" {
			unlike = append(unlike, fmt.Sprintf("%s %s: %s, and is %s (%s)", k.database, k.name, what, job.State, job.Info.Error))
		}
	}
	return unlike
}

// judge returns what a job's state should be, or "" if it is as expected.
func (k *task) judge(job listedJob, found map[string]listedJob) string {
	state := job.State
	running := state == replicator.StateRunning
	switch k.wants {
	case completes:
		if k.database != "" && state != replicator.StateCompleted {
			return "is to complete"
		}
	case goesOn:
		if !running {
			return "is to run"
		}
	case crashes:
		if state != replicator.StateCrashing || !strings.Contains(job.Info.Error, k.reason) {
			return "is to crash with " + k.reason
		}
	case fails:
		if k.database != "" && (state != replicator.StateFailed || !strings.Contains(job.Info.Error, k.reason)) {
			return "is to fail with " + k.reason
		}
	case goesOnOnce:
		if k.twin == nil {
			break // the twin is judged
		}
		other := found[k.twin.database+" "+k.twin.name]
		if other.State == replicator.StateRunning {
			other, running = job, true
		}
		if !running || other.State != replicator.StateFailed || !strings.Contains(other.Info.Error, k.twin.reason) {
			return "is to run, or else its twin, which is " + string(other.State)
		}
	case isRemoved:
		if state != "" {
			return "is removed"
		}
	}
	return ""
}

// trees are the documents of a database by id.
type trees map[string]couchtest.Tree

func (c *cluster) trees(t *testing.T, name string) trees { return couchtest.Trees(t, c.url+name) }

// of returns the documents that a task replicates.
func (t trees) of(k *task) trees {
	if k.docIDs == nil {
		return t
	}
	t = maps.Clone(t)
	maps.DeleteFunc(t, func(id string, _ couchtest.Tree) bool { return !slices.Contains(k.docIDs, id) })
	return t
}

// createDatabases creates the sources and the replicator databases.
func (c *cluster) createDatabases() {
	for _, name := range replicatorDatabases[1:] {
		c.exchange(http.MethodPut, url.PathEscape(name), "", http.StatusCreated, nil)
	}
	for n := range sources {
		c.exchange(http.MethodPut, sourceName(n), "", http.StatusCreated, nil)
		couchtest.Populate(c.T, c.url+sourceName(n), couchtest.Population{
			Seed: uint64(n), Docs: 30, Conflicted: 4, Deleted: 3, Attachments: couchtest.Sizes(uint64(n), 3, 50_000),
		})
	}
}

// change adds leaves and documents to the sources that change.
func (c *cluster) change(random *rand.Rand) {
	for n := sources / 2; n < sources; n++ {
		if random.IntN(2) == 0 {
			couchtest.Populate(c.T, c.url+sourceName(n), couchtest.Population{
				Seed: random.Uint64(), Docs: 1 + random.IntN(8), Conflicted: 1,
			})
		}
	}
}

// A thousand jobs run on three nodes, which are killed, replaced and cut off from the store meanwhile, while the store
// has faults of its own. At the end all targets are complete, and all jobs have their expected states.
func TestNodesComeAndGo(t *testing.T) {
	testkit.SkipShort(t)
	t.Parallel()
	const count, drops = 250, 6
	random := rand.New(rand.NewPCG(*clusterSeed, 0))
	c := newCluster(t,
		"replicator/max_jobs=130", "replicator/max_acceptors=5",
		"replicator/valid_proxy_protocols=http", "replicator/http_connections=4", "replicator/worker_processes=1",
		"replicator/worker_batch_size=10", "replicator/checkpoint_interval=500", "replicator/retries_per_request=3",
		"replicator/min_backoff_penalty_sec=8", "replicator/max_backoff_penalty_sec=30")
	defer c.end()
	forbidding := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"error":"forbidden","reason":"not for you"}`)
	}))
	defer forbidding.Close()
	c.createDatabases()
	tasks := c.tasks(random, count, forbidding.URL+"/db")
	defer c.stop()
	defer func() { t.Logf("the nodes, %d in all, said:\n%s", c.started, c.log) }()

	ctx, cancel := context.WithCancel(t.Context())
	var disturbing sync.WaitGroup
	defer disturbing.Wait()
	defer cancel()
	for range 3 {
		c.start()
	}
	disturbing.Go(func() { c.disturb(ctx, rand.New(rand.NewPCG(*clusterSeed, 1)), drops, count/4) })

	began := time.Now()
	still := c.submit(random, tasks)
	t.Logf("%d jobs were added in %s", len(tasks), time.Since(began))
	disturbing.Wait()
	t.Logf("the nodes are left alone after %s", time.Since(began))
	c.awaitAll(tasks)
	t.Logf("all are as they should be after %s", time.Since(began))
	c.compare(tasks, still)
	t.Logf("all targets are complete after %s", time.Since(began))
	known := c.log.leftBehind()
	c.stop()
	c.checkEnd(tasks, c.log.leftBehind()-known)
}

// submit adds the tasks in several waves, and removes some tasks of earlier waves. It returns the contents of the
// sources that do not change.
func (c *cluster) submit(random *rand.Rand, tasks []*task) (still []trees) {
	for n := range sources / 2 {
		still = append(still, c.trees(c.T, sourceName(n)))
	}
	order := random.Perm(len(tasks))
	waves := slices.Collect(slices.Chunk(order, len(tasks)/10+1))
	var removed []*task
	for n, wave := range waves {
		var added []*task
		for _, i := range wave {
			k := tasks[i]
			if k.twinOf == nil {
				added = append(added, k)
			}
			if k.twin != nil {
				added = append(added, k.twin)
			}
			if k.wants == isRemoved && k.database != replicatorDatabases[3] {
				removed = append(removed, k)
			}
		}
		c.add(added)
		c.change(random)
		c.ledger.await(c.Context(), len(wave))
		for len(removed) > 0 && (n == len(waves)-1 || random.IntN(4) > 0) {
			c.remove(removed[0])
			removed = removed[1:]
		}
	}
	c.exchange(http.MethodDelete, url.PathEscape(replicatorDatabases[3]), "", http.StatusOK, nil)
	c.change(random)
	return still
}

// awaitAll waits until all jobs have their expected states.
func (c *cluster) awaitAll(tasks []*task) {
	for _, k := range tasks {
		if k.answer == nil {
			continue
		}
		select {
		case said := <-k.answer:
			if k.wants == fails {
				assert.Equal(c, http.StatusInternalServerError, said.status, said.body)
				assert.Contains(c, said.body, k.reason)
			} else {
				assert.Equal(c, http.StatusOK, said.status, said.body)
			}
		case <-time.After(limit):
			require.Fail(c, "a transient replication has not ended", k.name)
		}
	}
	var unlike []string
	if !assert.Eventually(c, func() bool {
		unlike = c.unlike(tasks)
		return len(unlike) == 0
	}, limit, 200*time.Millisecond) {
		require.Fail(c, "jobs are not as they should be", strings.Join(unlike[:min(20, len(unlike))], "\n"))
	}
	live := 0
	for _, k := range tasks {
		if k.goesOn() {
			live++
		}
	}
	// Removed jobs no longer read changes.
	assert.Eventually(c, func() bool { return c.feeds.Load() == int64(live) }, limit, 10*time.Millisecond, "%d jobs", live)
	// Crashing jobs are also active during each attempt.
	assert.Eventually(c, func() bool {
		var active []json.RawMessage
		c.exchange(http.MethodGet, "_active_tasks", "", http.StatusOK, &active)
		return len(active) == live
	}, limit, 10*time.Millisecond, "%d jobs", live)
}

// compare compares targets and sources, those of continuous replications after one more document has arrived.
func (c *cluster) compare(tasks []*task, still []trees) {
	for n := range sources {
		c.exchange(http.MethodPut, sourceName(n)+"/late", "{}", http.StatusCreated, nil)
	}
	const shares = 4
	c.Run("targets", func(t *testing.T) {
		for share := range shares {
			t.Run(fmt.Sprint(share), func(t *testing.T) {
				t.Parallel()
				for i := share; i < len(tasks); i += shares {
					switch k := tasks[i]; {
					case k.wants == completes:
						require.Equal(t, still[k.source].of(k), c.trees(t, k.targetName()), k.name)
					case k.goesOn():
						// The documents of a batch do not arrive in their order.
						couchtest.AwaitSameTrees(t, c.url+sourceName(k.source), c.url+k.targetName(), limit)
					}
				}
			})
		}
	})
}

// checkEnd checks the store after all nodes have stopped. leftBehind is the maximum number of jobs that the nodes could
// not put back in time.
func (c *cluster) checkEnd(tasks []*task, leftBehind int) {
	for _, k := range tasks {
		switch {
		case k.wants == isRemoved && k.continuous:
			ask(c.T, http.StatusNotFound, http.MethodGet, c.url+k.targetName()+"/late", "")
		case k.wants == completes && k.database != "", k.wants == fails && k.database != "":
			c.checkDocument(k)
		}
	}
	live, total := c.list("_scheduler/jobs")
	assert.Len(c, live, total)
	var running []string
	for _, job := range live {
		if job.State == replicator.StateRunning {
			running = append(running, job.ID)
		}
	}
	assert.LessOrEqual(c, len(running), leftBehind, running)
	ask(c.T, http.StatusNotFound, http.MethodGet, c.url+"_scheduler/docs/"+url.PathEscape(replicatorDatabases[3]), "")

	histories, err := c.ledger.read(c.Context(), c.db)
	require.NoError(c, err)
	runs := 0
	for id, h := range histories {
		runs += len(h.runs)
		assert.Empty(c, h.faults, "%s\n%s", id, strings.Join(h.trail, "\n"))
	}
	c.Logf("%d jobs ran %d times", len(histories), runs)
}

// checkDocument checks that a document records how its replication ended.
func (c *cluster) checkDocument(k *task) {
	var doc struct {
		State  string `json:"_replication_state"`
		Reason string `json:"_replication_state_reason"`
	}
	c.exchange(http.MethodGet, k.path(), "", http.StatusOK, &doc)
	if k.wants == completes {
		assert.Equal(c, "completed", doc.State, k.name)
		return
	}
	assert.Equal(c, "failed", doc.State, k.name)
	assert.Contains(c, doc.Reason, k.reason, k.name)
}
