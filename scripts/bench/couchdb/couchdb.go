// Package couchdb compares settee's replication with that of CouchDB, on the same databases of one CouchDB. settee runs as a
// user runs it: settee replicate for copies, and a node with its store in a directory for continuous jobs. CouchDB's side is
// POST /_replicate of that same CouchDB.
//
// The two take turns. Each turn has a new target, and begins when the server is idle. A pair is one turn of each, and the ratio
// is of the two turns of a pair. The table has the median of the pairs, and in brackets the smallest and the largest ratio.
//
// The endpoints' processor time is the time of all processes of CouchDB during a turn. In CouchDB's turns its replicator
// runs in the same process and is part of it.
package couchdb

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"settee/pkg/retry"
	"settee/scripts/bench/lab"
)

// Scenario compares settee with CouchDB.
var Scenario = lab.Scenario{Name: "couchdb", New: func(r *lab.Run) lab.Measurement { return &bench{Run: r} }}

// bench is the flags and the server.
type bench struct {
	names string
	all   bool
	pairs int
	size  float64
	idle  time.Duration

	*lab.Run
	server *lab.Server
}

// Register implements lab.Measurement.
func (b *bench) Register(f *flag.FlagSet) {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	f.StringVar(&b.names, "cases", "", "the cases to run, separated by commas: "+strings.Join(names, ", "))
	f.BoolVar(&b.all, "all", false, "run all cases; otherwise those that take seconds")
	f.IntVar(&b.pairs, "pairs", 3, "the number of pairs of turns in a case")
	f.Float64Var(&b.size, "size", 1, "multiplies the numbers of documents")
	f.DurationVar(&b.idle, "idle", 30*time.Second, "how long a turn waits at most until the server is idle")
}

// Check implements lab.Measurement.
func (b *bench) Check() error {
	if b.pairs < 1 || b.size <= 0 {
		return errors.New("numbers must be positive")
	}
	_, err := b.chosen()
	return err
}

// chosen returns the cases to run.
func (b *bench) chosen() (chosen []benchCase, err error) {
	names := strings.FieldsFunc(b.names, func(c rune) bool { return c == ',' })
	for _, c := range cases {
		if slices.Contains(names, c.name) || len(names) == 0 && (b.all || c.usual) {
			chosen = append(chosen, c)
		}
	}
	if len(names) > len(chosen) {
		return nil, fmt.Errorf("there is no such case in %q", b.names)
	}
	return chosen, nil
}

// The systems of a pair.
const settee, couchDB = 0, 1

var systems = []string{"settee", "CouchDB"}

// Measure implements lab.Measurement.
func (b *bench) Measure(ctx context.Context) (err error) {
	if b.server, err = b.StartEndpoints(ctx, lab.OnCouchDBWithoutFeed); err != nil {
		return err
	}
	chosen, err := b.chosen()
	if err != nil {
		return err
	}
	about := fmt.Sprintf("%s, and %s; pairs of turns: %d; processors: %d", b.Version, b.server.About, b.pairs, runtime.NumCPU())
	b.Say("%s", about)
	for _, c := range chosen {
		about += "\n" + c.name + ": " + c.describe(b)
	}
	b.Report.Table(about, "case", "", "settee", "CouchDB", "ratio")
	for _, c := range chosen {
		measured, err := b.runCase(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		for _, m := range measures {
			ours, theirs := measured[settee], measured[couchDB]
			b.Report.Row(c.name, m.name, lab.Number(ours.Median(m.name), m.digits), lab.Number(theirs.Median(m.name), m.digits), ours.Ratios(m.name, theirs))
		}
	}
	return nil
}

// runCase makes the source of a case and runs its pairs.
func (b *bench) runCase(ctx context.Context, c benchCase) (measured []lab.Samples, err error) {
	source, err := b.create(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.remove(context.WithoutCancel(ctx), source)) }()
	if !c.continuous {
		if err := b.fill(ctx, source, b.scaled(c.docs), c.attachment); err != nil {
			return nil, fmt.Errorf("filling the source: %w", err)
		}
	}
	return lab.InTurns(b.pairs, systems, func(turn, system int) (lab.Sample, error) {
		s, err := b.turn(ctx, c, system, source)
		if err == nil {
			b.Say("%s, pair %d of %d: %s: %.2f s", c.name, turn+1, b.pairs, systems[system], s[wall])
		}
		return s, err
	})
}

// scaled returns a number of documents, at least one.
func (b *bench) scaled(n int) int { return max(1, int(float64(n)*b.size)) }

// create makes a database with a new name.
func (b *bench) create(ctx context.Context) (string, error) {
	name := "bench-" + newID()
	return name, b.server.Ask(ctx, http.MethodPut, name, nil, nil)
}

func (b *bench) remove(ctx context.Context, name string) error {
	return b.server.Ask(ctx, http.MethodDelete, name, nil, nil)
}

// What a turn measures.
const (
	wall      = "time, s"
	endpoints = "processor of the endpoints, s" // of CouchDB
	own       = "processor of settee, s"
	memory    = "memory of settee, MiB" // the largest resident set
)

// measures are these values, and how many digits they have after the point.
var measures = []struct {
	name   string
	digits int
}{{wall, 2}, {endpoints, 2}, {own, 2}, {memory, 0}}

// quietFor is how long a server must use less than a twentieth of a processor to be idle.
const quietFor = 500 * time.Millisecond

// rest waits until the server is idle. After -idle a turn begins anyway.
func (b *bench) rest(ctx context.Context) error {
	for limit := time.Now().Add(b.idle); time.Now().Before(limit); {
		before, err := b.server.Processor()
		if err != nil {
			return err
		}
		if err := retry.Wait(ctx, quietFor); err != nil {
			return err
		}
		after, err := b.server.Processor()
		if err != nil || after-before < quietFor/20 {
			return err
		}
	}
	return nil
}
