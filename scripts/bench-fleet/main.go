// Bench-fleet measures many continuous replications of which few have something to copy, and prints a table with the
// targets of each case. It is run by
//
//	make bench-fleet [FLEET_FLAGS="-jobs 2000"]
//
// It starts two nodes of settee, with stores in new directories: one is a frontend that has all sources and targets,
// the other one runs the jobs. With -endpoints the installed CouchDB has the sources and targets, with the feed
// _db_updates or without it; with -endpoints couchdb-alone it also runs the jobs, and only the case changes is measured,
// after its replicator has had a minute. The cases, in this order:
//
//   - few: 10 jobs and 500 slots, and one change at a time.
//   - first: replication documents are added until each job has copied the first document of its source.
//   - parked: all jobs are parked, and nothing changes.
//   - changes: documents are written to random sources, at random times (a Poisson process, from a seed).
//   - burst: a document is written to each of many sources at once.
//   - roll: with -nodes, each node that runs jobs is told to stop and started again, one after the other, while documents
//     are written to random sources. It needs jobs that are not parked: a long -idle, and as many -slots as jobs.
//   - restart: the node is killed and started again. Then a document is written to a random source. With -nodes it is
//     the one that gets the documents.
//
// Each job has a source of its own. The jobs share targets, whose changes feeds this program follows. A delay is from
// the answer to the write of a document until it is in the feed of its target.
//
// All nodes and this process share the machine. The processor time of all other processes is printed, which should be
// near 0. The program needs Linux, which counts the processor time of all processes in /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"settee/scripts/internal/lab"
)

// The cases, in their order.
const (
	caseFew     = "few"
	caseFirst   = "first"
	caseParked  = "parked"
	caseChanges = "changes"
	caseBurst   = "burst"
	caseRoll    = "roll"
	caseRestart = "restart"
)

var allCases = []string{caseFew, caseFirst, caseParked, caseChanges, caseBurst, caseRoll, caseRestart}

// usualCases are the cases that run if the flags name none.
var usualCases = []string{caseFew, caseFirst, caseParked, caseChanges, caseBurst, caseRestart}

// What has the databases: a node of settee, or the installed CouchDB with the feed _db_updates or without it. The last one
// runs the jobs, too.
const (
	setteeName      = "settee"
	couchDBName     = "couchdb"
	couchDBQuestion = "couchdb-without-feed"
	couchDBAlone    = "couchdb-alone"
)

var allEndpoints = []string{setteeName, couchDBName, couchDBQuestion, couchDBAlone}

// options are what the flags say.
type options struct {
	cases           string
	jobs, targets   int
	slots, nodes    int
	memory          int
	idle, quiet     time.Duration
	look            time.Duration
	rate            float64
	duration, limit time.Duration
	burst           int
	fewChanges      int
	seed            uint64
	endpoints       string
	settee, store   string
	json            bool
}

func (o *options) register(f *flag.FlagSet) {
	f.StringVar(&o.cases, "cases", strings.Join(usualCases, ","), "the cases, of "+strings.Join(allCases, ", ")+"; first is always run before those that follow it")
	f.IntVar(&o.jobs, "jobs", 100_000, "continuous jobs, each with a source of its own")
	f.IntVar(&o.targets, "targets", 100, "databases that the jobs write to")
	f.IntVar(&o.slots, "slots", 500, "[replicator] max_jobs")
	f.IntVar(&o.nodes, "nodes", 0, "nodes that run the jobs, which share the store with two others that get the documents; 0 is one node with both roles")
	f.IntVar(&o.memory, "memory", 0, "[settee] memory_limit_bytes of a node that runs the jobs, in MiB; 0 is the default of the setting")
	f.DurationVar(&o.idle, "idle", 5*time.Second, "[replicator] idle_timeout_sec")
	f.DurationVar(&o.quiet, "quiet", 2*time.Minute, "how long the nodes are measured while nothing changes; idle connections are closed after 90 s")
	f.DurationVar(&o.look, "look", time.Hour, "[replicator] max_idle_sec, in which all databases are compared")
	f.Float64Var(&o.rate, "rate", 100, "documents written a second in the case changes")
	f.DurationVar(&o.duration, "duration", time.Minute, "how long they are written")
	f.IntVar(&o.burst, "burst", 1000, "sources that change at once")
	f.IntVar(&o.fewChanges, "few-changes", 300, "changes in the case few")
	f.DurationVar(&o.limit, "limit", time.Hour, "how long the jobs may take to have their first run, to park, and to copy the last document")
	f.Uint64Var(&o.seed, "seed", 1, "decides when which source is written to")
	f.StringVar(&o.endpoints, "endpoints", setteeName, "what has the databases: "+strings.Join(allEndpoints, ", "))
	f.StringVar(&o.settee, "settee", "", "the settee `program`; otherwise it is built")
	f.StringVar(&o.store, "store", "", "the `URL` of an empty store of the node that runs the jobs; otherwise a new directory")
	f.BoolVar(&o.json, "json", false, "print a JSON object")
}

// check checks the options.
func (o *options) check() error {
	for name := range strings.SplitSeq(o.cases, ",") {
		if !slices.Contains(allCases, name) {
			return fmt.Errorf("there is no case %q", name)
		}
	}
	switch {
	case !slices.Contains(allEndpoints, o.endpoints):
		return fmt.Errorf("there are no endpoints %q", o.endpoints)
	case o.nodes < 0 || o.nodes > 0 && o.store == "":
		return errors.New("-nodes needs -store, which several nodes can share")
	case o.has(caseRoll) && o.nodes < 2:
		return errors.New("the case roll needs -nodes: two at least, so that one can be stopped")
	case o.memory != 0 && o.memory < 64:
		return errors.New("-memory must be 0 or at least 64")
	case o.jobs < 1 || o.targets < 1 || o.slots < 1:
		return errors.New("there must be a job, a target and a slot")
	case o.rate <= 0 || o.idle < time.Second || o.look < time.Second || o.quiet <= 0 || o.duration <= 0 || o.limit <= 0 || o.fewChanges < 1:
		return errors.New("numbers must be positive, and -idle and -look at least a second")
	case o.burst < 1 || o.burst > o.jobs:
		return errors.New("there cannot be more sources that change at once than jobs")
	}
	return nil
}

// has reports whether a case is to be run.
func (o *options) has(name string) bool { return slices.Contains(strings.Split(o.cases, ","), name) }

func main() {
	var o options
	lab.Program{
		Name: "bench-fleet", Register: o.register, Check: o.check,
		Measure: func(ctx context.Context) (func() error, error) {
			r, err := measure(ctx, &o, os.Stderr)
			if r == nil {
				return nil, err
			}
			return func() error { return r.print(os.Stdout, o.json) }, err
		},
	}.Run()
}

// print prints the report as a table or as a JSON object.
func (r *report) print(w io.Writer, asJSON bool) error { return lab.Print(w, r, r.table, asJSON) }
