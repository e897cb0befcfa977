// Bench-couchdb compares settee's replication with that of CouchDB, on the same databases of one CouchDB, and prints
// tables of ratios. It is run by
//
//	make bench-couchdb [BENCH_FLAGS="-all -pairs 5"]
//
// It starts the installed CouchDB (see package servers) with its data below the directory for temporary files (TMPDIR),
// or uses the one at the URL of -couchdb. settee runs as a user runs it: settee replicate for copies, and a node with
// its store in a directory for continuous jobs. CouchDB's side is POST /_replicate of that same CouchDB.
//
// The two take turns. Each turn has a new target, with the same number of shards and copies, and begins when the server
// is idle. A pair is one turn of each, and the ratio is of the two turns of a pair. The tables have the median of the
// pairs, and in brackets the smallest and the largest ratio.
//
// The endpoints' processor time is the time of all processes of CouchDB during a turn. In CouchDB's turns its replicator
// runs in the same process and is part of it. It is unknown for a CouchDB at a URL.
//
// It needs Linux, which counts the processor time of all processes in /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what the flags say. Sizes are in bytes.
type options struct {
	couchDB, settee, names string
	all                    bool
	pairs, q               int

	docs, docSize               int
	large, largeSize            int
	small, smallSize            int
	mixed, mixedSize, hugeSize  int
	contentType                 string
	burst                       int
	deliveries, idle, many      int
	idleTime, manyTime, pausing time.Duration
	resets                      int
}

func (o *options) register(f *flag.FlagSet) {
	f.StringVar(&o.couchDB, "couchdb", "", "the `URL` of a CouchDB with an administrator's name and password, instead of an installed one")
	f.StringVar(&o.settee, "settee", "bin/settee", "the settee `program`")
	f.StringVar(&o.names, "cases", "", "the cases to run, separated by commas: "+strings.Join(caseNames(), ", "))
	f.BoolVar(&o.all, "all", false, "run all cases; otherwise those that take seconds")
	f.IntVar(&o.pairs, "pairs", 3, "the number of pairs of turns in a case")
	f.IntVar(&o.q, "q", 2, "the number of shards of each database")
	f.IntVar(&o.docs, "docs", 50_000, "documents of -doc-size in docs and in the far cases")
	f.IntVar(&o.docSize, "doc-size", 1000, "the size of a document, without its attachments")
	f.IntVar(&o.large, "large", 100, "documents with an attachment of -large-size")
	f.IntVar(&o.largeSize, "large-size", 4<<20, "the size of the attachments in large")
	f.IntVar(&o.small, "small", 10_000, "documents with an attachment of -small-size")
	f.IntVar(&o.smallSize, "small-size", 10<<10, "the size of the attachments in small")
	f.IntVar(&o.mixed, "mixed", 1000, "documents of which every tenth has an attachment of -mixed-size")
	f.IntVar(&o.mixedSize, "mixed-size", 1<<20, "the size of the attachments in mixed")
	f.IntVar(&o.hugeSize, "huge-size", 1<<30, "the size of the attachment in huge")
	f.StringVar(&o.contentType, "type", "application/octet-stream", "the content type of attachments; CouchDB compresses some, such as text/plain")
	f.IntVar(&o.resets, "resets", 1000, "in far-200ms-resets, the connection of every such answer is reset when the answer begins")
	f.IntVar(&o.burst, "burst", 5000, "documents of -doc-size in burst")
	f.IntVar(&o.deliveries, "deliveries", 50, "documents written one after the other in delivery")
	f.DurationVar(&o.pausing, "pause", 100*time.Millisecond, "the time between two of them")
	f.IntVar(&o.idle, "idle", 1000, "continuous jobs in idle")
	f.DurationVar(&o.idleTime, "idle-time", time.Minute, "how long they are watched")
	f.IntVar(&o.many, "many", 200, "continuous jobs in many, with a document a second each")
	f.DurationVar(&o.manyTime, "many-time", 30*time.Second, "how long documents are written in many")
}

// chosen returns the cases to run.
func (o *options) chosen() ([]benchCase, error) {
	var chosen []benchCase
	names := strings.FieldsFunc(o.names, func(c rune) bool { return c == ',' || c == ' ' })
	for _, name := range names {
		if !slices.Contains(caseNames(), name) {
			return nil, fmt.Errorf("there is no case %q", name)
		}
	}
	for _, c := range cases {
		if slices.Contains(names, c.name) || len(names) == 0 && (o.all || c.usual) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

func (o *options) check() error {
	for _, n := range []int{o.pairs, o.q, o.docs, o.docSize, o.large, o.largeSize, o.small, o.smallSize, o.mixed,
		o.mixedSize, o.hugeSize, o.burst, o.deliveries, o.idle, o.many, o.resets} {
		if n < 1 {
			return errors.New("all numbers must be positive")
		}
	}
	_, err := o.chosen()
	return err
}

func main() {
	var o options
	o.register(flag.CommandLine)
	flag.Parse()
	err := o.check()
	if flag.NArg() > 0 {
		err = errors.New("it takes no arguments")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-couchdb: %v\n", err)
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err = compare(ctx, &o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-couchdb: %v\n", err)
		os.Exit(1)
	}
}

// compare runs the cases and prints the tables.
func compare(ctx context.Context, o *options, out io.Writer) (err error) {
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	b, err := openBench(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	r := report{server: b.server.About, settee: b.version, options: o}
	fmt.Fprintf(os.Stderr, "%s beside %s\n", r.settee, r.server)
	for _, c := range chosen {
		result, err := b.runCase(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.results = append(r.results, result)
	}
	return r.print(out)
}

// runCase prepares a case and runs its pairs.
func (b *bench) runCase(ctx context.Context, c benchCase) (result result, err error) {
	result.benchCase = c
	sources, err := c.prepare(ctx, b)
	defer func() { err = errors.Join(err, b.server.Remove(context.WithoutCancel(ctx), sources...)) }()
	if err != nil {
		return result, fmt.Errorf("filling the sources: %w", err)
	}
	for pair := range b.options.pairs {
		systems := []system{settee, couchDB}
		if pair%2 == 1 {
			slices.Reverse(systems)
		}
		turns := map[system]sample{}
		for _, s := range systems {
			if turns[s], err = c.turn(ctx, b, c, s, sources); err != nil {
				return result, fmt.Errorf("%s: %w", s, err)
			}
			fmt.Fprintf(os.Stderr, "%s, pair %d of %d: %s: %.2f s\n", c.name, pair+1, b.options.pairs, s, turns[s].wall.Seconds())
		}
		result.settee = append(result.settee, turns[settee])
		result.couchDB = append(result.couchDB, turns[couchDB])
	}
	return result, nil
}
