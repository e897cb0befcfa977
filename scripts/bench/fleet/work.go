package fleet

import (
	"context"
	"fmt"
	"time"

	"settee/pkg/retry"
	"settee/scripts/bench/lab"
)

// The metrics of nodes that say what they have done in a case.
const (
	requests    = "couchdb_couch_replicator_requests_total" // to the endpoints
	runs        = "couchdb_couch_replicator_jobs_starts_total"
	claims      = "settee_replicator_claims_total"
	emptyClaims = "settee_replicator_empty_claims_total"
	claimedJobs = "settee_replicator_claimed_jobs_total"
	// Jobs that were woken, by cause.
	byFeed      = `settee_watch_wakes_total{cause="feed"}`
	byQuestions = `settee_watch_wakes_total{cause="question"}`
	bySafety    = `settee_watch_wakes_total{cause="safety_look"}`
)

// work is what the nodes have done, by metric.
type work map[string]float64

// String returns the numbers of runs, claims and woken jobs.
func (w work) String() string {
	text := fmt.Sprintf("%.0f runs, %.0f claims took %.0f jobs, %.0f took none", w[runs], w[claims]-w[emptyClaims], w[claimedJobs], w[emptyClaims])
	if w[claimedJobs] > 0 {
		text += fmt.Sprintf(": %.2f for each job", w[emptyClaims]/w[claimedJobs])
	}
	if w[byFeed]+w[byQuestions]+w[bySafety] > 0 {
		text += fmt.Sprintf("; woken: %.0f by feeds, %.0f by questions, %.0f by the safety look", w[byFeed], w[byQuestions], w[bySafety])
	}
	return text
}

// done returns what the running nodes have done since they started.
func (f *fleet) done(ctx context.Context) work {
	all := work{}
	for _, node := range f.running { // none with couchdb-alone
		for name, value := range node.Metrics(ctx) {
			all[name] += value
		}
	}
	return all
}

// nodes is the first party of the meter.
const nodes = 0

// measure returns what is used and done while do runs. Asking the nodes what they have done is not part of it.
func (f *fleet) measure(ctx context.Context, do func() error) (lab.Used, work, error) {
	before := f.done(ctx)
	meter := lab.Meter{{Name: "nodes", Time: f.processor}, {Name: "endpoints", Time: f.server.Processor}}
	used, err := meter.Measure(do)
	done := f.done(ctx)
	for name := range done {
		done[name] -= before[name]
	}
	return used, done, err
}

// processor returns the processor time of the running nodes.
func (f *fleet) processor() (sum time.Duration, err error) {
	for _, node := range f.running {
		of, err := node.Processor()
		if err != nil {
			return 0, err
		}
		sum += of
	}
	return sum, nil
}

// report adds what a case has used and done.
func (f *fleet) report(used lab.Used, w work) {
	f.Report.Measured("  processor, of a core", "", "%s", used)
	f.Report.Measured("  work", "at most 2 empty claims for each job", "%.0f requests to the databases, %s", w[requests], w)
}

// rest measures nodes that have nothing to do.
func (f *fleet) rest(ctx context.Context, title string) error {
	used, w, err := f.measure(ctx, func() error {
		for _, node := range f.running {
			node.CloseIdle()
		}
		return retry.Wait(ctx, f.quiet)
	})
	if err != nil {
		return err
	}
	var resident, largest, heap, goroutines, connections float64
	for _, node := range f.running {
		now, most := node.Memory()
		metrics := node.Metrics(ctx)
		resident, largest = max(resident, now), max(largest, most)
		heap, goroutines = max(heap, metrics["go_memstats_heap_alloc_bytes"]), max(goroutines, metrics["go_goroutines"])
		connections = max(connections, metrics["settee_replicator_connections"])
	}
	const megabyte = 1_000_000
	row := f.Report.Measured
	row(title+": memory", "300 MB", "%.0f MB (%.0f MB at most; Go heap %.0f MB, %.0f goroutines)",
		resident/megabyte, largest/megabyte, heap/megabyte, goroutines)
	row("  processor, of a core", "2 %", "%.2f %% for %.0f s (%s)", 100*used.Cores(nodes), used.Seconds, used)
	row("  connections", "50", "%.0f", connections)
	row("  requests to the databases", "10/s", "%.2f/s", w[requests]/used.Seconds)
	row("  work", "no run without a change", "%s", w)
	return nil
}
