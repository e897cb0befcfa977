package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"settee/replicator/worker"
)

// verifyMirror compares two servers, several databases at a time.
func (f *foreground) verifyMirror(what worker.Verification, looked time.Time) error {
	m, err := f.openMirror()
	if err != nil {
		return err
	}
	defer m.close()
	v := &mirrorVerification{mirrorRun: m, what: what, looked: looked}
	m.progress = func() string { return describeVerified(v.verified) }
	names, err := v.list()
	if err == nil {
		m.each(names, v.compare)
	}
	return v.summary(err)
}

// mirrorVerification compares the databases of two servers.
type mirrorVerification struct {
	*mirrorRun
	what   worker.Verification
	looked time.Time

	verified     worker.Verified // of all databases
	onlyAtTarget int             // databases that the source lacks
	differences  shortList
	extra        shortList // databases that only the target has
	leftOut      shortList // replicator databases
}

// differenceOfServers is the JSON form of a difference between servers. Besides the name of the database one of its parts is there.
type differenceOfServers struct {
	Database string `json:"database"`
	// Only is the server that has the database alone, "source" or "target". Created is then in RFC 3339; empty if the server does not
	// tell it.
	Only       string `json:"only,omitempty"`
	Created    string `json:"created,omitempty"`
	LeftOut    string `json:"left_out,omitempty"`   // "replicator": a replicator database of the source, which is not copied
	Security   string `json:"security,omitempty"`   // "different"
	Difference any    `json:"difference,omitempty"` // in the database
}

// list lists both servers, and returns the databases that both have, by their names at the source.
func (v *mirrorVerification) list() (both []string, err error) {
	m := v.replication.Mirror
	sources, err := v.sources(func(name string) {
		if m.LeavesReplications(name) {
			v.found(&v.leftOut, differenceOfServers{Database: name, LeftOut: "replicator"}, fmt.Sprintf("left out: the replicator database %q (see --replicators)", name))
		}
	})
	if err != nil {
		return nil, err
	}
	targets, err := v.databasesOf("target", v.target, func(name string) bool {
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
			v.onlyAtTarget++
			v.found(&v.extra, differenceOfServers{Database: name, Only: "target"}, fmt.Sprintf("only on the target: the database %q", name))
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
		v.outcomes.different++
		line, object := fmt.Sprintf("missing on the target: the database %q", name), differenceOfServers{Database: name, Only: "source"}
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

// compare compares a database that both servers have.
func (v *mirrorVerification) compare(name string) (different bool, err error) {
	child := v.replication.Child(name)
	what := v.what
	what.Replication = child
	var last worker.Verified // as reported
	what.Report = func(p worker.VerifyProgress) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.count(p.Verified, last)
		last = p.Verified
		return v.draw()
	}
	what.Found = func(d worker.Difference) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.found(&v.differences, differenceOfServers{Database: name, Difference: differenceObject(d)}, fmt.Sprintf("%q: %s", name, differenceLine(d)))
		return nil
	}
	counts, err := worker.Verify(v.cmd.Context(), what, v.settings)
	same := true
	if err == nil && child.Mirrored.Security {
		same, err = worker.SameSecurity(v.cmd.Context(), child, v.settings)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count(counts, last)
	if !same {
		v.found(&v.differences, differenceOfServers{Database: name, Security: "different"}, fmt.Sprintf("%q: different _security", name))
	}
	return !same || !counts.Equal(), err
}

// count adds to the counts of all databases what has come to the ones of a database.
func (v *mirrorVerification) count(now, before worker.Verified) {
	v.verified.Checked += now.Checked - before.Checked
	v.verified.MissingAtTarget += now.MissingAtTarget - before.MissingAtTarget
	v.verified.MissingAtSource += now.MissingAtSource - before.MissingAtSource
	v.verified.Attachments += now.Attachments - before.Attachments
	v.verified.DifferentAttachments += now.DifferentAttachments - before.DifferentAttachments
	v.verified.Changed += now.Changed - before.Changed
}

// summary prints what was found, and returns the error with the exit status. failed is why the databases could not be listed.
func (v *mirrorVerification) summary(failed error) error {
	took, o := time.Since(v.display.began), v.outcomes
	outcome, err := v.ended(failed, "stopped before everything was compared", "compared")
	if err == nil {
		outcome = "equal"
		if o.different > 0 || v.what.Both && v.onlyAtTarget > 0 {
			outcome, err = "different", &exitError{exitFindings, nil}
		}
	}
	return cmp.Or(err, v.display.say(struct {
		Outcome      string `json:"outcome"`
		Databases    int    `json:"databases"` // that the patterns select at the source
		Equal        int    `json:"equal"`
		Different    int    `json:"different"`
		Failed       int    `json:"failed"`
		Vanished     int    `json:"vanished"`
		OnlyAtTarget int    `json:"only_at_target"`
		Left         int    `json:"left"` // that were not compared, or not wholly, because the command was stopped
		worker.Verified
		Seconds float64 `json:"seconds"`
	}{outcome, o.selected, o.succeeded, o.different, o.failed, o.vanished, v.onlyAtTarget, o.left(), v.verified, took.Seconds()},
		v.leftOut.text("replicator databases left out")+v.extra.text("databases only on the target")+
			v.differences.text("differences")+v.failures.text("databases failed")+
			fmt.Sprintf("%s: %s compared, %d equal, %d different, %d failed; %s in %s",
				outcome, databases(o.done()), o.succeeded, o.different, o.failed, describeVerified(v.verified), took.Round(time.Millisecond))))
}
