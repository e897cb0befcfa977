// Bench measures settee. Its scenarios are called by make:
//
//	make bench-budget     jobs that share the budget of a server
//	make bench-couchdb    copies, beside CouchDB's own replicator
//	make bench-fleet      many continuous jobs of which few have something to copy
//	make bench-mirror     a mirror of a CouchDB, beside a loop of _replicate
//	make bench-peers      the job layer, beside River on PostgreSQL
//	make load             what a node takes with jobs and changes
//
// docs/benchmarks.md says what each measures, and which command has made which figure of the documents.
//
// A scenario starts all servers that it needs, with their files below the directory for temporary files (TMPDIR), and ends
// them. All servers and this program share the machine. Where processor time is measured, that of all other processes is
// printed, which should be near 0. The program needs Linux, which counts processor time in /proc.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"settee/scripts/bench/budget"
	"settee/scripts/bench/couchdb"
	"settee/scripts/bench/fleet"
	"settee/scripts/bench/lab"
	"settee/scripts/bench/load"
	"settee/scripts/bench/mirror"
	"settee/scripts/bench/peers"
)

var scenarios = []lab.Scenario{budget.Scenario, couchdb.Scenario, fleet.Scenario, load.Scenario, mirror.Scenario, peers.Scenario}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	report, err := lab.Execute(ctx, scenarios, os.Args[1:], os.Stderr)
	stop()
	if errors.Is(err, lab.ErrUsage) {
		os.Exit(2)
	}
	if err := errors.Join(report.Print(os.Stdout), err); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}
