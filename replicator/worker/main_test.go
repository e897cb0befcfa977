package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/worker"
)

func TestMain(m *testing.M) {
	if os.Getenv(preparedEnv) != "" {
		servePrepared()
		return
	}
	goleak.VerifyTestMain(m)
}

// patience is the longest time that a test waits for an event.
const patience = 2 * time.Minute

const serverUUID = "0123456789abcdef0123456789abcdef"

// testConfig returns a Config whose retries do not slow down tests.
func testConfig() worker.Config {
	cfg := worker.DefaultConfig()
	cfg.ServerUUID, cfg.Shared = serverUUID, worker.Impatient()
	cfg.RetryBase, cfg.MissingDocRetry = time.Millisecond, time.Millisecond
	return cfg
}

// replication parses the body of a POST /_replicate with further fields.
func replication(t testing.TB, source, target string, more ...string) *replicator.Replication {
	t.Helper()
	body := `{"source":` + quoted(source) + `,"target":` + quoted(target)
	for _, field := range more {
		body += "," + field
	}
	request, err := replicator.ParseRequest([]byte(body+"}"), replicator.ParseOptions{})
	require.NoError(t, err)
	return request.Replication
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// recorder is a Reporter that records its calls.
type recorder struct {
	identify func(replicator.ID) error
	report   func(worker.Progress) error

	mu      sync.Mutex
	ids     []replicator.ID
	reports []worker.Progress
	times   []time.Time // of the reports
}

func (r *recorder) Identify(_ context.Context, id replicator.ID) error {
	r.mu.Lock()
	r.ids = append(r.ids, id)
	r.mu.Unlock()
	if r.identify != nil {
		return r.identify(id)
	}
	return nil
}

func (r *recorder) Report(_ context.Context, progress worker.Progress) error {
	r.mu.Lock()
	r.reports, r.times = append(r.reports, progress), append(r.times, time.Now())
	r.mu.Unlock()
	if r.report != nil {
		return r.report(progress)
	}
	return nil
}

// run runs a replication that must succeed.
func run(t testing.TB, rep *replicator.Replication, edit ...func(*worker.Config)) worker.Result {
	t.Helper()
	cfg := testConfig()
	for _, e := range edit {
		e(&cfg)
	}
	result, err := worker.Run(t.Context(), worker.Job{Replication: rep}, cfg, &recorder{})
	require.NoError(t, err)
	return result
}

// fails runs a replication that must fail, and returns its error.
func fails(t testing.TB, rep *replicator.Replication, edit ...func(*worker.Config)) *worker.Error {
	t.Helper()
	cfg := testConfig()
	cfg.RetriesPerRequest = 0
	for _, e := range edit {
		e(&cfg)
	}
	_, err := worker.Run(t.Context(), worker.Job{Replication: rep}, cfg, &recorder{})
	var failure *worker.Error
	require.ErrorAs(t, err, &failure)
	return failure
}

// running is a run in the background.
type running struct {
	recorder
	stopped context.Context // Job.Stop
	stop    func()          // ends it
	cancel  context.CancelCauseFunc
	done    chan struct{}
	result  worker.Result
	err     error
}

func start(t testing.TB, job worker.Job, cfg worker.Config, edit ...func(*running)) *running {
	t.Helper()
	r := &running{done: make(chan struct{})}
	r.stopped, r.stop = context.WithCancel(context.Background())
	for _, e := range edit {
		e(r)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	job.Stop = r.stopped
	go func() {
		defer close(r.done)
		r.result, r.err = worker.Run(ctx, job, cfg, r)
	}()
	t.Cleanup(func() {
		cancel(nil)
		<-r.done
	})
	return r
}

// ended waits for the run's end in a bubble, whose time passes at once.
func (r *running) ended() error {
	<-r.done
	return r.err
}

// end waits for the run's end.
func (r *running) end(t testing.TB) error {
	t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(patience):
		require.Fail(t, "the run does not end")
		return nil
	}
}

// proxy forwards requests to a database and adds credentials. before may answer a request itself, by returning true.
type proxy struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string // method, and path below the database
	answers  []string // a request, and its status, without those that before answers
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func newProxy(t testing.TB, dbURL string, before func(w http.ResponseWriter, r *http.Request, path string) bool) *proxy {
	t.Helper()
	target, err := url.Parse(dbURL)
	require.NoError(t, err)
	forward := couchtest.Proxy(t, dbURL)
	p := &proxy{}
	p.Server = couchtest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path[min(len(target.Path), len(r.URL.Path)):]
		p.mu.Lock()
		p.requests = append(p.requests, r.Method+" "+path)
		p.mu.Unlock()
		if before == nil || !before(w, r, path) {
			to, end := &statusWriter{ResponseWriter: w}, "cut off"
			defer func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.answers = append(p.answers, fmt.Sprintf("%s %s: %d, %s", r.Method, path, to.status, end))
			}()
			forward.ServeHTTP(to, r) // panics if the answer is cut off
			end = "whole"
		}
	}))
	p.URL += target.Path
	return p
}

// count returns the number of requests with that method and path.
func (p *proxy) count(request string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, r := range p.requests {
		if r == request {
			n++
		}
	}
	return n
}

// story returns the requests that were forwarded, and how they were answered.
func (p *proxy) story() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.answers, "\n")
}

// hang waits until the client gives up, and then breaks the connection.
func hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // the server watches the connection only after that
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

func refuse(w http.ResponseWriter, status int, body string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
	return true
}

// pair creates a populated source and an empty target.
func pair(t testing.TB, peer couchtest.Peer, p couchtest.Population) (source, target string) {
	t.Helper()
	source, target = peer.DB(t, "source"), peer.DB(t, "target")
	couchtest.Populate(t, source, p)
	return source, target
}

// mixed is a small population with documents of all kinds.
func mixed(seed uint64) couchtest.Population {
	return couchtest.Population{Seed: seed, Docs: 60, Conflicted: 8, Deleted: 6, Attachments: couchtest.Sizes(seed, 6, 100_000)}
}
