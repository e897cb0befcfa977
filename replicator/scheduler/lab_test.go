package scheduler_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/config"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/sockopt"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
)

const repdb = "_replicator"

// lab is a node in a bubble, whose clock tests control. Its store has faults, and its peers are in memory.
type lab struct {
	*testing.T
	peers  *peers
	jobs   *jobs.Store
	ofNode *jobs.Store // with faults
	docs   *docstore.Store
	sets   []string
	node   *scheduler.Server
	end    func()            // of the running node
	kill   func()            // the running node drops everything
	others http.RoundTripper // replaces peers if not nil
	log    zerolog.Logger    // of the node; by default it writes nothing
	config atomic.Pointer[config.Config]
}

// inLab runs a test in a bubble. It completes the options of the jobs.
func inLab(t *testing.T, opts jobs.Options, sets []string, test func(l *lab)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		db := enginetest.Memory(t)
		faulty := faultkv.Wrap(db, faultkv.Options{Seed: 1, Rates: faultkv.Rates{
			faultkv.Conflict: 0.05, faultkv.UnknownCommitted: 0.2, faultkv.UnknownNotCommitted: 0.05,
		}})
		layers := [2]*fdbjobs.Layer{fdbjobs.Open(db, []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations()}), fdbjobs.Open(faulty, []byte("jobs"), fdbjobs.Options{Derive: jobs.Derivations()})}
		opts.Documents = []byte("docs")
		l := &lab{T: t, log: zerolog.Nop(), peers: &peers{answers: map[string]answer{}}, sets: append([]string{"replicator/retries_per_request=0"}, sets...)}
		var err error
		l.jobs, err = jobs.Open(t.Context(), db, layers[0], opts)
		require.NoError(t, err)
		l.ofNode, err = jobs.Open(t.Context(), faulty, layers[1], opts)
		require.NoError(t, err)
		l.docs = docstore.Open(db, opts.Documents, docstore.Options{Hooks: l.jobs.Documents.Hooks(nil)})
		for _, name := range []string{repdb, "other/_replicator"} {
			_, err := l.docs.Create(t.Context(), name)
			require.NoError(t, err)
		}
		l.start()
		defer func() {
			l.end()
			l.docs.Close()
			layers[0].Close()
			layers[1].Close()
		}()
		test(l)
	})
}

// start starts the node.
func (l *lab) start(sets ...string) {
	l.set(sets...)
	server := scheduler.New(scheduler.Options{
		Jobs: l.ofNode, Config: l.config.Load, Node: "n", Log: l.log,
		Transport: func(replicator.Endpoint, *sockopt.Options) http.RoundTripper { return l.transport() },
	})
	l.node = server
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() { assert.ErrorIs(l, server.Run(ctx), ctx.Err()) })
	l.kill = func() {
		cancel()
		running.Wait()
	}
	l.end = func() {
		defer cancel()
		err := server.Shutdown(context.Background())
		running.Wait()
		require.NoError(l, err)
	}
}

// set changes the settings of the node, which it sees within its interval.
func (l *lab) set(sets ...string) {
	cfg, _, err := config.Load(config.Options{Flags: append(slices.Clip(l.sets), sets...)})
	require.NoError(l, err)
	l.config.Store(cfg)
}

func (l *lab) transport() http.RoundTripper {
	if l.others != nil {
		return l.others
	}
	return l.peers
}

// put writes a document with the given members, replacing an existing one, and returns the id of its job.
func (l *lab) put(database, id, members string) string {
	l.Helper()
	db, err := l.docs.Database(context.Background(), database)
	require.NoError(l, err)
	edit := l.edit(db, id)
	edit.Body = docjson.Must(`{"source": "http://a.example/db", "target": "http://b.example/db"` + members + `}`)
	_, err = db.Put(context.Background(), edit)
	require.NoError(l, err)
	return replicator.PersistentJobID(db.Instance(), id)
}

// edit replaces the existing document.
func (l *lab) edit(db *docstore.Database, id string) docstore.Edit {
	edit := docstore.Edit{ID: id}
	if doc, err := db.Get(context.Background(), id, docstore.GetOptions{}); err == nil {
		edit.Rev = doc.Rev
	}
	return edit
}

func (l *lab) remove(database, id string) {
	l.Helper()
	db, err := l.docs.Database(context.Background(), database)
	require.NoError(l, err)
	edit := l.edit(db, id)
	edit.Deleted = true
	_, err = db.Put(context.Background(), edit)
	require.NoError(l, err)
}

// post adds a user's transient replication.
func (l *lab) post(user, members string) (*jobs.Job, error) {
	l.Helper()
	request, err := replicator.ParseRequest([]byte(`{"source": "http://a.example/db", "target": "http://b.example/db"`+members+`}`), replicator.ParseOptions{})
	require.NoError(l, err)
	return l.jobs.Requests.Replicate(context.Background(), request.Replication, &user)
}

// says returns a document's state fields.
func (l *lab) says(database, id string) (state, reason any) {
	l.Helper()
	db, err := l.docs.Database(context.Background(), database)
	require.NoError(l, err)
	doc, err := db.Get(context.Background(), id, docstore.GetOptions{})
	require.NoError(l, err)
	var members map[string]any
	require.NoError(l, json.Unmarshal(doc.Body, &members))
	return members["_replication_state"], members["_replication_state_reason"]
}

func (l *lab) get(id string) *jobs.Job {
	l.Helper()
	job, err := l.jobs.Lists.Get(context.Background(), id)
	require.NoError(l, err)
	return job
}

// scheduled returns the time from which a job may run.
func (l *lab) scheduled(id string) time.Time {
	l.Helper()
	job, err := l.jobs.Jobs.Wait(context.Background(), id, func(*fdbjobs.Job) bool { return true })
	require.NoError(l, err)
	return job.Scheduled
}

// until lets time pass, at most an hour, until a job satisfies a condition.
func (l *lab) until(id string, ready func(*jobs.Job) bool) *jobs.Job {
	l.Helper()
	for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(500 * time.Millisecond) {
		synctest.Wait()
		if job := l.get(id); ready(job) {
			return job
		}
	}
	l.Fatalf("%s is not as it should be: %+v", id, l.get(id).State)
	return nil
}

// crashes lets time pass until a job has crashed that many times in a row.
func (l *lab) crashes(id string, count int) *jobs.Job {
	l.Helper()
	return l.until(id, func(j *jobs.Job) bool {
		return j.Condition() == replicator.StateCrashing && j.State.ErrorCount == count
	})
}

// crashed is the end of a run that failed, when no endpoint asked for a wait.
var crashed = replicator.Ending{Outcome: replicator.RunCrashed}

// waitsForRetry checks that a crashed job waits as long as replicator.Ending.Again says after its last run, with the settings
// of the node. The times of the job are in whole seconds.
func (l *lab) waitsForRetry(job *jobs.Job, ending replicator.Ending) {
	l.Helper()
	cfg, before, now := l.config.Load(), *job.State, job.State.LastUpdated
	before.ErrorCount--
	penalties := replicator.Penalties{Min: config.MinBackoffPenalty.Get(cfg), Max: config.MaxBackoffPenalty.Get(cfg)}
	latest, err := ending.Again(job.Args, &before, penalties, now, 0)
	require.NoError(l, err)
	earliest, err := ending.Again(job.Args, &before, penalties, now, 1)
	require.NoError(l, err)
	assert.WithinRange(l, l.scheduled(job.ID), earliest.At.Add(-time.Second), latest.At.Add(time.Second))
}

func (l *lab) in(id string, state replicator.State) *jobs.Job {
	l.Helper()
	return l.until(id, func(j *jobs.Job) bool { return j.Condition() == state && j.State.State == state })
}

// answer is a peer's answer to a request. A status of 0 stands for the normal answer.
type answer func(r *http.Request) (status int, body string)

// peers are empty databases in memory. Their live feeds continue, other feeds end.
type peers struct {
	mu      sync.Mutex
	answers map[string]answer // by method, host and path
}

// on sets the answer to a request such as "GET a.example/db".
func (p *peers) on(request string, a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[request] = a
}

func (p *peers) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	say := p.answers[r.Method+" "+r.URL.Host+r.URL.Path]
	p.mu.Unlock()
	if r.Body != nil {
		_ = r.Body.Close()
	}
	status, body := 0, ""
	if say != nil {
		status, body = say(r)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	content := io.NopCloser(strings.NewReader(body))
	switch path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/db"), "/"); {
	case status != 0:
	case path == "":
		status, content = 200, io.NopCloser(strings.NewReader(`{"db_name":"db","instance_start_time":"1700000000","update_seq":"0"}`))
	case path == "_changes" && r.URL.Query().Get("feed") == "continuous":
		status, content = 200, feed{r.Context()}
	case path == "_changes":
		status, content = 200, io.NopCloser(strings.NewReader(`{"results":[],"last_seq":"0","pending":0}`))
	case r.Method == http.MethodPut, r.Method == http.MethodPost:
		status, content = 201, io.NopCloser(strings.NewReader(`{"ok":true,"id":"x","rev":"0-1","instance_start_time":"1700000000"}`))
	default:
		status, content = 404, io.NopCloser(strings.NewReader(`{"error":"not_found","reason":"missing"}`))
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1, Body: content, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}, "Server": {"CouchDB/3.5.0 (Erlang OTP/25)"}},
	}, nil
}

// feed is a feed without changes, with heartbeats.
type feed struct{ ctx context.Context }

func (f feed) Read(b []byte) (int, error) {
	select {
	case <-f.ctx.Done():
		return 0, f.ctx.Err()
	case <-time.After(5 * time.Second):
		return copy(b, "\n"), nil
	}
}

func (f feed) Close() error { return nil }

// pause delays a peer's answer, unless the request has ended.
func pause(r *http.Request, d time.Duration) {
	select {
	case <-r.Context().Done():
	case <-time.After(d):
	}
}
