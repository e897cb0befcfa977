// Bench-peers runs the same jobs through fdbjobs and through River (https://riverqueue.com), a Go library for jobs in
// PostgreSQL, and prints tables that compare the two. It is run by
//
//	make bench-peers [JOBS=n]
//
// The systems take turns: River on PostgreSQL, fdbjobs on the embedded store, and, with the build tag fdb, fdbjobs on a
// FoundationDB of one process. A turn starts with an empty store and with servers of its own, which end with it.
// Everything is below the directory for temporary files (TMPDIR). Each system acknowledges a commit when it is on disk.
//
// It needs Linux, which counts the processor time of all processes in /proc.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	jobs := flag.Int("jobs", 100_000, "the number of jobs in a turn")
	flag.Parse()
	if flag.NArg() > 0 || *jobs < latencyPart {
		fmt.Fprintf(os.Stderr, "bench-peers takes no arguments, and at least %d jobs\n", latencyPart)
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := compare(ctx, *jobs)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench-peers: %v\n", err)
		os.Exit(1)
	}
}

// compare measures all systems and prints the tables.
func compare(ctx context.Context, jobs int) error {
	systems, err := findSystems(ctx)
	if err != nil {
		return err
	}
	r := report{jobs: jobs, systems: systems}
	if r.sync, err = measureSync(ctx); err != nil {
		return err
	}
	for _, l := range loads {
		var row []cycles
		for _, s := range systems {
			fmt.Fprintf(os.Stderr, "%s: %s\n", l, s.name)
			c, err := s.measureCycles(ctx, l, jobs)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", l, s.name, err)
			}
			row = append(row, c)
		}
		r.cycles = append(r.cycles, row)
	}
	for _, s := range systems {
		fmt.Fprintf(os.Stderr, "latency: %s\n", s.name)
		l, err := s.measureLatency(ctx, jobs/latencyPart)
		if err != nil {
			return fmt.Errorf("latency: %s: %w", s.name, err)
		}
		r.latencies = append(r.latencies, l)
	}
	return r.print(os.Stdout)
}

// findSystems returns the systems to compare, River first.
func findSystems(ctx context.Context) ([]system, error) {
	river, err := findRiver(ctx)
	if err != nil {
		return nil, err
	}
	stores, err := findStores()
	return append([]system{river}, stores...), err
}
