package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/credentials"
	"settee/pkg/jsontext"
	"settee/replicator/worker"
)

// defaultWait is the time after which a missing revision is asked about again.
const defaultWait = 5 * time.Second

// verifyFlags are the flags of settee verify.
type verifyFlags struct {
	foregroundFlags
	both, attachments bool
	wait              time.Duration
}

func newVerify() *cobra.Command {
	var flags verifyFlags
	cmd := &cobra.Command{
		Use:   "verify SOURCE TARGET",
		Short: "Prove that a copy of a database is complete, or list what is missing",
		Long: "verify reads the changes feed of the database at the URL SOURCE, asks the one at the URL\n" +
			"TARGET for each leaf revision, and lists those that it lacks. It changes nothing. It selects\n" +
			"documents as replicate does. A revision that the target has as an ancestor of a newer one is\n" +
			"not missing. A revision id stands for the document's content; --attachments also reads and\n" +
			"compares all attachments.\n\n" +
			"Writers and replications may go on meanwhile. A revision that is missing is asked about again\n" +
			"after --wait, and listed only if it is still a leaf of the source and still missing.\n\n" +
			"With --mirror the URLs name servers. verify then compares all databases that\n" +
			"replicate --mirror copies, and their _security, and names the databases that are only on one\n" +
			"side. One that only TARGET has is a difference with --both: it may be there since its source\n" +
			"was deleted.\n\n" +
			credentialsHelp(credentials.Source, credentials.Target) +
			"The exit status is 0 if there is no difference, 1 if the databases could not be compared, 2 if\n" +
			"the command line is wrong, 3 if there is a difference, and 130 or 143 if a signal stopped it.",
		Example: "  settee verify --credentials couchdb.netrc https://a.example/films https://b.example/films\n" +
			"  settee verify --mirror --both https://a.example/ https://b.example/",
		Args: twoURLs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notNegative("wait", flags.wait); err != nil {
				return usage(cmd, err)
			}
			return flags.run(cmd, args, map[string]any{}, func(f *foreground) error {
				return f.verify(worker.Verification{Both: flags.both, Attachments: flags.attachments, Wait: flags.wait}, time.Time{})
			})
		},
	}
	flags.register(cmd, "compare")
	f := cmd.Flags()
	f.StringVar(&flags.sinceSeq, "since-seq", "", "the sequence of the source's changes feed to start from")
	f.BoolVar(&flags.both, "both", false, "also list what the target has and the source lacks")
	f.BoolVar(&flags.attachments, "attachments", false, "also read and compare the attachments")
	f.DurationVar(&flags.wait, "wait", defaultWait, "the time after which a missing revision is asked about again")
	f.BoolVar(&flags.json, "json", false, "print a JSON object per line: the differences, and then the counts")
	return cmd
}

// verifyDatabase compares two databases.
func (f *foreground) verifyDatabase(what worker.Verification) error {
	display, settings := f.newDisplay(), f.settings
	settings.ReportInterval, settings.Refused = display.every, nil
	backwards := false
	what.Report = func(p worker.VerifyProgress) error {
		if p.Backwards != backwards {
			backwards, display.total = p.Backwards, 0
		}
		return display.show(describeVerified(p.Verified), p.ChangesPending)
	}
	what.Found = func(d worker.Difference) error {
		return display.say(differenceObject(d), differenceLine(d))
	}
	counts, err := worker.Verify(f.cmd.Context(), what, settings)
	took := time.Since(display.began)
	outcome := "equal"
	switch {
	case errors.Is(err, worker.ErrStopped):
		outcome = "stopped"
		err = stopped(f.stop, errors.New("stopped before everything was compared"))
	case err != nil:
		outcome = "failed"
	case !counts.Equal():
		outcome = "different"
		err = &exitError{exitFindings, nil}
	}
	return cmp.Or(err, display.say(struct {
		Outcome string `json:"outcome"`
		worker.Verified
		Seconds float64 `json:"seconds"`
	}{outcome, counts, took.Seconds()}, fmt.Sprintf("%s: %s in %s", outcome, describeVerified(counts), took.Round(time.Millisecond))))
}

// jsonLine returns a value as JSON without a line break.
func jsonLine(value any) string {
	text, err := jsontext.Encode(value)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return string(text)
}

// describeVerified says what was compared, without counts that are usually 0.
func describeVerified(v worker.Verified) string {
	return fmt.Sprintf("%d revisions checked, %d missing on the target", v.Checked, v.MissingAtTarget) + describeRare(
		rareCount{v.MissingAtSource, "missing on the source"},
		rareCount{v.Attachments, "attachments checked"},
		rareCount{v.DifferentAttachments, "attachments different"},
		rareCount{v.Changed, "changed meanwhile"},
	)
}

// missingObject and attachmentObject are the JSON forms of differences.
type (
	missingObject struct {
		Missing string `json:"missing"` // "target" or "source"
		ID      string `json:"id"`
		Rev     string `json:"rev"`
		Winner  bool   `json:"winner"`
		Deleted bool   `json:"deleted"`
	}
	attachmentObject struct {
		Attachment string                  `json:"attachment"` // its name
		ID         string                  `json:"id"`
		Rev        string                  `json:"rev"`
		Source     *worker.AttachmentState `json:"source"` // null: it is not there
		Target     *worker.AttachmentState `json:"target"`
	}
)

func differenceObject(d worker.Difference) any {
	if a := d.Attachment; a != nil {
		return attachmentObject{a.Name, d.ID, d.Rev, a.Source, a.Target}
	}
	return missingObject{d.Missing, d.ID, d.Rev, d.Winner, d.Deleted}
}

func differenceLine(d worker.Difference) string {
	if a := d.Attachment; a != nil {
		return fmt.Sprintf("different attachment: %q %s %q: source %s, target %s", d.ID, d.Rev, a.Name, describeState(a.Source), describeState(a.Target))
	}
	kind := "conflict"
	if d.Winner {
		kind = "winner"
	}
	if d.Deleted {
		kind += ", deleted"
	}
	return fmt.Sprintf("missing on the %s: %q %s (%s)", d.Missing, d.ID, d.Rev, kind)
}

func describeState(a *worker.AttachmentState) string {
	if a == nil {
		return "none"
	}
	words := []string{fmt.Sprintf("%q", a.ContentType)}
	if a.Length >= 0 {
		words = append(words, fmt.Sprintf("%d bytes", a.Length))
	}
	if a.Digest != "" {
		words = append(words, a.Digest)
	}
	if a.Error != "" {
		words = append(words, "not readable: "+a.Error)
	}
	return strings.Join(words, " ")
}
