package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/fdbjobs"
	"settee/internal/testkit"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
	"settee/replicator/worker"
)

// world is several nodes on one store in a bubble, whose clock advances while all goroutines wait. Scheduler, queue and
// store are real. Runs are simulated by waiting.
type world struct {
	*testing.T
	db       kv.Database
	layer    *fdbjobs.Layer
	jobs     *jobs.Store
	docs     *docstore.Store
	settings *settings
	began    time.Time
	timeout  time.Duration // the activity timeout of nodes
	beat     time.Duration // interval of reports

	nodes map[string]*simulated

	mu     sync.Mutex
	owners map[string]*tally
	runs   map[string]*simulatedJob // by target
	begun  int                      // number of runs
}

// simulated is a node.
type simulated struct {
	server *scheduler.Server
	end    func() // like SIGTERM
	kill   func()
}

// simulatedJob is the state of a job.
type simulatedJob struct {
	owner   string
	running string    // the node that runs it
	since   time.Time // when it began to wait or run
	counted time.Time // running time is counted up to here
}

// tally counts what an owner's jobs have done.
type tally struct {
	jobs    int
	minutes map[int]time.Duration // running time by minute of the world
	longest time.Duration         // longest wait of a job after a run or since it was added
	lasts   time.Duration         // duration of a one-shot run; default: a second
	crashes bool                  // each run crashes at its end
	idles   *idleness             // nil: continuous runs are always busy
}

func inWorld(t *testing.T, sets []string, test func(w *world)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		w := &world{
			T: t, db: enginetest.Memory(t), settings: newSettings(t, sets...), began: time.Now(), nodes: map[string]*simulated{},
			owners: map[string]*tally{}, runs: map[string]*simulatedJob{},
			// The longest interval that keeps jobs alive: reports take most of the time of a simulation.
			beat: fdbjobs.DefaultTimeout / 3,
		}
		w.layer, w.jobs = w.open()
		w.docs = docstore.Open(w.db, []byte("docs"), docstore.Options{Hooks: w.jobs.Documents.Hooks(nil)})
		defer func() {
			for _, n := range w.nodes {
				n.end()
			}
			w.docs.Close()
			w.layer.Close()
		}()
		test(w)
	})
}

func (w *world) open() (*fdbjobs.Layer, *jobs.Store) {
	layer := fdbjobs.Open(w.db, []byte("jobs"), fdbjobs.Options{Timeout: w.timeout, Derive: jobs.Derivations()})
	store, err := jobs.Open(context.Background(), w.db, layer, jobs.Options{Documents: []byte("docs")})
	require.NoError(w, err)
	return layer, store
}

// start starts nodes with these names.
func (w *world) start(names ...string) {
	w.Helper()
	for _, name := range names {
		layer, store := w.open()
		server := scheduler.New(scheduler.Options{
			Jobs: store, Config: w.settings.current.Load, Changed: w.settings.Changed, Node: name, Log: zerolog.Nop(),
			Replicate: func(ctx context.Context, job worker.Job, cfg worker.Config, reporter worker.Reporter) (worker.Result, error) {
				return w.replicate(ctx, name, job, cfg, reporter)
			},
		})
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = server.Run(ctx) })
		w.nodes[name] = &simulated{
			server: server,
			end: func() {
				err := server.Shutdown(context.Background())
				running.Wait()
				cancel()
				layer.Close()
				require.NoError(w, err)
			},
			kill: func() {
				cancel()
				running.Wait()
				layer.Close()
			},
		}
	}
}

func (w *world) stop(name string) {
	w.nodes[name].end()
	delete(w.nodes, name)
}

func (w *world) kill(name string) {
	w.nodes[name].kill()
	delete(w.nodes, name)
}

// add adds jobs to a replicator database, which it creates if it is missing.
func (w *world) add(database string, n int, continuous bool) *tally {
	w.Helper()
	db, err := w.docs.Database(context.Background(), database)
	if err != nil {
		db, err = w.docs.Create(context.Background(), database)
		require.NoError(w, err)
	}
	w.mu.Lock()
	of := w.owners[database]
	if of == nil {
		of = &tally{minutes: map[int]time.Duration{}, lasts: time.Second}
		w.owners[database] = of
	}
	first := of.jobs
	of.jobs += n
	w.mu.Unlock()
	for first < of.jobs {
		var edits []docstore.Edit
		for ; first < of.jobs && len(edits) < 100; first++ {
			id := fmt.Sprintf("%06d", first)
			edits = append(edits, docstore.Edit{ID: id, Body: docjson.Must(fmt.Appendf(nil,
				`{"source":"http://a.example/db","target":%q,"continuous":%t}`, targetOf(database, id), continuous))})
			w.mu.Lock()
			w.runs[targetOf(database, id)] = &simulatedJob{owner: database, since: time.Now()}
			w.mu.Unlock()
		}
		results, err := db.Write(context.Background(), edits, docstore.WriteOptions{})
		require.NoError(w, err)
		for _, r := range results {
			require.NoError(w, r.Err)
		}
	}
	return of
}

// remove deletes all documents of a replicator database.
func (w *world) remove(database string) {
	w.Helper()
	db, err := w.docs.Database(context.Background(), database)
	require.NoError(w, err)
	var edits []docstore.Edit
	for row, err := range db.AllDocs(context.Background(), docstore.AllDocsOptions{}) {
		require.NoError(w, err)
		edits = append(edits, docstore.Edit{ID: row.ID, Rev: row.Rev, Deleted: true})
	}
	results, err := db.Write(context.Background(), edits, docstore.WriteOptions{})
	require.NoError(w, err)
	for _, r := range results {
		require.NoError(w, r.Err)
	}
}

func targetOf(database, id string) string {
	return "http://b.example/" + strings.ReplaceAll(database, "/", "-") + "-" + id + "/"
}

// replicate simulates a run.
func (w *world) replicate(
	ctx context.Context, node string, job worker.Job, cfg worker.Config, reporter worker.Reporter,
) (worker.Result, error) {
	of := w.begin(node, job.Replication.Target.URL)
	defer w.finish(job.Replication.Target.URL)
	tick := time.NewTicker(w.beat)
	defer tick.Stop()
	if of.idles != nil {
		return w.idle(ctx, of.idles, job, reporter, tick.C)
	}
	var over <-chan time.Time
	if of.crashes || !job.Replication.Continuous {
		over = time.After(of.lasts)
	}
	for {
		select {
		case <-ctx.Done():
			return worker.Result{}, context.Cause(ctx)
		case <-job.Stop.Done():
			return worker.Result{}, worker.ErrStopped
		case <-over:
			if of.crashes {
				return worker.Result{}, errors.New("it crashes")
			}
			return worker.Result{}, nil
		case <-tick.C:
			if err := reporter.Report(ctx, worker.Progress{}); err != nil {
				return worker.Result{}, err
			}
		}
	}
}

func (w *world) begin(node, target string) *tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	job := w.runs[target]
	of := w.owners[job.owner]
	assert.Empty(w, job.running, "%s runs on %s already", target, job.running)
	of.longest = max(of.longest, time.Since(job.since))
	w.begun++
	job.running, job.since, job.counted = node, time.Now(), time.Now()
	return of
}

func (w *world) finish(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	job := w.runs[target]
	w.count(job)
	job.running, job.since = "", time.Now()
}

// count adds a running job's time so far. The caller holds w.mu.
func (w *world) count(job *simulatedJob) {
	of, now := w.owners[job.owner], time.Now()
	for job.counted.Before(now) {
		minute := int(job.counted.Sub(w.began) / time.Minute)
		until := w.began.Add(time.Duration(minute+1) * time.Minute)
		if until.After(now) {
			until = now
		}
		of.minutes[minute] += until.Sub(job.counted)
		job.counted = until
	}
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// at returns the current minute of the world.
func (w *world) at() int { return int(time.Since(w.began) / time.Minute) }

// parts returns the databases' parts of the running time between two minutes.
func (w *world) parts(from, to int) map[string]float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, job := range w.runs {
		if job.running != "" {
			w.count(job)
		}
	}
	ran, total := map[string]time.Duration{}, time.Duration(0)
	for name, of := range w.owners {
		for minute := from; minute < to; minute++ {
			ran[name] += of.minutes[minute]
			total += of.minutes[minute]
		}
	}
	parts := map[string]float64{}
	for name, d := range ran {
		parts[name] = float64(d) / float64(total)
	}
	return parts
}

// waits returns the longest wait of a job of a database, including current ones.
func (w *world) waits(database string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := w.owners[database].longest
	for _, job := range w.runs {
		if job.owner == database && job.running == "" {
			longest = max(longest, time.Since(job.since))
		}
	}
	return longest
}
