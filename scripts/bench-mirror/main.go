// Bench-mirror measures how long it takes to copy all databases of a CouchDB to another one: by a mirror, which is one
// document on a node of settee, and by a loop of the obvious kind, which asks the target for `_replicate` of one database of
// `_all_dbs` after another. Then it measures how long a new database takes to be at the target. It prints a table with the
// targets. It is run by
//
//	make bench-mirror [MIRROR_FLAGS="-databases 100"]
//
// It starts two of the installed CouchDB, of which the source has a database `_global_changes`, and a node of settee with a
// store in a new directory. The databases of the target are deleted between two ways of copying. The order of the two ways
// changes with each pair.
//
// A delay is from the answer to the write of the first document of a new database until the target has the document. The
// target is asked for it every -poll.
//
// All servers and this process share the machine. The processor time of all other processes is printed, which should be
// near 0. The program needs Linux, which counts the processor time of all processes in /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"time"

	"settee/scripts/internal/lab"
)

// options are what the flags say.
type options struct {
	databases, docs int
	size            int
	starts          int
	pairs           int
	fresh           int
	poll, limit     time.Duration
	seed            uint64
	settee          string
	json            bool
}

func (o *options) register(f *flag.FlagSet) {
	f.IntVar(&o.databases, "databases", 1000, "databases of the source")
	f.IntVar(&o.docs, "docs", 100, "documents of each")
	f.IntVar(&o.size, "size", 200, "the size of a document in bytes, about")
	f.IntVar(&o.starts, "starts", 20, "[replicator] mirror_starts")
	f.IntVar(&o.pairs, "pairs", 1, "how many times all databases are copied by each of the two")
	f.IntVar(&o.fresh, "new", 20, "new databases")
	f.DurationVar(&o.poll, "poll", 20*time.Millisecond, "how often the target is asked for the document of a new database")
	f.DurationVar(&o.limit, "limit", time.Hour, "how long one way may take to copy all databases")
	f.Uint64Var(&o.seed, "seed", 1, "decides when new databases are made")
	f.StringVar(&o.settee, "settee", "", "the settee `program`; otherwise it is built")
	f.BoolVar(&o.json, "json", false, "print a JSON object")
}

// check checks the options.
func (o *options) check() error {
	if o.databases < 1 || o.docs < 1 || o.size < 1 || o.starts < 1 || o.pairs < 1 || o.fresh < 1 || o.poll <= 0 || o.limit <= 0 {
		return errors.New("numbers must be positive")
	}
	return nil
}

func main() {
	var o options
	lab.Program{
		Name: "bench-mirror", Register: o.register, Check: o.check,
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
