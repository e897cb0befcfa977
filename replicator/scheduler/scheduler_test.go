package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/couch/couchtest"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/kvtest"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
	"settee/replicator/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, kvtest.NetworkThread) }

// limit is the timeout of waits in tests.
const limit = 2 * time.Minute

// cluster is a store with its nodes.
type cluster struct {
	t   *testing.T
	db  kv.Database
	log *testkit.Journal
	// timeout is the activity timeout of the stores that open opens.
	timeout time.Duration
	// open opens the store as another process would.
	open func(jobs.Options) *jobs.Store
	// documents opens the store's databases, without faults.
	documents func(docstore.Hooks) *docstore.Store
}

func newCluster(t *testing.T) *cluster {
	db := enginetest.ClusterOr(t, enginetest.Memory)
	var processes atomic.Uint64
	documents := func(hooks docstore.Hooks) *docstore.Store {
		return docstore.Open(db, docsPrefix, docstore.Options{Hooks: hooks})
	}
	c := &cluster{t: t, db: db, documents: documents, log: new(testkit.Journal)}
	c.open = func(opts jobs.Options) *jobs.Store {
		faulty := faultkv.Wrap(db, faultkv.Options{Seed: processes.Add(1), Rates: faultkv.Rates{
			faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.1, faultkv.UnknownNotCommitted: 0.05,
			faultkv.TooOld: 0.01, faultkv.Delay: 0.05, faultkv.SpuriousWatch: 0.1,
		}})
		layer := fdbjobs.Open(faulty, []byte("jobs"), fdbjobs.Options{Timeout: c.timeout, Derive: jobs.Derivations()})
		t.Cleanup(layer.Close)
		store, err := jobs.Open(t.Context(), faulty, layer, opts)
		require.NoError(t, err)
		return store
	}
	return c
}

// node is a process: its store and its job server.
type node struct {
	*cluster
	jobs   *jobs.Store
	server *scheduler.Server
	drop   context.CancelFunc // kills the node
	ended  chan error
}

// start adds a node, which is dropped at the end of the test at the latest.
func (c *cluster) start(name string, sets ...string) *node {
	n := c.join()
	cfg, _, err := config.Load(config.Options{Flags: sets})
	require.NoError(c.t, err)
	n.server = scheduler.New(scheduler.Options{
		Jobs: n.jobs, Config: func() *config.Config { return cfg }, Node: name, Log: zerolog.New(c.log).Level(zerolog.DebugLevel),
		Replicate: func(ctx context.Context, job worker.Job, cfg worker.Config, reporter worker.Reporter) (worker.Result, error) {
			cfg.StopTimeout = limit // a busy machine may take long for the last checkpoint
			return worker.Run(ctx, job, cfg, reporter)
		},
	})
	var ctx context.Context
	ctx, n.drop = context.WithCancel(context.Background())
	go func() { n.ended <- n.server.Run(ctx) }()
	c.t.Cleanup(func() {
		n.drop()
		if err := <-n.ended; err != nil {
			assert.ErrorIs(c.t, err, context.Canceled)
		}
	})
	return n
}

// die kills the node before the end of the test.
func (n *node) die() {
	n.drop()
	require.ErrorIs(n.t, <-n.ended, context.Canceled)
	n.ended <- nil // for the clean-up
}

// join adds a process that runs no jobs.
func (c *cluster) join() *node {
	return &node{cluster: c, jobs: c.open(jobs.Options{Documents: docsPrefix}), ended: make(chan error, 1)}
}

var docsPrefix = []byte("docs")

// document writes a replication document, and returns the id of its job.
func (n *node) document(id, format string, args ...any) (jobID string) {
	n.t.Helper()
	docs := n.documents(n.jobs.Documents.Hooks(nil))
	defer docs.Close()
	db, err := docs.Create(n.t.Context(), repdb)
	require.NoError(n.t, err)
	_, err = db.Put(n.t.Context(), docstore.Edit{ID: id, Body: docjson.Must(fmt.Appendf(nil, format, args...))})
	require.NoError(n.t, err)
	return replicator.PersistentJobID(db.Instance(), id)
}

func (n *node) replicate(format string, args ...any) *jobs.Job {
	n.t.Helper()
	request, err := replicator.ParseRequest(fmt.Appendf(nil, format, args...), replicator.ParseOptions{})
	require.NoError(n.t, err)
	job, err := n.jobs.Requests.Replicate(context.Background(), request.Replication, nil)
	require.NoError(n.t, err)
	return job
}

func (n *node) await(id string) *jobs.Job {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	job, err := n.jobs.Requests.Await(ctx, id, "")
	require.NoError(n.t, err)
	return job
}

// until waits for a state of a job that its status does not show.
func (n *node) until(id string, ready func(*jobs.Job) bool) *jobs.Job {
	n.t.Helper()
	var last *jobs.Job
	require.Eventually(n.t, func() bool {
		var err error
		last, err = n.jobs.Lists.Get(context.Background(), id)
		return err == nil && ready(last)
	}, limit, 10*time.Millisecond)
	return last
}

// gate is a proxy for a database that adds credentials. It holds requests back, and records them.
type gate struct {
	url string

	mu       sync.Mutex
	requests []*http.Request
	held     chan struct{} // closed when a request is held
	open     chan struct{} // closed to let all requests through
}

// newGate returns a gate that holds back requests for which hold returns true.
func newGate(t *testing.T, target string, hold func(r *http.Request, before int) bool) *gate {
	u, err := url.Parse(target)
	require.NoError(t, err)
	g := &gate{held: make(chan struct{}), open: make(chan struct{})}
	proxy := couchtest.Proxy(t, target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.note(r, hold) {
			select {
			case <-g.open:
			case <-r.Context().Done():
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	g.url = server.URL + u.Path
	return g
}

func (g *gate) note(r *http.Request, hold func(*http.Request, int) bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := 0
	for _, earlier := range g.requests {
		if earlier.URL.Path == r.URL.Path {
			before++
		}
	}
	g.requests = append(g.requests, r)
	if !hold(r, before) {
		return false
	}
	select {
	case <-g.held:
	default:
		close(g.held)
	}
	return true
}

// feeds returns the since parameter of each reading of the changes feed, without counts of the changes left.
func (g *gate) feeds() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for _, r := range g.requests {
		if query := r.URL.Query(); strings.HasSuffix(r.URL.Path, "/_changes") && query.Get("limit") != "1" {
			out = append(out, query.Get("since"))
		}
	}
	return out
}

func never(*http.Request, int) bool { return false }

func put(t *testing.T, target string, doc string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, target, strings.NewReader(doc))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, response.StatusCode, "%s", body)
}

func post(t *testing.T, target, format string, args ...any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(fmt.Sprintf(format, args...)))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusCreated, response.StatusCode)
}

func exists(target string) bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(target)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func TestOneShot(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "oneshotsource"), peer.DB(t, "oneshottarget")
		couchtest.Populate(t, source, couchtest.Population{Seed: 1, Docs: 120, Conflicted: 20, Deleted: 10})
		n := newCluster(t).start("a")

		first := n.await(n.replicate(`{"source":%q,"target":%q}`, source, target).ID)
		require.Equal(t, replicator.StateCompleted, first.State.State, first.State.Error)
		couchtest.SameTrees(t, source, target)
		assert.Positive(t, first.State.Stats.DocsWritten)
		assert.Equal(t, "a", first.State.Node)
		assert.Equal(t, first.Args.ReplicationID, first.State.ReplicationID)

		again := n.await(n.replicate(`{"source":%q,"target":%q}`, source, target).ID)
		require.Equal(t, replicator.StateCompleted, again.State.State, again.State.Error)
		var result struct {
			OK        bool `json:"ok"`
			NoChanges bool `json:"no_changes"`
		}
		require.NoError(t, json.Unmarshal(again.State.Result, &result))
		assert.True(t, result.OK)
		assert.True(t, result.NoChanges)
		assert.Equal(t, first.State.Stats, again.State.Stats)
		assert.Equal(t, first.State.Stats, n.server.Counts().Stats, "the second run read and wrote nothing")
	})
}

func TestContinuousThenShutdown(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "livesource"), peer.DB(t, "livetarget")
		c := newCluster(t)
		n := c.start("a")
		job := n.replicate(`{"source":%q,"target":%q,"continuous":true}`, source, target)

		put(t, source+"/first", `{"n":1}`)
		require.Eventually(t, func() bool { return exists(target + "/first") }, limit, 5*time.Millisecond)

		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		require.NoError(t, n.server.Shutdown(ctx))
		// The node may have been taking the job again when it stopped. The job layer queues it.
		stopped := n.until(job.ID, func(j *jobs.Job) bool { return j.Status == fdbjobs.Pending })
		assert.Equal(t, replicator.StatePending, stopped.Condition())
		assert.Equal(t, replicator.EventStopped, stopped.State.History[0].Type)
		assert.NotEmpty(t, stopped.State.CheckpointedSourceSeq)

		// The next node continues from there.
		put(t, source+"/second", `{"n":2}`)
		other := c.start("b", "replicator/checkpoint_interval=100")
		require.Eventually(t, func() bool { return exists(target + "/second") }, limit, 5*time.Millisecond)
		running := other.until(job.ID, func(j *jobs.Job) bool { return j.State.Stats.DocsWritten == 2 })
		assert.Equal(t, replicator.StateRunning, running.Condition())

		// It stops when cancelled.
		_, err := other.jobs.Requests.Cancel(ctx, job.ReplicationID(), nil)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return strings.Contains(c.log.String(), "replication stopped") }, limit, 5*time.Millisecond)
		_, err = other.jobs.Lists.Get(ctx, job.ID)
		require.ErrorIs(t, err, jobs.ErrNotFound)
	})
}

// A node is dropped in the middle of a run. The other one takes over the job after the activity timeout, from the last
// checkpoint.
func TestDroppedNode(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "dropsource"), peer.DB(t, "droptarget")
		couchtest.Populate(t, source, couchtest.Population{Seed: 2, Docs: 400, Conflicted: 20, Deleted: 20})

		c := newCluster(t)
		c.timeout = 3 * time.Second
		frontend := c.join()
		// The first batches pass, then all requests hang.
		g := newGate(t, source, func(r *http.Request, before int) bool {
			return strings.HasSuffix(r.URL.Path, "/_bulk_get") && before >= 10
		})
		sets := []string{"replicator/checkpoint_interval=50", "replicator/worker_batch_size=10", "replicator/worker_processes=1"}
		first := c.start("first", sets...)
		job := frontend.replicate(`{"source":%q,"target":%q}`, g.url, target)
		<-g.held
		frontend.until(job.ID, func(j *jobs.Job) bool {
			return j.State.Node == "first" && len(j.State.CheckpointedSourceSeq) > 0 && string(j.State.CheckpointedSourceSeq) != "0"
		})
		before := len(g.feeds()) // more than one if a busy machine delays a heartbeat

		second := c.start("second", sets...)
		first.die()
		close(g.open)

		done := second.await(job.ID)
		require.Equal(t, replicator.StateCompleted, done.State.State, done.State.Error)
		assert.Equal(t, "second", done.State.Node)
		couchtest.SameTrees(t, source, target)
		feeds := g.feeds()[before:]
		require.NotEmpty(t, feeds)
		for _, since := range feeds {
			assert.NotContains(t, []string{"", "0"}, since, "the second run began anew")
		}
	})
}

// A job with new options restarts with them at once, not after the activity timeout.
func TestNewOptions(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "optionsource"), peer.DB(t, "optiontarget")
		c := newCluster(t)
		c.timeout = 10 * limit // the job is not queued by a monitor
		n := c.start("a")
		job := n.replicate(`{"source":%q,"target":%q,"continuous":true}`, source, target)
		running := n.until(job.ID, func(j *jobs.Job) bool { return j.State.State == replicator.StateRunning })
		n.replicate(`{"source":%q,"target":%q,"continuous":true,"worker_processes":2}`, source, target)
		again := n.until(job.ID, func(j *jobs.Job) bool {
			return j.Args.Replication.WorkerProcesses != nil && j.State.PID != running.State.PID && j.State.State == replicator.StateRunning
		})
		assert.Equal(t, fdbjobs.Running, again.Status)
	})
}

// A changed filter function at the source changes the replication id of a document's job at its next checkpoint.
func TestFilterThatChanges(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "filtersource"), peer.DB(t, "filtertarget")
		// A revision that always wins over the earlier one.
		filter := func(rev, code string) {
			post(t, source+"/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"_design/d","_rev":%q,"filters":{"f":%q}}]}`, rev, code)
		}
		filter("1-a", "function(doc) { return doc.kind == 'a'; }")
		for i := range 4 {
			put(t, fmt.Sprintf("%s/doc%d", source, i), fmt.Sprintf(`{"kind":%q}`, []string{"a", "b"}[i%2]))
		}
		n := newCluster(t).start("n", "replicator/checkpoint_interval=50")
		id := n.document("live", `{"source":%q,"target":%q,"continuous":true,"filter":"d/f"}`, source, target)
		first := n.until(id, func(j *jobs.Job) bool {
			return j.State.Stats.DocsWritten == 2 && len(j.State.CheckpointedSourceSeq) > 0 && string(j.State.CheckpointedSourceSeq) != "0"
		})
		require.NotEmpty(t, first.ReplicationID())
		assert.Empty(t, first.Args.ReplicationID, "it depends on the function")
		assert.False(t, exists(target+"/doc1"))

		filter("2-b", "function(doc) { return doc.kind == 'b'; }")
		// Either filter passes one of these, so that there is a change to record.
		put(t, source+"/doc8", `{"kind":"a"}`)
		put(t, source+"/doc9", `{"kind":"b"}`)
		second := n.until(id, func(j *jobs.Job) bool {
			return j.ReplicationID() != first.ReplicationID() && j.State.Stats.RevisionsChecked == 3
		})
		assert.LessOrEqual(t, second.State.Stats.DocsWritten, int64(3), "it began anew, with statistics of its own")
		for _, doc := range []string{"doc0", "doc1", "doc2", "doc3", "doc9"} {
			require.Eventually(t, func() bool { return exists(target + "/" + doc) }, limit, 10*time.Millisecond, doc)
		}
		var events []string
		for _, event := range second.State.History {
			events = append(events, event.Type)
		}
		assert.Equal(t, []string{"started", "pending", "started", "added"}, events)
		assert.Zero(t, second.State.ErrorCount)
		ctx := context.Background()
		_, err := n.jobs.Lists.Get(ctx, first.ReplicationID())
		require.ErrorIs(t, err, jobs.ErrNotFound)
		byID, err := n.jobs.Lists.Get(ctx, second.ReplicationID())
		require.NoError(t, err)
		assert.Equal(t, id, byID.ID)
	})
}

func TestFailures(t *testing.T) {
	server := couchtest.Shared(t)
	target := server.DB(t, "failuretarget")
	guarded := couchtest.SharedWithAdmin(t)
	withPassword := func(u string) string { return couchtest.As(u, guarded.Username, guarded.Password) }
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer busy.Close()
	c := newCluster(t)
	n := c.start("a", "replicator/retries_per_request=0")

	t.Run("source missing", func(t *testing.T) {
		job := n.await(n.replicate(`{"source":%q,"target":%q}`, withPassword(guarded.URL+"/nosuchdb"), target).ID)
		assert.Equal(t, replicator.StateFailed, job.State.State)
		code, reason := job.State.ErrorBody()
		assert.Equal(t, "db_not_found", code)
		assert.Equal(t, "could not open "+guarded.URL+"/nosuchdb/", reason)
		assert.Equal(t, replicator.EventCrashed, job.State.History[0].Type)
	})
	t.Run("no server there", func(t *testing.T) {
		job := n.await(n.replicate(`{"source":%q,"target":%q}`, withPassword("http://127.0.0.1:1/db"), target).ID)
		assert.Equal(t, replicator.StateFailed, job.State.State)
		_, reason := job.State.ErrorBody()
		assert.Contains(t, reason, "http://127.0.0.1:1/db")
	})
	t.Run("told to back off", func(t *testing.T) {
		job := n.replicate(`{"source":%q,"target":%q}`, busy.URL+"/db", target)
		crashing := n.until(job.ID, func(j *jobs.Job) bool { return j.Condition() == replicator.StateCrashing })
		assert.Equal(t, 1, crashing.State.ErrorCount)
		assert.Equal(t, fdbjobs.Pending, crashing.Status)
	})
	t.Run("filter that the settings refuse", func(t *testing.T) {
		strict := c.start("strict", "replicator/valid_endpoint_protocols=https", "replicator/max_acceptors=1")
		n.die() // only the strict node is left
		job := strict.await(strict.replicate(`{"source":%q,"target":%q}`, server.URL+"/x", target).ID)
		assert.Equal(t, replicator.StateFailed, job.State.State)
		assert.Contains(t, job.State.Error, "source")
	})
	assert.NotContains(t, c.log.String(), guarded.Password)
}

func TestSlots(t *testing.T) {
	server := couchtest.Shared(t)
	target := server.DB(t, "slottarget")
	g := newGate(t, server.DB(t, "slotsource"), never)
	n := newCluster(t).start("a", "replicator/max_jobs=2")
	var ids []string
	for i := range 3 { // without checkpoints, so that none is parked to make room
		ids = append(ids, n.replicate(`{"source":%q,"target":%q,"continuous":true,"use_checkpoints":false,"doc_ids":["%d"]}`, g.url, target, i).ID)
	}
	running := func() (count int) {
		for _, id := range ids {
			if job, err := n.jobs.Lists.Get(t.Context(), id); err == nil && job.Status == fdbjobs.Running {
				count++
			}
		}
		return count
	}
	require.Eventually(t, func() bool { return running() == 2 && n.server.Running() == 2 }, limit, 5*time.Millisecond)
	for _, id := range ids {
		if job, err := n.jobs.Lists.Get(t.Context(), id); err == nil && job.Status == fdbjobs.Running {
			_, err := n.jobs.Requests.Cancel(t.Context(), id, nil)
			require.NoError(t, err)
			break
		}
	}
	// The cancelled job's slot is free after its run has ended.
	require.Eventually(t, func() bool { return running() == 2 }, limit, 5*time.Millisecond)
}
