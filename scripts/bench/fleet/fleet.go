// Package fleet measures many continuous replications of which few have something to copy. It starts two nodes of settee: one
// has all sources and targets, the other one runs the jobs. With -endpoints the installed CouchDB has the sources and targets.
// With couchdb-alone it also runs the jobs, and only the case changes is measured, after its replicator has had a minute. The
// cases, in this order:
//
//   - first: replication documents are added until each job has copied the first document of its source.
//   - parked: all jobs are parked, and nothing changes.
//   - changes: documents are written to random sources, at random times.
//   - burst: a document is written to each of many sources at once.
//   - roll: with -nodes, each node that runs jobs is told to stop and started again, one after the other, while documents
//     are written to random sources. It needs jobs that are not parked: a long -idle, and as many -slots as jobs.
//   - restart: the node is killed and started again. Then a document is written to a random source. With -nodes it is
//     the one that gets the documents.
//
// Each job has a source of its own. The jobs share targets, whose changes feeds this program follows. A delay is from
// the answer to the write of a document until it is in the feed of its target.
package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"settee/scripts/bench/lab"
)

// Scenario measures a fleet of jobs.
var Scenario = lab.Scenario{Name: "fleet", New: func(r *lab.Run) lab.Measurement { return &fleet{Run: r} }}

// The cases, in their order.
var cases = []string{"first", "parked", "changes", "burst", "roll", "restart"}

// frontends is the number of nodes that run no jobs, with -nodes.
const frontends = 2

// usual are the cases that run if the flags name none.
const usual = "first,parked,changes,burst,restart"

// fleet is the flags, the databases and the nodes.
type fleet struct {
	cases                 string
	jobs, targets, slots  int
	nodes, burst          int
	idle, quiet, look     time.Duration
	rate                  float64
	duration              time.Duration
	endpoints, storeNamed string

	*lab.Run
	server *lab.Server // has the databases
	*lab.Databases
	store   string      // its URL
	running []*lab.Node // the first one gets the documents; with -nodes, those after the frontends run the jobs
}

// Register implements lab.Measurement.
func (f *fleet) Register(flags *flag.FlagSet) {
	flags.StringVar(&f.cases, "cases", usual, "the cases, of "+strings.Join(cases, ", ")+"; first is always run before those that follow it")
	flags.IntVar(&f.jobs, "jobs", 100_000, "continuous jobs, each with a source of its own")
	flags.IntVar(&f.targets, "targets", 100, "databases that the jobs write to")
	flags.IntVar(&f.slots, "slots", 500, "[replicator] max_jobs")
	flags.IntVar(&f.nodes, "nodes", 0, "nodes that run the jobs, which share the store with two others that get the documents; 0 is one node with both roles")
	flags.DurationVar(&f.idle, "idle", 5*time.Second, "[replicator] idle_timeout_sec")
	flags.DurationVar(&f.quiet, "quiet", 2*time.Minute, "how long the nodes are measured while nothing changes; idle connections are closed after 90 s")
	flags.DurationVar(&f.look, "look", time.Hour, "[replicator] max_idle_sec, in which all databases are compared")
	flags.Float64Var(&f.rate, "rate", 100, "documents written a second in the case changes")
	flags.DurationVar(&f.duration, "duration", time.Minute, "how long they are written")
	flags.IntVar(&f.burst, "burst", 1000, "sources that change at once")
	flags.StringVar(&f.endpoints, "endpoints", lab.OnSettee, "what has the databases: settee, couchdb, couchdb-without-feed, couchdb-alone")
	flags.StringVar(&f.storeNamed, "store", "embedded", "where the nodes with the jobs have them: embedded, or fdb, a FoundationDB (settee must be built with it)")
}

// Check implements lab.Measurement.
func (f *fleet) Check() error {
	for name := range strings.SplitSeq(f.cases, ",") {
		if err := lab.Choose("case", name, cases...); err != nil {
			return err
		}
	}
	err := errors.Join(lab.Choose("store", f.storeNamed, "embedded", "fdb"),
		lab.Choose("endpoint", f.endpoints, lab.OnSettee, lab.OnCouchDB, lab.OnCouchDBWithoutFeed, lab.OnCouchDBAlone))
	switch {
	case err != nil:
		return err
	case f.nodes > 0 && f.storeNamed == "embedded":
		return errors.New("-nodes needs -store fdb, which several nodes can share")
	case f.has("roll") && f.nodes < 2:
		return errors.New("the case roll needs -nodes: two at least, so that one can be stopped")
	case f.jobs < 1 || f.targets < 1 || f.slots < 1 || f.rate <= 0 || f.quiet <= 0 || f.duration <= 0:
		return errors.New("numbers must be positive")
	case f.idle < time.Second || f.look < time.Second:
		return errors.New("-idle and -look must be at least a second")
	case f.has("burst") && (f.burst < 1 || f.burst > f.jobs):
		return errors.New("there cannot be more sources that change at once than jobs")
	}
	return nil
}

// has reports whether a case is to be run.
func (f *fleet) has(name string) bool { return slices.Contains(strings.Split(f.cases, ","), name) }

// Measure implements lab.Measurement.
func (f *fleet) Measure(ctx context.Context) (err error) {
	if f.server, err = f.StartEndpoints(ctx, f.endpoints); err != nil {
		return err
	}
	text := fmt.Sprintf("%s, with databases of %s: %d jobs, %d slots", f.Version, f.server.About, f.jobs, f.slots)
	if f.nodes > 0 {
		text += fmt.Sprintf(" on each of %d nodes, with one store; memory and connections of the node that has most", f.nodes)
	}
	f.Report.Targets("%s", text)
	f.Databases = &lab.Databases{Sources: f.jobs, Targets: f.targets, Jobs: f.jobs}
	if err := f.Make(ctx, f.Run, f.server, "changed"); err != nil {
		return err
	}
	if f.endpoints == lab.OnCouchDBAlone {
		return lab.InOrder(ctx, f.alone, f.changes)
	}
	if err := f.start(ctx); err != nil {
		return err
	}
	for i, run := range []func(context.Context) error{f.first, f.parked, f.changes, f.atOnce, f.roll, f.restart} {
		name := cases[i]
		if name != "first" && !f.has(name) {
			continue
		}
		if err := run(ctx); err != nil {
			return fmt.Errorf("the case %s: %w", name, err)
		}
	}
	return nil
}

// start starts the nodes.
func (f *fleet) start(ctx context.Context) (err error) {
	f.store = "pebble:" + filepath.Join(f.Dir, "store")
	if f.storeNamed == "fdb" {
		if f.store, _, err = f.StartFoundationDB(ctx); err != nil {
			return err
		}
	}
	count := 1
	if f.nodes > 0 {
		count = frontends + f.nodes
	}
	for n := range count {
		node, err := f.startNode(ctx, n)
		if err != nil {
			return err
		}
		f.running = append(f.running, node)
		f.Say("%d of %d nodes started", len(f.running), count)
	}
	return nil
}

// startNode starts the node with a number on the store.
func (f *fleet) startNode(ctx context.Context, n int) (*lab.Node, error) {
	o := lab.NodeOptions{Store: f.store, Settings: []string{
		fmt.Sprintf("replicator/max_jobs=%d", f.slots), fmt.Sprintf("replicator/idle_timeout_sec=%d", int(f.idle.Seconds())),
		fmt.Sprintf("replicator/max_idle_sec=%d", int(f.look.Seconds())),
	}}
	switch {
	case f.nodes == 0: // both roles
	case n < frontends:
		o.Settings = append(o.Settings, lab.NoJobs)
	default:
		o.Replication = true
	}
	return f.StartNode(ctx, o)
}

// login makes a request to the databases. A node remembers a login for a minute, and refuses many at a time that it does
// not remember.
func (f *fleet) login(ctx context.Context) error {
	return f.server.Ask(ctx, http.MethodGet, "_session", nil, nil)
}

// add adds the jobs to a server.
func (f *fleet) add(ctx context.Context, to *lab.Server) error {
	return f.AddJobs(ctx, to, "_replicator", 0, f.jobs, map[string]any{"continuous": true})
}

// awaitJobs returns when all jobs are in a state.
func (f *fleet) awaitJobs(ctx context.Context, state string) error {
	return f.Within(ctx, "that all jobs are "+state, func(ctx context.Context) error {
		return f.running[0].AwaitJobs(ctx, func(states map[string]int) bool { return states[state] == f.jobs })
	})
}
