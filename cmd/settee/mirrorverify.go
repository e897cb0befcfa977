package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"settee/replicator/worker"
)

// verifyMirror compares two servers, several databases at a time, and returns the error with the exit status. what has the
// mirror as its replication, and no functions. looked is when the mirror last read the list of databases, zero if that is not known.
func verifyMirror(
	cmd *cobra.Command, what worker.Verification, settings worker.Config, atATime int, asJSON bool, looked time.Time,
) error {
	s, err := openServers(what.Stop, cmd, what.Replication, settings, atATime)
	if err != nil {
		return err
	}
	defer s.close()
	s.settings.Refused = nil
	v := &mirrorVerification{mirrorServers: s, what: what, json: asJSON, looked: looked, began: time.Now()}
	names, err := v.list()
	if err == nil {
		s.each(names, v.compare)
	}
	return v.end(err)
}

// verifiedCounts are the counts of a comparison of two servers, as --json prints them.
type verifiedCounts struct {
	Databases int `json:"databases"` // that the patterns select at the source
	Equal     int `json:"equal"`
	Different int `json:"different"` // including those that the target lacks
	Failed    int `json:"failed"`
	Vanished  int `json:"vanished"` // deleted at the source meanwhile
	// OnlyAtTarget counts databases of the target that the source lacks.
	OnlyAtTarget int `json:"only_at_target"`
	Left         int `json:"left"` // that were not compared, or not wholly, because the command was stopped
	worker.Verified
}

// mirrorVerification compares the databases of two servers.
type mirrorVerification struct {
	*mirrorServers
	what   worker.Verification
	json   bool
	looked time.Time
	began  time.Time

	mu          sync.Mutex
	counts      verifiedCounts
	differences shortList
	failures    shortList
	extra       shortList // databases that only the target has
	leftOut     shortList // replicator databases
}

// The JSON forms of differences between servers.
type (
	// onlyObject is a database that only one server has, the "source" or the "target".
	onlyObject struct {
		Database string `json:"database"` // its name there
		Only     string `json:"only"`
		Created  string `json:"created,omitempty"` // RFC 3339; empty if the server does not tell it
	}
	// leftOutObject is a replicator database of the source that is not copied.
	leftOutObject struct {
		Database string `json:"database"`
		LeftOut  string `json:"left_out"` // always "replicator"
	}
	securityObject struct {
		Database string `json:"database"`
		Security string `json:"security"` // always "different"
	}
	inDatabase struct {
		Database   string `json:"database"`
		Difference any    `json:"difference"`
	}
)

// list lists both servers, and returns the databases that both have, by their names at the source.
func (v *mirrorVerification) list() (both []string, err error) {
	m := v.mirror.Mirror
	sources, err := v.names("source", v.source, func(name string) bool {
		if m.LeavesReplications(name) {
			v.found(&v.leftOut, leftOutObject{name, "replicator"}, fmt.Sprintf("left out: the replicator database %q (see --replicators)", name))
		}
		return v.selects(name)
	})
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, errNoDatabases
	}
	v.counts.Databases = len(sources)
	sources, left := mirrorable(sources)
	for _, failure := range left {
		v.counts.Failed++
		v.found(&v.failures, failure, failure.line())
	}
	targets, err := v.names("target", v.target, func(name string) bool {
		of, found := strings.CutPrefix(name, m.Prefix)
		return found && m.Selects(of)
	})
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range sources {
		if _, there := slices.BinarySearch(targets, m.TargetName(name)); there {
			both = append(both, name)
		} else {
			missing = append(missing, name)
		}
	}
	v.missing(missing)
	for _, name := range targets {
		if _, there := slices.BinarySearch(sources, strings.TrimPrefix(name, m.Prefix)); !there {
			v.counts.OnlyAtTarget++
			v.found(&v.extra, onlyObject{Database: name, Only: "target"}, fmt.Sprintf("only on the target: the database %q", name))
		}
	}
	return both, nil
}

// missing notes databases that the target lacks, and when the first ones were created: the mirror may not have looked since.
func (v *mirrorVerification) missing(names []string) {
	if len(names) == 0 {
		return
	}
	created := map[string]time.Time{}
	infos, err := v.source.DatabasesInfo(v.cmd.Context(), names[:min(len(names), shownFailures)])
	for _, info := range infos {
		if seconds, ok := strconv.ParseInt(worker.Created(info.InstanceStartTime), 10, 64); ok == nil && err == nil {
			created[info.Name] = time.Unix(seconds, 0).UTC()
		}
	}
	for _, name := range names {
		v.counts.Different++
		line, object := fmt.Sprintf("missing on the target: the database %q", name), onlyObject{Database: name, Only: "source"}
		at := created[name]
		if !at.IsZero() {
			object.Created = at.Format(time.RFC3339)
			line += ", created at " + object.Created
		}
		switch looked := v.looked.UTC(); {
		case looked.IsZero() && !at.IsZero():
			line += ": a mirror without a feed looks for databases once a minute (last_look)"
		case !looked.IsZero() && !at.Before(looked.Truncate(time.Second)):
			line += ": the mirror has not looked since " + looked.Format(time.RFC3339)
		}
		v.found(&v.differences, object, line)
	}
}

// found prints a difference as JSON, or keeps its line for the end.
func (v *mirrorVerification) found(in *shortList, object any, line string) {
	if in.add(line); v.json {
		_ = v.display.write(v.cmd.OutOrStdout(), jsonLine(object)+"\n")
	}
}

// compare compares a database that both servers have. It goes on with others.
func (v *mirrorVerification) compare(name string) bool {
	child := v.mirror.Child(name)
	what := v.what
	what.Replication = child
	var last worker.Verified // as reported
	what.Report = func(p worker.VerifyProgress) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.counts.add(p.Verified, last)
		last = p.Verified
		return v.draw()
	}
	what.Found = func(d worker.Difference) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.found(&v.differences, inDatabase{name, differenceObject(d)}, fmt.Sprintf("%q: %s", name, differenceLine(d)))
		return nil
	}
	counts, err := worker.Verify(v.cmd.Context(), what, v.settings)
	same := true
	if err == nil && child.Mirrored.Security {
		same, err = worker.SameSecurity(v.cmd.Context(), child, v.settings)
	}
	vanished := v.vanished(name, err)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.counts.add(counts, last)
	if !same {
		v.found(&v.differences, securityObject{name, "different"}, fmt.Sprintf("%q: different _security", name))
	}
	switch {
	case errors.Is(err, worker.ErrStopped):
	case vanished:
		v.counts.Vanished++
	case err != nil:
		v.counts.Failed++
		failure := newFailure(name, err)
		v.found(&v.failures, failure, failure.line())
	case !same || !counts.Equal():
		v.counts.Different++
	default:
		v.counts.Equal++
	}
	_ = v.draw()
	return v.counts.Failed < hopeless || v.counts.Failed < v.counts.done()
}

// add adds to the counts of all databases what has come to the ones of a database.
func (c *verifiedCounts) add(now, before worker.Verified) {
	c.Checked += now.Checked - before.Checked
	c.MissingAtTarget += now.MissingAtTarget - before.MissingAtTarget
	c.MissingAtSource += now.MissingAtSource - before.MissingAtSource
	c.Attachments += now.Attachments - before.Attachments
	c.DifferentAttachments += now.DifferentAttachments - before.DifferentAttachments
	c.Changed += now.Changed - before.Changed
}

// done returns the number of databases with an outcome.
func (c *verifiedCounts) done() int { return c.Equal + c.Different + c.Failed + c.Vanished }

// draw shows the progress. The caller holds mu.
func (v *mirrorVerification) draw() error {
	done := v.counts.done()
	left := int64(v.counts.Databases - done)
	text := fmt.Sprintf("%d of %s, ", done, databases(v.counts.Databases))
	if v.counts.Different > 0 {
		text += fmt.Sprintf("%d different, ", v.counts.Different)
	}
	if v.counts.Failed > 0 {
		text += fmt.Sprintf("%d failed, ", v.counts.Failed)
	}
	return v.display.draw(text+describeVerified(v.counts.Verified), &left)
}

// end prints what was found, and returns the error with the exit status. err is why the databases could not be listed.
func (v *mirrorVerification) end(err error) error {
	took := time.Since(v.began)
	v.counts.Left = v.counts.Databases - v.counts.done()
	outcome, status := "equal", error(nil)
	switch {
	case v.stop.Err() != nil:
		outcome = "stopped"
		status = stopped(v.stop, errors.New("stopped before everything was compared"))
	case err != nil:
		outcome, status = "failed", err
	case v.counts.Left > 0:
		outcome = "failed"
		status = fmt.Errorf("each of the first %s failed, and the others were not tried", databases(v.counts.Failed))
	case v.counts.Failed > 0:
		outcome = "failed"
		status = fmt.Errorf("%s could not be compared", databases(v.counts.Failed))
	case v.counts.Different > 0, v.what.Both && v.counts.OnlyAtTarget > 0:
		outcome = "different"
		status = &exitError{exitDifferent, nil}
	}
	var text string
	if v.json {
		text = jsonLine(struct {
			Outcome string `json:"outcome"`
			verifiedCounts
			Seconds float64 `json:"seconds"`
		}{outcome, v.counts, took.Seconds()}) + "\n"
	} else {
		text = v.leftOut.text("replicator databases left out") + v.extra.text("databases only on the target") + v.differences.text("differences") + v.failures.text("databases failed") +
			fmt.Sprintf("%s: %s compared, %d equal, %d different, %d failed; %s in %s\n",
				outcome, databases(v.counts.done()), v.counts.Equal, v.counts.Different, v.counts.Failed,
				describeVerified(v.counts.Verified), took.Round(time.Millisecond))
	}
	if printErr := v.display.write(v.cmd.OutOrStdout(), text); status == nil {
		return printErr
	}
	return status
}
