// Load gives one node of settee jobs and changes to copy, and prints what the node did. It is run by
//
//	make load [LOAD_FLAGS="-jobs 100 -rate 100"]
//
// It starts a node with its store in a new directory, adds documents to several replicator databases, and waits until
// all jobs run and have copied the first documents of their sources. Then it writes documents to random sources, at
// random times (a Poisson process, from a seed). After a warm-up it measures for a time, and waits until every document
// is on the target of every job that reads its source. It fails if one does not come. In the end it stops everything
// that it has started.
//
// With -once the jobs end when they have copied the documents that there are. Time counts from when the node may run
// jobs, which all wait then, until the last one has ended. With -every they do so again and again.
//
// The endpoints are a server in a process of its own, which answers at little cost and also writes the documents, or
// databases of a CouchDB, which are removed again, and to which this process writes. A delay is from the answer to the
// write of a document until the target gets it, or until it is in the changes feed of a CouchDB.
//
// The node, the endpoints and this process share the machine. The processor time of each is printed, and the time of all
// other processes, which should be near 0. -node-cpus and -endpoint-cpus confine two of them to some processors.
//
// It needs Linux, which counts the processor time of all processes in /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"time"

	"settee/scripts/internal/lab"
)

// The names of endpoints that are not at a URL.
const (
	simulatedName = "simulated"
	couchDBName   = "couchdb"
)

// options are what the flags say.
type options struct {
	databases, jobs, sources int
	docs, docSize            int
	rate                     float64
	seed                     uint64
	warmUp, duration, limit  time.Duration
	once                     bool
	every                    time.Duration
	endpoints                string
	settee, store            string
	maxJobs                  int
	settings                 list
	nodeCPUs, endpointCPUs   string
	json                     bool
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

// Set implements flag.Value.
func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func (o *options) register(f *flag.FlagSet) {
	f.IntVar(&o.databases, "databases", 10, "replicator databases")
	f.IntVar(&o.jobs, "jobs", 100, "jobs in each replicator database")
	f.IntVar(&o.sources, "sources", 0, "databases that the jobs read, each job one of them; 0: one for each job")
	f.IntVar(&o.docs, "docs", 1, "documents in each source at the beginning")
	f.IntVar(&o.docSize, "doc-size", 1000, "the size of a document in bytes")
	f.Float64Var(&o.rate, "rate", 100, "documents written a second, to all sources together")
	f.Uint64Var(&o.seed, "seed", 1, "decides when which source is written to")
	f.DurationVar(&o.warmUp, "warm-up", 5*time.Second, "how long documents are written before the node is measured")
	f.DurationVar(&o.duration, "duration", 30*time.Second, "how long the node is measured")
	f.DurationVar(&o.limit, "limit", 2*time.Minute,
		"how long the jobs may take to start, to copy the last document, and with -once to end")
	f.BoolVar(&o.once, "once", false, "the jobs are one-shot; nothing is written but -docs")
	f.DurationVar(&o.every, "every", 0, "the jobs are one-shot, and repeated so often; otherwise they are continuous")
	f.StringVar(&o.endpoints, "endpoints", simulatedName,
		"simulated, couchdb (the installed one is started), or the `URL` of a CouchDB with an administrator's name\nand password")
	f.StringVar(&o.settee, "settee", "", "the settee `program`; otherwise it is built")
	f.StringVar(&o.store, "store", "", "the `URL` of an empty store; otherwise a new directory")
	f.IntVar(&o.maxJobs, "max-jobs", 0, "[replicator] max_jobs; 0: all jobs, or 500 with -once and -every")
	f.Var(&o.settings, "set", "another setting of the node, as `section/key=value`; may be repeated")
	f.StringVar(&o.nodeCPUs, "node-cpus", "", "the processors of the node, as taskset takes them, such as 0-1")
	f.StringVar(&o.endpointCPUs, "endpoint-cpus", "", "the processors of simulated endpoints")
	f.BoolVar(&o.json, "json", false, "print a JSON object")
}

// setteeMaxJobs is the default of [replicator] max_jobs.
const setteeMaxJobs = 500

// complete checks the options and fills in those that follow from others.
func (o *options) complete() error {
	all := o.databases * o.jobs
	if o.sources == 0 {
		o.sources = all
	}
	if o.once {
		o.rate = 0
	}
	if o.maxJobs == 0 {
		o.maxJobs = all
		if o.once || o.every > 0 {
			o.maxJobs = min(all, setteeMaxJobs)
		}
	}
	switch {
	case o.databases < 1 || o.jobs < 1 || o.maxJobs < 1:
		return errors.New("there must be a job")
	case o.sources < 1 || o.sources > all:
		return errors.New("there cannot be more sources than jobs")
	case o.docs < 0 || o.docSize < 1 || o.rate < 0 || o.warmUp < 0 || o.duration <= 0 || o.limit <= 0 || o.every < 0:
		return errors.New("numbers must be positive")
	case o.once && o.every > 0:
		return errors.New("-once and -every exclude each other")
	case o.endpointCPUs != "" && o.endpoints != simulatedName:
		return errors.New("-endpoint-cpus is for simulated endpoints")
	}
	return nil
}

func (o *options) plan() plan {
	return plan{
		Jobs: o.databases * o.jobs, Sources: o.sources, Docs: o.docs, DocSize: o.docSize, Rate: o.rate, Seed: o.seed,
	}
}

// name is the name of the program.
const name = "load"

func main() {
	if asked, err := simulate(); asked {
		lab.Exit(name, err, 1)
	}
	var o options
	lab.Program{
		Name: name, Register: o.register, Check: o.complete,
		Measure: func(ctx context.Context) (func() error, error) {
			r, err := load(ctx, &o, os.Stderr)
			if r == nil {
				return nil, err
			}
			return func() error { return r.print(os.Stdout, o.json) }, err
		},
	}.Run()
}

// print prints the report as a table or as a JSON object.
func (r *report) print(w io.Writer, asJSON bool) error { return lab.Print(w, r, r.table, asJSON) }
