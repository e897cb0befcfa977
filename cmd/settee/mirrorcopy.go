package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"settee/replicator"
	"settee/replicator/worker"
)

// mirrorCopy copies the databases of a server.
type mirrorCopy struct {
	*mirrorRun
	stats replicator.Stats // of all runs, as far as they have reported
}

// copyMirror copies the databases of a server.
func (f *foreground) copyMirror() error {
	m, err := f.openMirror()
	if err != nil {
		return err
	}
	defer m.close()
	c := &mirrorCopy{mirrorRun: m}
	m.progress = func() string { return describeRun(c.stats, time.Since(m.display.began)) }
	names, err := m.sources(func(string) {})
	if err == nil {
		m.each(names, c.replicate)
	}
	return c.summary(err)
}

// replicate copies a database.
func (c *mirrorCopy) replicate(name string) (different bool, err error) {
	settings := c.settings
	settings.Refused = func(r worker.Refusal) { c.display.refused(fmt.Sprintf("%q: ", name), r) }
	reporter := &childReporter{of: c}
	result, err := worker.Run(c.cmd.Context(), worker.Job{Replication: c.replication.Child(name), Stop: c.stop}, settings, reporter)
	c.mu.Lock()
	defer c.mu.Unlock()
	reporter.count(result.RunStats)
	return false, err
}

// childReporter is the worker.Reporter of a database.
type childReporter struct {
	of   *mirrorCopy
	last replicator.Stats
}

// Identify does nothing.
func (*childReporter) Identify(context.Context, replicator.ID) error { return nil }

// Report shows the progress of the whole.
func (r *childReporter) Report(_ context.Context, p worker.Progress) error {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.count(p.RunStats)
	return r.of.draw()
}

// count adds to the counts of all databases what has come to the counts of this one. The caller holds mu.
func (r *childReporter) count(now replicator.Stats) {
	r.of.stats.Add(now)
	r.of.stats.Subtract(r.last)
	r.last = now
}

// summary prints what was done, and returns the error with the exit status. failed is why the databases could not be listed.
func (c *mirrorCopy) summary(failed error) error {
	took, o := time.Since(c.display.began), c.outcomes
	outcome, err := c.ended(failed, "stopped; the same command continues from the checkpoints", "copied")
	if err == nil {
		outcome = "completed"
		if c.stats.DocWriteFailures > 0 {
			err = &exitError{exitFindings, nil}
		}
	}
	return cmp.Or(err, c.display.say(struct {
		Outcome   string `json:"outcome"`
		Databases int    `json:"databases"`
		Copied    int    `json:"copied"`
		Failed    int    `json:"failed"`
		Vanished  int    `json:"vanished"`
		Left      int    `json:"left"` // that were not copied, or not wholly, because the command was stopped
		replicator.DocCounts
		Seconds float64 `json:"seconds"`
	}{outcome, o.selected, o.succeeded, o.failed, o.vanished, o.left(), c.stats.DocCounts, took.Seconds()},
		c.failures.text("databases failed")+fmt.Sprintf("%s: %d of %s copied, %d failed; %s",
			outcome, o.succeeded, databases(o.selected), o.failed, describeCopied(c.stats, took))))
}
