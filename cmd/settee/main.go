// Command settee is a replication service for CouchDB databases. It runs nodes of the service, and
// single replications in the foreground.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	// The engines that this binary carries.
	_ "settee/pkg/kv/memkv"
	_ "settee/pkg/kv/pebblekv"
	"settee/pkg/redact"
)

// The exit statuses besides 0, and besides 128 plus the number of a signal that ended the command.
const (
	exitFailed = 1
	exitUsage  = 2
	// exitFindings is the status of a command that has done its work and has something to say: documents were refused or stay, there
	// are differences, jobs fail, settings are ignored.
	exitFindings = 3
)

// exitError is an error with its own exit status. Its text is empty if the command has already
// printed everything.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitsWith reports whether an error has an exit status of its own, and it is status.
func exitsWith(err error, status int) bool {
	exit, ok := errors.AsType[*exitError](err)
	return ok && exit.status == status
}

func main() {
	keepFilesPrivate()
	os.Exit(execute(context.Background(), os.Args[1:]))
}

// execute runs a command line and returns its exit status.
func execute(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	errs := &printer{file: os.Stderr}
	root.SetOut(&printer{file: os.Stdout})
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		_, _ = fmt.Fprintf(errs, "settee: %s\n", redact.Text(text))
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.status
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "settee",
		Short: "A replication service for CouchDB databases",
		Long: "settee copies CouchDB databases to one another, as CouchDB's replicator does, but as a\n" +
			"separate service: requests and documents become jobs in a durable queue, and any\n" +
			"number of nodes run them.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(usage)
	secrets, jobs, nodes := newSecrets(), newJobs(), newNodes()
	root.AddCommand(newServe(), newReplicate(), newVerify(), newFailover(), newCheck(), newBackup(), newRestore(), newImportCouchDB(), newDemo(), newConfig(), newFirewall(), newHealth(), newPassword(), newUpgrade(), newVersion(), secrets, jobs, nodes, newTop(), newAudit())
	for _, cmd := range slices.Concat(root.Commands(), secrets.Commands(), jobs.Commands(), nodes.Commands(), []*cobra.Command{root}) {
		check := cmd.Args
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usage(cmd, err)
			}
			return nil
		}
	}
	return root
}

// within returns an error if the number of a flag is not from least to most.
func within(flag string, n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("--%s must be from %d to %d", flag, least, most)
	}
	return nil
}

func notNegative[N int | time.Duration](flag string, n N) error {
	if n < 0 {
		return fmt.Errorf("--%s must not be negative", flag)
	}
	return nil
}

// usage returns the error of a wrong command line.
func usage(cmd *cobra.Command, err error) error {
	return &exitError{exitUsage, fmt.Errorf("%w\nTry '%s --help'", err, cmd.CommandPath())}
}
