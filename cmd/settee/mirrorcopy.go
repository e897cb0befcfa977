package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"settee/replicator"
	"settee/replicator/worker"
)

// runMirror copies a server.
func (f *replicateFlags) runMirror(c *client, mirror *replicator.Replication) error {
	settings, err := c.worker(mirror)
	if err != nil {
		return err
	}
	cmd := c.cmd
	stop, unwatch := stopOnSignal(cmd.Context())
	defer unwatch()
	s, err := openServers(stop, cmd, mirror, settings, f.databases)
	if err != nil {
		return err
	}
	defer s.close()
	m := &mirrorCopy{mirrorServers: s, json: f.json, began: time.Now()}
	s.settings.Refused = nil // see replicate
	names, err := s.names("source", s.source, s.selects)
	if err == nil && len(names) == 0 {
		err = errNoDatabases
	}
	if err == nil {
		m.total = len(names)
		names, left := mirrorable(names)
		for _, failure := range left {
			m.fail(failure)
		}
		s.each(names, m.replicate)
	}
	status := m.end(err)
	if status != nil && (m.failures.count > 0 || err != nil || stop.Err() != nil) || !f.verify {
		return status
	}
	what := worker.Verification{Replication: mirror, Wait: defaultWait, Stop: stop}
	if different := verifyMirror(cmd, what, settings, f.databases, f.json, time.Time{}); different != nil {
		return different
	}
	return status
}

// mirrorCounts are the counts of a mirror in the foreground, as --json prints them.
type mirrorCounts struct {
	Databases int `json:"databases"` // that the patterns select
	Copied    int `json:"copied"`
	Failed    int `json:"failed"`
	Vanished  int `json:"vanished"` // deleted at the source meanwhile
	Left      int `json:"left"`     // that were not copied, or not wholly, because the command was stopped

	replicator.DocCounts
}

// mirrorCopy copies the databases of a server.
type mirrorCopy struct {
	*mirrorServers
	json  bool
	total int // databases
	began time.Time

	mu                    sync.Mutex
	copied, vanishedCount int
	failures              shortList
	stats                 replicator.Stats // of all runs, as far as they have reported
}

// replicate copies a database, and reports whether to go on with others.
func (c *mirrorCopy) replicate(name string) bool {
	settings := c.settings
	settings.Refused = func(r worker.Refusal) { c.display.refusedIn(fmt.Sprintf("%q: ", name), r) }
	reporter := &childReporter{all: c}
	result, err := worker.Run(c.cmd.Context(), worker.Job{Replication: c.mirror.Child(name), Stop: c.stop}, settings, reporter)
	reporter.count(result.RunStats)
	vanished := c.vanished(name, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.copied++
	case errors.Is(err, worker.ErrStopped):
	case vanished:
		c.vanishedCount++
	default:
		c.fail(newFailure(name, err))
	}
	_ = c.draw()
	return c.failures.count < hopeless || c.copied > 0
}

// fail counts a database that could not be copied. The caller holds mu, or is alone.
func (c *mirrorCopy) fail(failure failureObject) {
	if c.failures.add(failure.line()); c.json {
		_ = c.display.write(c.cmd.OutOrStdout(), jsonLine(failure)+"\n")
	}
}

// draw shows the progress. The caller holds mu.
func (c *mirrorCopy) draw() error {
	left := int64(c.total - c.copied - c.vanishedCount - c.failures.count)
	text := fmt.Sprintf("%d of %s, ", int64(c.total)-left, databases(c.total))
	if c.failures.count > 0 {
		text += fmt.Sprintf("%d failed, ", c.failures.count)
	}
	return c.display.draw(text+fmt.Sprintf("%d read, %d written, %.0f/s",
		c.stats.DocsRead, c.stats.DocsWritten, perSecond(c.stats.DocsWritten, time.Since(c.began))), &left)
}

// childReporter is the worker.Reporter of a database.
type childReporter struct {
	all  *mirrorCopy
	last replicator.Stats
}

// Identify does nothing.
func (*childReporter) Identify(context.Context, replicator.ID) error { return nil }

// Report shows the progress of the whole.
func (r *childReporter) Report(_ context.Context, p worker.Progress) error {
	r.count(p.RunStats)
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	return r.all.draw()
}

// count adds to the counts of all databases what has come to the counts of this one.
func (r *childReporter) count(now replicator.Stats) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	r.all.stats.Add(now)
	r.all.stats.Subtract(r.last)
	r.last = now
}

// end prints what was done, and returns the error with the exit status. err is why the databases could not be listed.
func (c *mirrorCopy) end(err error) error {
	took := time.Since(c.began)
	counts := mirrorCounts{
		Databases: c.total, Copied: c.copied, Failed: c.failures.count, Vanished: c.vanishedCount,
		Left:      c.total - c.copied - c.vanishedCount - c.failures.count,
		DocCounts: c.stats.DocCounts,
	}
	outcome, status := "completed", error(nil)
	switch {
	case c.stop.Err() != nil:
		outcome = "stopped"
		status = stopped(c.stop, errors.New("stopped; the same command continues from the checkpoints"))
	case err != nil:
		outcome, status = "failed", err
	case counts.Left > 0:
		outcome = "failed"
		status = fmt.Errorf("each of the first %s failed, and the others were not tried", databases(counts.Failed))
	case counts.Failed > 0:
		outcome = "failed"
		status = fmt.Errorf("%s could not be copied", databases(counts.Failed))
	case counts.DocWriteFailures > 0:
		status = &exitError{exitRefused, nil}
	}
	var text string
	if c.json {
		text = jsonLine(struct {
			Outcome string `json:"outcome"`
			mirrorCounts
			Seconds float64 `json:"seconds"`
		}{outcome, counts, took.Seconds()}) + "\n"
	} else {
		text = c.failures.text("databases failed") + fmt.Sprintf("%s: %d of %s copied, %d failed; %d documents read, %d written, %d refused in %s (%.0f a second)\n",
			outcome, counts.Copied, databases(counts.Databases), counts.Failed, counts.DocsRead, counts.DocsWritten, counts.DocWriteFailures,
			took.Round(time.Millisecond), perSecond(counts.DocsWritten, took))
	}
	if printErr := c.display.write(c.cmd.OutOrStdout(), text); status == nil {
		return printErr
	}
	return status
}
