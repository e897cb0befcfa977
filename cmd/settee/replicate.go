package main

import (
	"cmp"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/credentials"
	"settee/replicator/worker"
)

// replicateFlags are the flags of settee replicate. Those of a replication have the names of a
// replication document's fields.
type replicateFlags struct {
	foregroundFlags
	continuous, createTarget, verify bool
}

func newReplicate() *cobra.Command {
	var flags replicateFlags
	cmd := &cobra.Command{
		Use:   "replicate SOURCE TARGET",
		Short: "Copy a database to another in the foreground, and show the progress",
		Long: "replicate copies the database at the URL SOURCE to the one at the URL TARGET. It continues\n" +
			"from the checkpoint of an earlier run. It needs no node and no store.\n\n" +
			"With --mirror the URLs name servers, and replicate copies all databases of SOURCE\n" +
			"except those whose names begin with an underscore. It creates the databases that TARGET\n" +
			"lacks with the parameters of their sources (q, n, partitioned), and copies _security. It\n" +
			"needs the rights to list the databases of SOURCE and to create some at TARGET. A database\n" +
			"that fails does not stop the others; those that failed are listed at the end. The same\n" +
			"command goes on where this one was stopped. It never deletes anything.\n\n" +
			credentialsHelp(credentials.Source, credentials.Target) +
			"The exit status is 0 if everything was copied, 1 if the replication or one of a mirror's\n" +
			"failed, 2 if the command line is wrong, 3 if the target refused documents and everything\n" +
			"else was copied, or if --verify found a difference, and 130 or 143 if a signal stopped it.",
		Example: "  settee replicate --credentials couchdb.netrc https://a.example/films https://b.example/films\n" +
			"  settee replicate --mirror --exclude 'test-*' --verify https://a.example/ https://b.example/",
		Args: twoURLs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.verify && flags.continuous {
				return usage(cmd, errors.New("--verify and --continuous exclude each other: a continuous replication does not end"))
			}
			if flags.json && !flags.mirror {
				return usage(cmd, errors.New("--json needs --mirror"))
			}
			fields := map[string]any{"continuous": flags.continuous}
			if flags.createTarget {
				fields["create_target"] = true
			}
			return flags.run(cmd, args, fields, func(f *foreground) error {
				err := f.copy()
				if err != nil && !exitsWith(err, exitFindings) || !flags.verify {
					return err
				}
				return cmp.Or(f.verify(worker.Verification{Wait: defaultWait}, time.Time{}), err)
			})
		},
	}
	flags.register(cmd, "copy")
	f := cmd.Flags()
	f.BoolVar(&flags.continuous, "continuous", false, "wait for new changes at the end of the changes feed, until stopped")
	f.BoolVar(&flags.createTarget, "create-target", false, "create the target database if it is missing")
	f.StringVar(&flags.sinceSeq, "since-seq", "", "the sequence of the changes feed to start from if there is no checkpoint")
	f.BoolVar(&flags.verify, "verify", false, "then compare the databases, as the command verify does")
	f.BoolVar(&flags.json, "json", false, "with --mirror: print a JSON object per line: the databases that failed, and then the counts")
	return cmd
}

// copyDatabase copies a database.
func (f *foreground) copyDatabase() error {
	display, settings := f.newDisplay(), f.settings
	settings.ReportInterval, settings.Refused = display.every, func(r worker.Refusal) { display.refused("", r) }
	result, err := worker.Run(f.cmd.Context(), worker.Job{Replication: f.replication, Stop: f.stop}, settings, display)
	outcome := "completed"
	switch {
	case errors.Is(err, worker.ErrStopped):
		outcome, err = "stopped", stopped(f.stop, errors.New("stopped; the same command continues from the checkpoint"))
	case err != nil:
		outcome = "failed"
	case result.RunStats.DocWriteFailures > 0:
		err = &exitError{exitFindings, nil}
	}
	return cmp.Or(err, display.say(nil, outcome+": "+describeCopied(result.RunStats, time.Since(display.began))))
}
