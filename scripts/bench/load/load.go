// Package load gives one node of settee jobs and changes to copy, and measures what the node takes. It adds documents to
// several replicator databases, and waits until all jobs run and have copied the first documents of their sources. Then it
// writes documents to random sources, at random times. After a warm-up it measures for a time, and waits until every document
// is on the target of every job that reads its source. It fails if one does not come.
//
// With -once the jobs end when they have copied the documents that there are. Time counts from when the node may run
// jobs, which all wait then, until the last one has ended.
//
// The endpoints are simulated by this program, at little cost, or are databases of another node or of a CouchDB. A delay is from
// the answer to the write of a document until a simulated target gets it, or until it is in the changes feed of the target.
package load

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"settee/pkg/retry"
	"settee/scripts/bench/lab"
)

// Scenario gives a node jobs and changes to copy.
var Scenario = lab.Scenario{Name: "load", New: func(r *lab.Run) lab.Measurement { return &load{Run: r} }}

const (
	// docSize is the size of a document, in bytes.
	docSize = 1000
	// setteeMaxJobs is the default of [replicator] max_jobs.
	setteeMaxJobs = 500
	// spareFiles is how many files a process needs beside the connection of each changes feed.
	spareFiles = 2000
	// onSimulated is the name of simulated endpoints.
	onSimulated = "simulated"
)

// load is the flags, the endpoints and the node.
type load struct {
	databases, jobs, sources, docs int
	rate                           float64
	warmUp, duration               time.Duration
	once                           bool
	endpoints, nodeCPUs            string
	maxJobs                        int
	settings                       []string

	*lab.Run
	*lab.Databases
	about     string     // of the endpoints
	simulated *simulated // nil if they are not
	node      *lab.Node
	meter     lab.Meter
}

// The first party of the meter.
const node = 0

// Register implements lab.Measurement.
func (l *load) Register(f *flag.FlagSet) {
	f.IntVar(&l.databases, "databases", 10, "replicator databases")
	f.IntVar(&l.jobs, "jobs", 100, "jobs in each replicator database")
	f.IntVar(&l.sources, "sources", 0, "databases that the jobs read, each job one of them; 0: one for each job")
	f.IntVar(&l.docs, "docs", 1, "documents in each source at the beginning")
	f.Float64Var(&l.rate, "rate", 100, "documents written a second, to all sources together")
	f.DurationVar(&l.warmUp, "warm-up", 5*time.Second, "how long documents are written before the node is measured")
	f.DurationVar(&l.duration, "duration", 30*time.Second, "how long the node is measured")
	f.BoolVar(&l.once, "once", false, "the jobs are one-shot; nothing is written but -docs")
	f.StringVar(&l.endpoints, "endpoints", onSimulated, "simulated, settee for another node, or couchdb for the installed one")
	f.IntVar(&l.maxJobs, "max-jobs", 0, "[replicator] max_jobs; 0: all jobs, or at most 500 with -once")
	f.Func("set", "another setting of the node, as `section/key=value`; may be repeated", func(one string) error {
		l.settings = append(l.settings, one)
		return nil
	})
	f.StringVar(&l.nodeCPUs, "node-cpus", "", "the processors of the node, as taskset takes them, such as 0-1")
}

// Check implements lab.Measurement. It fills in what follows from other flags.
func (l *load) Check() error {
	all := l.databases * l.jobs
	if l.sources == 0 {
		l.sources = all
	}
	if l.maxJobs == 0 {
		l.maxJobs = all
		if l.once {
			l.maxJobs = min(all, setteeMaxJobs)
		}
	}
	switch {
	case l.databases < 1 || l.jobs < 1:
		return errors.New("there must be a job")
	case l.sources > all:
		return errors.New("there cannot be more sources than jobs")
	case l.duration <= 0:
		return errors.New("-duration must be positive")
	}
	var limit syscall.Rlimit // Go raises the soft limit to the hard one
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if need := uint64(l.maxJobs + spareFiles); limit.Max < need {
		return fmt.Errorf("%d jobs at a time need %d open files, and the limit is %d (ulimit -Hn)", l.maxJobs, need, limit.Max)
	}
	return lab.Choose("endpoint", l.endpoints, onSimulated, lab.OnSettee, lab.OnCouchDB)
}

// Measure implements lab.Measurement.
func (l *load) Measure(ctx context.Context) (err error) {
	what, then, measure := "continuous jobs", fmt.Sprintf(", then %g a second in all", l.rate), l.measureContinuous
	if l.once {
		what, then, measure = "one-shot jobs", "", l.measureOnce
	}
	if err := l.start(ctx); err != nil {
		return err
	}
	l.Report.Targets("%s, with %s: %d %s in %d databases, max_jobs %d, of %d sources; at first %d documents in each source%s; %d bytes each",
		l.Version, l.about, l.databases*l.jobs, what, l.databases, l.maxJobs, l.sources, l.docs, then, docSize)
	if err := l.WriteAll(ctx, l.docs); err != nil {
		return err
	}
	return lab.InOrder(ctx, l.add, measure, l.finish)
}

// start starts the endpoints and then the node, which ends before them.
func (l *load) start(ctx context.Context) (err error) {
	jobs := l.databases * l.jobs
	l.Databases = &lab.Databases{Sources: l.sources, Targets: jobs, Jobs: jobs}
	var endpoints lab.Meter
	if l.endpoints == onSimulated {
		l.about, l.simulated = "simulated endpoints", startSimulated(l.Run, l.Databases)
	} else {
		db, err := l.StartEndpoints(ctx, l.endpoints)
		if err != nil {
			return err
		}
		l.about, endpoints = db.About, lab.Meter{{Name: "endpoints", Time: db.Processor}}
		if err := l.Make(ctx, l.Run, db, lab.Text(docSize)); err != nil {
			return err
		}
	}
	if l.node, err = l.StartNode(ctx, lab.NodeOptions{Settings: l.settings, CPUs: l.nodeCPUs}); err != nil {
		return err
	}
	l.meter = append(lab.Meter{{Name: "node", Time: l.node.Processor}}, endpoints...)
	return nil
}

// add adds all jobs. None runs until setMaxJobs is called.
func (l *load) add(ctx context.Context) error {
	if err := l.setMaxJobs(ctx, 0); err != nil {
		return err
	}
	began := time.Now()
	for n := range l.databases {
		name := url.PathEscape(fmt.Sprintf("load-%d/_replicator", n))
		if err := l.node.Ask(ctx, http.MethodPut, name, nil, nil); err != nil {
			return err
		}
		more := map[string]any{"continuous": !l.once}
		if err := l.AddJobs(ctx, l.node.Server, name, n*l.jobs, (n+1)*l.jobs, more); err != nil {
			return err
		}
	}
	l.row("jobs added", "%.1f s", time.Since(began).Seconds())
	l.Say("%d jobs added", l.databases*l.jobs)
	return nil
}

func (l *load) row(what, format string, values ...any) {
	l.Report.Measured(what, "", format, values...)
}

func (l *load) setMaxJobs(ctx context.Context, n int) error {
	return l.node.Ask(ctx, http.MethodPut, "_node/_local/_config/replicator/max_jobs", fmt.Sprint(n), nil)
}

// measureContinuous measures jobs that go on, while documents are written.
func (l *load) measureContinuous(ctx context.Context) error {
	began := time.Now()
	if err := l.setMaxJobs(ctx, l.maxJobs); err != nil {
		return err
	}
	running := func(states map[string]int) bool { return states["running"] >= min(l.maxJobs, l.databases*l.jobs) }
	err := l.Within(ctx, "starting the jobs", func(ctx context.Context) error {
		if err := l.node.AwaitJobs(ctx, running); err != nil {
			return err
		}
		return l.Await(ctx)
	})
	if err != nil {
		return err
	}
	l.row("jobs started", "%.1f s", time.Since(began).Seconds())
	l.Say("all jobs run")
	var behind int
	err = l.WriteDuring(ctx, l.Random, l.rate, func(ctx context.Context) error {
		if err := retry.Wait(ctx, l.warmUp); err != nil {
			return err
		}
		behind, err = l.window(ctx, func(ctx context.Context) error { return retry.Wait(ctx, l.duration) })
		return err
	})
	if err != nil {
		return err
	}
	l.Say("measured; waiting for the last documents")
	ended := time.Now()
	if err := l.Within(ctx, "the arrival of the last document", l.Await); err != nil {
		return err
	}
	l.row("delay", "%s documents", l.Take())
	l.row("  behind at the end", "%d, for %.1f s", behind, time.Since(ended).Seconds())
	return nil
}

// measureOnce measures jobs that end.
func (l *load) measureOnce(ctx context.Context) error {
	_, err := l.window(ctx, func(ctx context.Context) error {
		if err := l.setMaxJobs(ctx, l.maxJobs); err != nil {
			return err
		}
		ended := func(states map[string]int) bool { return states["completed"]+states["failed"] == l.databases*l.jobs }
		return l.Within(ctx, "the end of the last job", func(ctx context.Context) error { return l.node.AwaitJobs(ctx, ended) })
	})
	return err
}

// window measures the node while f runs, and returns the number of arrivals that are due at its end.
func (l *load) window(ctx context.Context, f func(context.Context) error) (behind int, err error) {
	checkpoints := func() (written int64) {
		if l.simulated != nil {
			written = l.simulated.checkpoints.Load()
		}
		return written / 2 // one at each end
	}
	metrics, c, saved := l.node.Metrics(ctx), l.Counts(), checkpoints()
	l.Take()
	used, err := l.meter.Measure(func() error { return f(ctx) })
	if err != nil {
		return 0, err
	}
	_, largest := l.node.Memory()
	nowMetrics, now := l.node.Metrics(ctx), l.Counts()
	s := used.Seconds
	written, arrived := float64(now.Written-c.Written), float64(now.Arrived-c.Arrived)
	const mebibyte = 1 << 20
	l.row("measured", "%.1f s", s)
	if l.once {
		l.row("jobs ended", "%.1f/s", float64(l.databases*l.jobs)/s)
	}
	l.row("processor of the node", "%.2f s, %.3f of a core", used.Of(node), used.Cores(node))
	l.row("  of a core", "%s", used)
	l.row("  of the node, per arrival", "%s ms", lab.Number(1000*used.Of(node)/arrived, 3))
	l.row("memory of the node", "%.0f MiB at most", largest/mebibyte)
	l.row("  Go heap, goroutines, files", "%.0f MiB, %.0f, %.0f", nowMetrics["go_memstats_heap_alloc_bytes"]/mebibyte,
		nowMetrics["go_goroutines"], nowMetrics["process_open_fds"])
	if !l.once {
		l.row("documents written", "%.1f/s of %g/s", written/s, l.rate)
	}
	l.row("documents arrived", "%.1f/s", arrived/s)
	// If no more is under way than is written in a second, the node has kept up.
	behind = now.Due - now.Arrived
	if l.once || float64(behind) > float64(now.Due-c.Due)/s {
		l.row("  bounded by", "%s", used.Bound())
	}
	const requests = "couchdb_couch_replicator_requests_total"
	l.row("requests to the endpoints", "%.1f/s", (nowMetrics[requests]-metrics[requests])/s)
	l.row("checkpoints", "%s/s", lab.Number(float64(checkpoints()-saved)/s, 2))
	return behind, nil
}

// finish adds what is known at the end. It fails if something has not arrived.
func (l *load) finish(ctx context.Context) error {
	var states map[string]int
	err := l.node.AwaitJobs(ctx, func(now map[string]int) bool { states = now; return true })
	if err != nil {
		return err
	}
	metrics, c := l.node.Metrics(ctx), l.Counts()
	l.row("in all: documents written", "%d", c.Written)
	l.row("  arrived", "%d of %d, %d lost", c.Arrived, c.Due, c.Due-c.Arrived)
	var texts []string
	for _, state := range slices.Sorted(maps.Keys(states)) {
		if states[state] > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", states[state], state))
		}
	}
	l.row("  jobs", "%s; %.0f runs crashed, %.0f stopped to go on later", strings.Join(texts, ", "),
		metrics["couchdb_couch_replicator_jobs_crashes_total"], metrics["couchdb_couch_replicator_jobs_stops_total"])
	if l.simulated != nil {
		l.row("  arrived again", "%d", l.simulated.again.Load())
	}
	if c.Arrived < c.Due {
		return fmt.Errorf("%d of %d documents have not arrived", c.Due-c.Arrived, c.Due)
	}
	return nil
}
