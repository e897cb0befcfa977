package scheduler_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/pkg/couch/couchtest"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/worker"
)

// A continuous replication is cancelled, and posted again at once. The new run goes on from the last checkpoint of the
// old one, and the statistics add up. CouchDB's test is t_stats_retained_on_job_removal in
// couch_replicator_retain_stats_between_job_runs.erl.
func TestCancelledAndPostedAgain(t *testing.T) {
	couchtest.Each(t, func(t *testing.T, peer couchtest.Peer) {
		source, target := peer.DB(t, "rerunsource"), peer.DB(t, "reruntarget")
		put(t, target+"/_design/v", `{"language":"javascript","validate_doc_update":
			"function(doc) { if (doc.nope === true) { throw({forbidden: 'nope'}); } }"}`)
		c := newCluster(t)
		n := c.start("a")
		c.start("b") // either node may take the job
		for round := range int64(3) {
			var docs []string
			for i := range 10 {
				docs = append(docs, fmt.Sprintf(`{"_id":"%d-%d","nope":%t}`, round, i, i%2 == 0))
			}
			// The run before may still copy some of these.
			post(t, source+"/_bulk_docs", `{"docs":[%s]}`, strings.Join(docs, ","))
			job := n.replicate(`{"source":%q,"target":%q,"continuous":true}`, source, target)
			stats := n.until(job.ID, func(j *jobs.Job) bool {
				stats := j.State.Stats
				return stats.DocsWritten >= (round+1)*5 && stats.DocWriteFailures >= (round+1)*5
			}).State.Stats
			require.Equal(t, [3]int64{(round + 1) * 10, (round + 1) * 5, (round + 1) * 5},
				[3]int64{stats.DocsRead, stats.DocsWritten, stats.DocWriteFailures}, "round %d", round)
			_, err := n.jobs.Requests.Cancel(t.Context(), job.ID, nil)
			require.NoError(t, err)
		}
	})
}

// again has the ways to end a job while it runs, and to want the same replication again at once.
var again = map[string]func(l *lab, id string) string{
	"posted again": func(l *lab, id string) string {
		_, err := l.jobs.Requests.Cancel(context.Background(), id, nil)
		require.NoError(l, err)
		return l.posted("joe")
	},
	"posted by another user": func(l *lab, id string) string {
		_, err := l.jobs.Requests.Cancel(context.Background(), id, nil)
		require.NoError(l, err)
		return l.posted("jane")
	},
	"posted with other options": func(l *lab, _ string) string {
		job, err := l.post("joe", `,"continuous":true,"worker_processes":2`)
		require.NoError(l, err)
		return job.ID
	},
	"in a document": func(l *lab, id string) string {
		_, err := l.jobs.Requests.Cancel(context.Background(), id, nil)
		require.NoError(l, err)
		return l.put(repdb, "new", `,"continuous":true`)
	},
}

func (l *lab) posted(user string) (id string) {
	l.Helper()
	job, err := l.post(user, `,"continuous":true`)
	require.NoError(l, err)
	return job.ID
}

// checkpoints are the requests for the checkpoint of the target.
type checkpoints struct {
	mu     sync.Mutex
	events []string
}

func (c *checkpoints) add(event string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, event)
}

func (c *checkpoints) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// oneChange adds a change to the first continuous feed of peers.
type oneChange struct {
	*peers
	announced atomic.Bool
}

func (o *oneChange) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.peers.RoundTrip(r)
	if err == nil && r.URL.Query().Get("feed") == "continuous" && !o.announced.Swap(true) {
		change := strings.NewReader(`{"seq":"1-x","id":"d","changes":[{"rev":"1-a"}]}` + "\n")
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(change, response.Body), response.Body}
	}
	return response, err
}

// lastingCheckpoints makes the peers of a continuous replication announce one change, and take their time to write a
// checkpoint. It is for replications that are posted later.
func (l *lab) lastingCheckpoints(takes time.Duration) *checkpoints {
	l.Helper()
	r, err := replicator.ParseRequest([]byte(`{"source": "http://a.example/db", "target": "http://b.example/db","continuous":true}`), replicator.ParseOptions{})
	require.NoError(l, err)
	id, err := l.jobs.Requests.ReplicationID(r.Replication)
	require.NoError(l, err)
	var c checkpoints
	l.others = &oneChange{peers: l.peers}
	l.peers.on("POST b.example/db/_revs_diff", func(*http.Request) (int, string) { return 200, "{}" })
	base, _, _ := strings.Cut(id, "+")
	l.peers.on("GET b.example/db/_local/"+base, func(*http.Request) (int, string) {
		c.add("read")
		return 0, ""
	})
	l.peers.on("PUT b.example/db/_local/"+base, func(r *http.Request) (int, string) {
		c.add("writing")
		pause(r, takes)
		if r.Context().Err() == nil {
			c.add("written")
		}
		return 0, ""
	})
	return &c
}

// copied waits until a run has copied the change.
func (l *lab) copied(id string) {
	l.until(id, func(j *jobs.Job) bool { return string(j.State.ThroughSeq) == `"1-x"` })
}

// A new run begins to read checkpoints when the old one has written its last one.
func TestNewRunWaitsForTheOldOne(t *testing.T) {
	for what, want := range again {
		t.Run(what, func(t *testing.T) {
			inLab(t, jobs.Options{}, nil, func(l *lab) {
				c := l.lastingCheckpoints(4 * time.Second)
				old := l.posted("joe")
				l.copied(old)
				pid := l.get(old).State.PID
				ended := time.Now()
				next := want(l, old)
				l.until(next, func(j *jobs.Job) bool { return j.Condition() == replicator.StateRunning && j.State.PID != pid })
				require.Less(l, time.Since(ended), 2*time.Second, "it starts at once, and waits")
				time.Sleep(time.Second) // the store repeats commits
				require.Equal(l, []string{"read", "writing"}, c.all())
				time.Sleep(5 * time.Second)
				synctest.Wait()
				require.Equal(l, []string{"read", "writing", "written", "read"}, c.all())
				require.Equal(l, replicator.StateRunning, l.get(next).Condition())
			})
		})
	}
}

// The node of the old run dies before its last checkpoint. The new run begins after the timeout.
func TestNewRunAfterADeadNode(t *testing.T) {
	inLab(t, jobs.Options{}, nil, func(l *lab) {
		c := l.lastingCheckpoints(time.Hour)
		job, err := l.post("joe", `,"continuous":true`)
		require.NoError(l, err)
		l.copied(job.ID)
		_, err = l.jobs.Requests.Cancel(context.Background(), job.ID, nil)
		require.NoError(l, err)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(l, []string{"read", "writing"}, c.all())
		l.kill()
		l.start()
		next := l.posted("joe")
		l.in(next, replicator.StateRunning)
		time.Sleep(fdbjobs.DefaultTimeout - 5*time.Second)
		require.Equal(l, []string{"read", "writing"}, c.all())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(l, []string{"read", "writing", "read"}, c.all())
		require.Empty(l, l.get(next).State.Error)
	})
}

// A last checkpoint that fails, or takes too long, does not hold up the new run for longer.
func TestLastCheckpointThatFails(t *testing.T) {
	inLab(t, jobs.Options{}, nil, func(l *lab) {
		c := l.lastingCheckpoints(time.Hour)
		job, err := l.post("joe", `,"continuous":true`)
		require.NoError(l, err)
		l.copied(job.ID)
		_, err = l.jobs.Requests.Cancel(context.Background(), job.ID, nil)
		require.NoError(l, err)
		l.posted("joe")
		time.Sleep(worker.DefaultConfig().StopTimeout - time.Second)
		require.Equal(l, []string{"read", "writing"}, c.all())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(l, []string{"read", "writing", "read"}, c.all())
	})
}
