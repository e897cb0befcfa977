package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"settee/cmd/settee/internal/console"
	"settee/replicator"
	"settee/replicator/worker"
)

const (
	// progressEvery is the interval between updates of the progress bar, linesEvery between lines without a
	// terminal.
	progressEvery = 250 * time.Millisecond
	linesEvery    = 5 * time.Second
	// shownRefusals is the number of refused documents that are printed by name.
	shownRefusals = 20
)

// display prints what a command has to say, and shows its progress meanwhile: with a bar on a terminal, otherwise with lines.
// It implements worker.Reporter.
type display struct {
	out, errs io.Writer                // errs has the progress
	json      bool                     // what is said is a JSON object per line
	every     time.Duration            // how often progress should be reported
	bar       *progressbar.ProgressBar // nil if lines are printed
	began     time.Time
	total     int64 // the largest number of pending changes so far

	mu      sync.Mutex // for the bar and what is printed: several goroutines report
	refusal int
	printed time.Time // when the last line of progress was printed, or the display was made
}

func newDisplay(out, errs io.Writer, asJSON bool) *display {
	d := &display{out: out, errs: errs, json: asJSON, every: linesEvery, began: time.Now()}
	d.printed = d.began
	screen := terminal(errs)
	if screen == nil {
		return d
	}
	d.every = progressEvery
	d.bar = progressbar.NewOptions64(-1,
		progressbar.OptionSetWriter(screen),
		progressbar.OptionSetDescription("connecting"),
		progressbar.OptionFullWidth(),
		progressbar.OptionThrottle(progressEvery/2),
		progressbar.OptionClearOnFinish(),
		// Otherwise a goroutine of the bar draws it ten times a second, also when it has been removed.
		progressbar.OptionSetSpinnerChangeInterval(0),
	)
	return d
}

// Identify prints the replication id, which is also the id of the checkpoints.
func (d *display) Identify(_ context.Context, id replicator.ID) error {
	if d.bar != nil {
		return nil
	}
	_, err := fmt.Fprintf(d.errs, "replication id %s\n", id)
	return err
}

// Report shows the progress.
func (d *display) Report(_ context.Context, p worker.Progress) error {
	return d.show(describeRun(p.RunStats, time.Since(d.began)), p.ChangesPending)
}

// show shows what was done, and the number of changes left, or nil if that is not known.
func (d *display) show(done string, left *int64) error {
	if left != nil {
		done += fmt.Sprintf(", %d changes pending", *left)
	}
	return d.draw(done, left)
}

// draw shows a text, and a bar that is full when nothing is left, or one without a length if left is nil.
func (d *display) draw(done string, left *int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar == nil {
		if time.Since(d.printed) < linesEvery-progressEvery { // runs report more often while something changes
			return nil
		}
		d.printed = time.Now()
		_, err := fmt.Fprintln(d.errs, done)
		return err
	}
	d.bar.Describe(console.Clean(done))
	if left == nil {
		return d.bar.Add64(0) // moves the spinner
	}
	// The total grows when changes arrive during the run.
	if *left > d.total {
		d.total = *left
		d.bar.ChangeMax64(d.total)
	}
	if d.total == 0 {
		return d.bar.Add64(0)
	}
	return d.bar.Set64(min(d.total-*left, d.total-1)) // the bar is full only when the run has ended
}

// describeRun says what runs have copied so far, and describeCopied what they have copied in the end.
func describeRun(s replicator.Stats, took time.Duration) string {
	return fmt.Sprintf("%d read, %d written, %.0f/s", s.DocsRead, s.DocsWritten, perSecond(s.DocsWritten, took))
}

func describeCopied(s replicator.Stats, took time.Duration) string {
	return fmt.Sprintf("%d documents read, %d written, %d refused in %s (%.0f a second)",
		s.DocsRead, s.DocsWritten, s.DocWriteFailures, took.Round(time.Millisecond), perSecond(s.DocsWritten, took))
}

// rareCount is a number that is usually 0, and what it counts.
type rareCount struct {
	n    int64
	what string
}

// describeRare says the counts that are not 0, after others.
func describeRare(counts ...rareCount) (text string) {
	for _, c := range counts {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}

func perSecond(n int64, took time.Duration) float64 { return float64(n) / max(took.Seconds(), 0.001) }

// refused prints a revision that the target has refused, up to shownRefusals of them. where names the database, with a blank at its end,
// or is empty if there is only one.
func (d *display) refused(where string, r worker.Refusal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refusal++
	switch {
	case d.refusal <= shownRefusals:
		_ = d.print(d.errs, fmt.Sprintf("refused: %s%q %s: %s: %s\n", where, r.ID, r.Rev, r.Code, r.Reason))
	case d.refusal == shownRefusals+1:
		_ = d.print(d.errs, "more documents were refused; from here on they are only counted\n")
	}
}

// say prints an object in JSON, or its text.
func (d *display) say(object any, text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.print(d.out, d.line(object, text))
}

// line returns what say prints.
func (d *display) line(object any, text string) string {
	if d.json {
		text = jsonLine(object)
	}
	return text + "\n"
}

// copy prints lines of the command's output.
func (d *display) copy(lines io.Reader) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.print(d.out, ""); err != nil {
		return err
	}
	_, err := io.Copy(d.out, lines)
	return err
}

// end removes the bar, which would otherwise be drawn again while the command does something else.
func (d *display) end() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar == nil {
		return nil
	}
	err := errors.Join(d.bar.Exit(), d.bar.Clear())
	d.bar = nil
	return err
}

// print removes the bar and writes a line. The next report draws the bar again. The caller holds mu.
func (d *display) print(out io.Writer, line string) error {
	if d.bar != nil {
		_ = d.bar.Clear()
	}
	_, err := io.WriteString(out, line)
	return err
}
