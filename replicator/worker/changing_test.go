package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"settee/replicator"
	"settee/replicator/worker"
)

// changing is a source that changes while it is read. Its feeds honour since, limit, live feeds and document ids.
type changing struct {
	*stub
	mu       sync.Mutex
	ids      []string      // of the changes
	changed  chan struct{} // closed by the next change
	requests []string      // method and path, with the kind of feed
	uuid     string        // of the server
	greeted  int           // how often the server was asked for its uuid, which is no request for the database
	cut      chan struct{} // closed to cut the live feeds
	began    func(request string)
	answered func(request string)
}

// newChanging makes a bare stub a changing source, and returns it as the handler of its host.
func newChanging(t testing.TB) *changing {
	c := &changing{stub: bareStub(t), changed: make(chan struct{}), cut: make(chan struct{})}
	c.when(nil, nil)
	return c
}

// when calls began before a request is answered, and answered after that. A nil function is not called.
func (c *changing) when(began, answered func(request string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began, c.answered = func(string) {}, func(string) {}
	if began != nil {
		c.began = began
	}
	if answered != nil {
		c.answered = answered
	}
}

// change adds a document.
func (c *changing) change(id string) {
	c.stub.mu.Lock()
	c.docs[id+" 1-a"] = fmt.Sprintf(`{"_id":%q,"_rev":"1-a"}`, id)
	c.stub.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = append(c.ids, id)
	close(c.changed)
	c.changed = make(chan struct{})
}

// cutFeeds breaks the connections of the live feeds.
func (c *changing) cutFeeds() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.cut)
	c.cut = make(chan struct{})
}

// reset forgets the requests so far.
func (c *changing) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = nil
}

func (c *changing) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

func (c *changing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/db")
	query := r.URL.Query()
	if path == "/" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.greeted++
		fmt.Fprintf(w, `{"couchdb":"Welcome","uuid":%q,"vendor":{"name":"a vendor"}}`, c.uuid)
		return
	}
	name := r.Method + " " + path
	if strings.HasPrefix(path, "/_local/") {
		name = r.Method + " /_local"
	}
	if path == "/_changes" {
		name += " " + query.Get("feed") + query.Get("limit")
	}
	c.mu.Lock()
	c.requests = append(c.requests, name)
	began, answered := c.began, c.answered
	c.mu.Unlock()
	began(name)
	defer answered(name)
	switch path {
	case "":
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stub.mu.Lock()
		defer c.stub.mu.Unlock()
		fmt.Fprintf(w, `{"db_name":"db","update_seq":"%d-x","instance_start_time":%s,"doc_count":%[1]d}`, len(c.ids), c.instance)
	case "/_ensure_full_commit":
		c.stub.mu.Lock()
		defer c.stub.mu.Unlock()
		fmt.Fprintf(w, `{"ok":true,"instance_start_time":%s}`, c.instance)
	case "/_changes":
		c.feed(w, r)
	default:
		c.stub.ServeHTTP(w, r)
	}
}

func (c *changing) feed(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var only struct {
		IDs []string `json:"doc_ids"`
	}
	if r.Method == http.MethodPost {
		assertNoError(c.t, json.NewDecoder(r.Body).Decode(&only))
	}
	since, _ := strconv.Atoi(strings.TrimSuffix(query.Get("since"), "-x"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	if limit == 0 || query.Get("seq_interval") != "" {
		limit = 1 << 30
	}
	if query.Get("feed") == "continuous" {
		c.live(w, r, since, only.IDs)
		return
	}
	rows, last := c.rows(since, limit, only.IDs)
	fmt.Fprintf(w, `{"results":[%s],"last_seq":"%d-x","pending":0}`, strings.Join(rows, ","), last)
}

func (c *changing) live(w http.ResponseWriter, r *http.Request, since int, only []string) {
	w.(http.Flusher).Flush()
	milliseconds, _ := strconv.Atoi(r.URL.Query().Get("heartbeat"))
	beats := time.NewTicker(max(time.Duration(milliseconds)*time.Millisecond, time.Second))
	defer beats.Stop()
	for {
		c.mu.Lock()
		changed, cut := c.changed, c.cut
		c.mu.Unlock()
		rows, last := c.rows(since, 1<<30, only)
		since = last
		for _, row := range rows {
			_, _ = io.WriteString(w, row+"\n")
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-beats.C:
			_, _ = io.WriteString(w, "\n")
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			return
		}
	}
}

// rows returns the rows after a sequence, and the sequence up to which they go.
func (c *changing) rows(since, limit int, only []string) (rows []string, last int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, id := range c.ids[min(since, len(c.ids)):] {
		if only != nil && !slices.Contains(only, id) {
			continue
		}
		rows = append(rows, fmt.Sprintf(`{"seq":"%d-x","id":%q,"changes":[{"rev":"1-a"}]}`, since+i+1, id))
		if len(rows) == limit {
			return rows, since + i + 1
		}
	}
	return rows, len(c.ids)
}

// lot is a source, a target and a job that can park, in a bubble.
type lot struct {
	t              *testing.T
	source, target *changing
	cfg            worker.Config
	rep            *replicator.Replication

	mu      sync.Mutex
	idle    []bool // what the run told
	parking []replicator.Parked
	note    func() error // in Job.Parking
	parker  *worker.Parker
	always  bool // an idle run is asked at once
	state   replicator.JobState
}

func newLot(t *testing.T, fields ...string) *lot {
	l := &lot{t: t, source: newChanging(t), target: newChanging(t), note: func() error { return nil }}
	l.cfg = pipedTo(t, l.source, l.target)
	l.rep = replication(t, "http://a.example/db", "http://b.example/db", append(fields, `"continuous":true`)...)
	return l
}

// begin starts a run of the job. woken says that the run before was parked.
func (l *lot) begin(woken bool) *running {
	l.parker = new(worker.Parker)
	l.mu.Lock()
	l.idle = nil
	l.mu.Unlock()
	return start(l.t, worker.Job{
		Replication: l.rep, ReplicationID: l.state.ReplicationID, Stats: l.state.Stats,
		Woken: woken, Lacking: l.state.Lacking, Security: l.state.Security, Target: l.state.Target, Park: l.parker,
		Idle: func(idle bool) {
			l.mu.Lock()
			l.idle = append(l.idle, idle)
			l.mu.Unlock()
			if idle && l.always {
				l.parker.Ask()
			}
		},
		Parking: func(_ context.Context, at replicator.Parked) error {
			l.mu.Lock()
			l.parking = append(l.parking, at)
			note := l.note
			l.mu.Unlock()
			return note()
		},
	}, l.cfg)
}

// noting makes Job.Parking call note.
func (l *lot) noting(note func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note = note
}

// told returns what the run has told about being idle since the last call.
func (l *lot) told() []bool {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.idle
	l.idle = nil
	return told
}

// copied reports whether a document was written to the target.
func (l *lot) copied(id string) bool {
	for _, body := range l.target.bodies() {
		if slices.Contains(idsIn(l.t, body), id) {
			return true
		}
	}
	return false
}

// parked waits for the end of a run that parks, and keeps the state of its job.
func (l *lot) parked(r *running) bool {
	l.t.Helper()
	synctest.Wait()
	select {
	case <-r.done:
	default:
		return false
	}
	if r.err != nil || !r.result.Parked {
		l.t.Errorf("the run ends with %v", r.err)
	}
	r.result.CopyTo(&l.state)
	return true
}

// patiently asks the run to park until it does.
func (l *lot) patiently(r *running) {
	l.t.Helper()
	for range 10 {
		time.Sleep(2 * time.Second)
		l.parker.Ask()
		if l.parked(r) {
			return
		}
	}
	l.t.Error("the run does not park")
}
