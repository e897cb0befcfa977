package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"settee/replicator"
	"settee/replicator/worker"
)

// display shows how far a run is: a bar on a terminal, lines elsewhere. It is the
// run's reporter.
type display struct {
	out   io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	began time.Time
	total int64 // changes, as far as is known

	mu      sync.Mutex // guards the count: refusals come from several goroutines
	refusal int
}

// newDisplay returns a display and how often it wants to be told.
func newDisplay(out io.Writer) (*display, time.Duration) {
	d := &display{out: out, began: time.Now()}
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return d, linesEvery
	}
	d.bar = progressbar.NewOptions64(-1,
		progressbar.OptionSetWriter(out),
		progressbar.OptionSetDescription("connecting"),
		progressbar.OptionFullWidth(),
		progressbar.OptionThrottle(progressEvery/2),
		progressbar.OptionClearOnFinish(),
	)
	return d, progressEvery
}

// Identify is told the replication id, which names the checkpoints.
func (d *display) Identify(_ context.Context, id replicator.ID) error {
	if d.bar != nil {
		return nil
	}
	_, err := fmt.Fprintf(d.out, "replication id %s\n", id)
	return err
}

// Report shows the progress.
func (d *display) Report(_ context.Context, p worker.Progress) error {
	if d.bar == nil {
		_, err := fmt.Fprintln(d.out, d.describe(p)+pending(p))
		return err
	}
	d.bar.Describe(d.describe(p) + pending(p))
	if p.ChangesPending == nil {
		return d.bar.Add64(0) // turns the spinner
	}
	// Changes arrive while the run goes on, so the whole may grow.
	if *p.ChangesPending > d.total {
		d.total = *p.ChangesPending
		d.bar.ChangeMax64(d.total)
	}
	if d.total == 0 {
		return d.bar.Add64(0)
	}
	return d.bar.Set64(min(d.total-*p.ChangesPending, d.total-1)) // the end of the bar is the end of the run
}

func (d *display) describe(p worker.Progress) string {
	seconds := max(time.Since(d.began).Seconds(), 0.001)
	return fmt.Sprintf("%d read, %d written, %.0f/s", p.Stats.DocsRead, p.Stats.DocsWritten, float64(p.Stats.DocsWritten)/seconds)
}

func pending(p worker.Progress) string {
	if p.ChangesPending == nil {
		return ""
	}
	return fmt.Sprintf(", %d changes pending", *p.ChangesPending)
}

// refused names a revision that the target does not take, unless many were named.
func (d *display) refused(r worker.Refusal) {
	d.mu.Lock()
	d.refusal++
	n := d.refusal
	d.mu.Unlock()
	switch {
	case n <= shownRefusals:
		d.print(fmt.Sprintf("refused: %q %s: %s: %s\n", r.ID, r.Rev, r.Code, r.Reason))
	case n == shownRefusals+1:
		d.print("more documents were refused; they are only counted from here on\n")
	}
}

func (d *display) print(line string) {
	if d.bar != nil {
		_ = d.bar.Clear() // it is drawn again with the next report
	}
	_, _ = io.WriteString(d.out, line)
}

// end takes the bar away.
func (d *display) end() {
	if d.bar != nil {
		_ = d.bar.Clear()
	}
}
