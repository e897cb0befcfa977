package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/migrate"
)

// importOutput prints what settee import-couchdb has to say, and its progress. Lines about documents come after the line
// about their database.
type importOutput struct {
	*display
	cmd *cobra.Command
	// held has the lines about documents until the database's line is there. They are in a file, because a database may
	// have any number of documents. nil means that there was no line yet.
	held *os.File
}

func newImportOutput(cmd *cobra.Command, asJSON bool) *importOutput {
	return &importOutput{display: newDisplay(cmd.OutOrStdout(), cmd.ErrOrStderr(), asJSON), cmd: cmd}
}

// tell prints an event, or holds it back.
func (o *importOutput) tell(e migrate.Event) error {
	switch e.(type) {
	case migrate.Planned, migrate.Kept:
		return o.hold(o.line(e, e.String()))
	case migrate.DatabasePlan, migrate.Moved:
		return errors.Join(o.say(e, e.String()), o.release())
	}
	return o.say(e, e.String())
}

func (o *importOutput) report(p migrate.Progress) error {
	return o.draw(p.String(), &p.Steps)
}

func (o *importOutput) hold(line string) (err error) {
	if o.held == nil {
		if o.held, err = os.CreateTemp("", "settee-import-*"); err != nil { // with the mode 0600
			return err
		}
	}
	_, err = o.held.WriteString(line)
	return err
}

// release prints the lines that were held back.
func (o *importOutput) release() error {
	if o.held == nil {
		return nil
	}
	_, err := o.held.Seek(0, io.SeekStart)
	if err == nil {
		err = o.copy(o.held)
	}
	held := o.held
	o.held = nil
	return errors.Join(err, held.Close(), os.Remove(held.Name()))
}

// end prints what was held back, and removes the bar.
func (o *importOutput) end() error {
	return errors.Join(o.release(), o.display.end())
}

// warn says what an interrupted move of a database has left. The command may have been stopped by a signal.
func (o *importOutput) warn(ctx context.Context, m *migrate.Mover, move migrate.Moved) {
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	_ = o.end() // the error of the command says more
	const again = ": run the same command again"
	left, err := m.Stranded(ctx, move.Database)
	if err != nil {
		if !move.Began {
			return // what an earlier call has left is the same as before
		}
		o.cmd.PrintErrln("settee: warning: jobs of " + move.Database + " may run nowhere now" + again)
		return
	}
	for _, said := range left.Warnings() {
		o.cmd.PrintErrln("settee: warning: " + said + again)
	}
}
