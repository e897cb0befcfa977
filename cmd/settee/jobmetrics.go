package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"settee/replicator"
	"settee/replicator/jobs"
)

// jobNumbers collects the numbers of jobs by state, and how long some wait. It reads them from the store, so they count
// the jobs of all nodes and are the same on every node. It also collects how the store answered.
type jobNumbers struct {
	lists                                                      *jobs.Lists
	crashAlert                                                 func() time.Duration
	couch                                                      map[replicator.State]*prometheus.Desc
	total, states                                              *prometheus.Desc
	problems, hosts                                            *prometheus.Desc
	due, crashing                                              *prometheus.Desc
	stuck, behind                                              *prometheus.Desc
	longCrashing, stuckJobs                                    *prometheus.Desc
	mirrorLag, mirrorFailing, mirrorUnproved, mirrorVerifyLate *prometheus.Desc
	readable, readingSeconds                                   *prometheus.Desc
}

func newJobNumbers(lists *jobs.Lists, crashAlert func() time.Duration) *jobNumbers {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("couchdb_couch_replicator_jobs_"+name, help+", of all nodes together", nil, nil)
	}
	own := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("settee_"+name, help, labels, nil)
	}
	return &jobNumbers{lists: lists, crashAlert: crashAlert, total: desc("total", "replication jobs that have not ended"),
		states: own("replicator_jobs", "replication jobs in each state in which they are shown, of all nodes together", "state"),
		problems: own("replicator_problem_jobs", "replication jobs that need attention, by what is wrong at which end, of all nodes "+
			"together; a label is empty if the fault is of no end", "kind", "code", "side"),
		hosts: own("replicator_endpoint_problem_jobs", "replication jobs that need attention because of a host, of all nodes together: "+
			"the 20 hosts with the most, and all others as other", "host"),
		due: own("replicator_oldest_due_job_seconds", "how long the replication job that is due for the longest time has "+
			"waited for a node; 0 if none is due. Of the owners it looks at the 100 that are served next"),
		crashing: own("replicator_longest_crashing_job_seconds", "time since the first crash of the replication job that has "+
			"crashed for the longest time without recovering, and is not acknowledged; 0 if there is none"),
		longCrashing: own("replicator_long_crashing_jobs", "replication jobs that have crashed for longer than [replicator] "+
			"crash_alert_sec without recovering, without those that are acknowledged, of all nodes together; at most 1,000"),
		stuck: own("replicator_longest_stuck_job_seconds", "how long the replication job that has made no progress for the longest "+
			"time has made none in its runs, although they have something to do; 0 if no job is stuck that is not acknowledged"),
		stuckJobs: own("replicator_stuck_jobs", "replication jobs whose runs have something to do and have made no progress for longer "+
			"than [replicator] stuck_after_sec, without those that are acknowledged, of all nodes together; at most 1,000"),
		behind: own("replicator_lag_seconds", "age of the oldest change that may be missing at the target of a continuous job, as "+
			"far as runs know; 0 while no job is behind for longer than [replicator] stuck_after_sec"),
		mirrorLag: own("mirror_lag_seconds", "age of the oldest change that may be missing at the target of a mirror, those included "+
			"that are not known yet because its source has no feed; 0 if none is. Of the first 100 continuous mirrors", "mirror"),
		mirrorFailing: own("mirror_failing_databases", "databases of a mirror whose replications fail, without those that are acknowledged. "+
			"Of the first 100 continuous mirrors", "mirror"),
		mirrorUnproved: own("mirror_unproved_databases", "databases of a mirror that its latest comparison of both servers found different, or could "+
			"not compare; 0 before the first one. Of the first 100 continuous mirrors with verify, or that were compared", "mirror"),
		mirrorVerifyLate: own("mirror_verify_overdue_seconds", "how late the next comparison of both servers of a mirror is; 0 if it is not due. Of "+
			"the first 100 continuous mirrors with verify", "mirror"),
		readable:       own("store_readable", "1 if the store answered this node's reads for these metrics within 5 seconds, else 0"),
		readingSeconds: own("store_read_seconds", "how long this node's reads for these metrics took"),
		couch: map[replicator.State]*prometheus.Desc{
			replicator.StateRunning:  desc("running", "replication jobs that run"),
			replicator.StatePending:  desc("pending", "replication jobs that wait for their turn or for their next time, without those that have crashed, are parked or are paused"),
			replicator.StateCrashing: desc("crashed", "replication jobs that have crashed, and wait to be tried again"),
		},
	}
}

// Describe implements prometheus.Collector.
func (n *jobNumbers) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{n.total, n.states, n.problems, n.hosts, n.due, n.crashing, n.longCrashing, n.stuck, n.stuckJobs, n.behind, n.mirrorLag, n.mirrorFailing, n.mirrorUnproved, n.mirrorVerifyLate, n.readable, n.readingSeconds} {
		out <- desc
	}
	for _, desc := range n.couch {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (n *jobNumbers) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	put := func(desc *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	began := time.Now()
	counts, err := n.lists.Counts(ctx)
	var waits jobs.Waits
	if err == nil {
		waits, err = n.lists.Waits(ctx, began.Add(-n.crashAlert()))
	}
	var problems []jobs.Problem
	if err == nil {
		problems, err = n.lists.Problems(ctx)
	}
	var late []jobs.Problem
	if err == nil {
		late, _, err = n.lists.LateWatches(ctx)
	}
	problems = append(problems, late...)
	var mirrors jobs.List
	if err == nil {
		mirrors, err = n.lists.List(ctx, jobs.Filter{Mirrors: true}, jobs.ListOptions{Limit: shownMirrors})
	}
	put(n.readable, oneIf(err == nil))
	put(n.readingSeconds, time.Since(began).Seconds())
	if err != nil {
		out <- prometheus.NewInvalidMetric(n.total, fmt.Errorf("counting the replication jobs: %w", err))
		return
	}
	n.count(counts, out)
	n.countProblems(problems, out)
	put(n.due, secondsSince(counts.Due))
	put(n.crashing, secondsSince(waits.Crashing))
	put(n.longCrashing, float64(waits.LongCrashing))
	put(n.stuck, secondsSince(waits.Stuck))
	put(n.stuckJobs, float64(waits.StuckJobs))
	put(n.behind, secondsSince(waits.Behind))
	for _, mirror := range mirrors.Jobs {
		name, failing := mirrorName(mirror), mirror.Summary.NotCopied()-mirror.Summary.Acknowledged
		if progress := mirror.State.Mirror; progress != nil {
			failing += progress.LeftOut
		}
		if mirror.IsPaused() {
			failing = 0
		}
		out <- prometheus.MustNewConstMetric(n.mirrorLag, prometheus.GaugeValue, secondsSince(mirror.Summary.LagsSince()), name)
		out <- prometheus.MustNewConstMetric(n.mirrorFailing, prometheus.GaugeValue, float64(failing), name)
		n.verified(mirror, name, out)
	}
}

// verified puts what the comparisons of the servers of a mirror have found.
func (n *jobNumbers) verified(mirror *jobs.Job, name string, out chan<- prometheus.Metric) {
	p, of := mirror.State.Mirror, mirror.Args.Replication
	scheduled, unproved := of != nil && of.Mirror.VerifyEvery() > 0, int64(0)
	if p != nil && p.Verified != nil {
		unproved = p.Verified.Different + p.Verified.Failed
	}
	if scheduled || p != nil && p.Verified != nil {
		out <- prometheus.MustNewConstMetric(n.mirrorUnproved, prometheus.GaugeValue, float64(unproved), name)
	}
	if scheduled {
		late := time.Duration(0)
		if !mirror.IsPaused() {
			late = p.VerifyLate(of.Mirror, mirror.Args.Added, time.Now())
		}
		out <- prometheus.MustNewConstMetric(n.mirrorVerifyLate, prometheus.GaugeValue, late.Seconds(), name)
	}
}

// count puts the numbers of jobs by state, and those that CouchDB has.
func (n *jobNumbers) count(counts jobs.Counts, out chan<- prometheus.Metric) {
	couch, total := map[replicator.State]int64{replicator.StatePending: -counts.Again, replicator.StateCrashing: counts.Again}, int64(0)
	for _, state := range replicator.ShownStates {
		of := counts.Jobs[state]
		out <- prometheus.MustNewConstMetric(n.states, prometheus.GaugeValue, float64(of), string(state))
		switch state {
		case replicator.ShownScheduled:
			couch[replicator.StatePending] += of
		case replicator.ShownPending, replicator.ShownRunning, replicator.ShownCrashing:
			couch[replicator.State(state)] += of
		case replicator.ShownCompleted, replicator.ShownFailed:
			continue
		}
		total += of
	}
	for state, desc := range n.couch {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(couch[state]))
	}
	out <- prometheus.MustNewConstMetric(n.total, prometheus.GaugeValue, float64(total))
}

// shownHosts is the number of hosts with metrics of their own.
const shownHosts = 20

// otherHosts is the label of all other hosts.
const otherHosts = "other"

// countProblems puts the numbers of jobs that need attention.
func (n *jobNumbers) countProblems(problems []jobs.Problem, out chan<- prometheus.Metric) {
	type what struct{ kind, code, side string }
	kinds, hosts := map[what]int64{}, map[string]int64{}
	for _, p := range problems {
		kinds[what{string(p.Kind), string(p.Code), string(p.Side)}] += p.Jobs
		if p.Host != "" {
			hosts[p.Host] += p.Jobs
		}
	}
	for w, of := range kinds {
		out <- prometheus.MustNewConstMetric(n.problems, prometheus.GaugeValue, float64(of), w.kind, w.code, w.side)
	}
	most := slices.SortedFunc(maps.Keys(hosts), func(a, b string) int { return cmp.Or(cmp.Compare(hosts[b], hosts[a]), cmp.Compare(a, b)) })
	others := int64(0)
	for i, host := range most {
		if i >= shownHosts || host == otherHosts {
			others += hosts[host]
			continue
		}
		out <- prometheus.MustNewConstMetric(n.hosts, prometheus.GaugeValue, float64(hosts[host]), strings.ToValidUTF8(host, "\uFFFD"))
	}
	out <- prometheus.MustNewConstMetric(n.hosts, prometheus.GaugeValue, float64(others), otherHosts)
}

// shownMirrors is the number of mirrors with metrics of their own.
const shownMirrors = 100

// mirrorName returns the name of a mirror in metrics: its database and document, or its job id.
func mirrorName(job *jobs.Job) string {
	if database, docID, ok := job.Document(); ok {
		return strings.ToValidUTF8(database+"/"+docID, "\uFFFD")
	}
	return job.ID
}

// secondsSince returns the time since at, or 0 if at is zero or later than now.
func secondsSince(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, time.Since(at).Seconds())
}
