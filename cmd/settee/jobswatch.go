package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gdamore/tcell/v3"
	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/console"
	"settee/pkg/redact"
)

func newJobsWatch() *cobra.Command {
	var flags nodeFlags
	var which selectFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "watch [JOB]",
		Short: "Follow jobs, and print what changes",
		Long: "watch prints a line for each job, and another one each time that a job gets another state, another\n" +
			"error or refused documents, or leaves the list. It follows the first 1,000 jobs that the filters\n" +
			"select. With a JOB it prints the job's progress, until the job has ended. The node answers when there\n" +
			"is news, at most once a second. A node that does not answer is asked again.\n\n" +
			"--json prints jobs as the node has them, one a line. A job that has left the list has the member\n" +
			"\"gone\", which is true.\n\n" + jobName + nodeHelp() +
			"With a JOB the exit status is 0 if the job has completed, 3 if it has failed, was deleted or cancelled.\n" +
			"It is 1 if the node cannot be asked, 2 if the command line is wrong, and 130 or 143 if a signal stopped\n" +
			"the command.",
		Example: "  settee jobs watch --database team/_replicator\n  settee jobs watch _replicator/films && echo done",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && !which.Empty() {
				return usage(cmd, errors.New("--state and the other filters select jobs, and exclude a JOB"))
			}
			if err := which.Check(); err != nil {
				return usage(cmd, err)
			}
			return flags.ask(cmd, func(ctx context.Context, node *console.Node) error {
				if len(args) > 0 {
					return watchJob(ctx, cmd, node, args[0], asJSON)
				}
				return watchList(ctx, cmd, node, which.Filter, asJSON)
			})
		},
	}
	flags.register(cmd)
	which.register(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each job that has changed as a JSON object, one a line")
	return cmd
}

// asksAgain prints why a node could not be asked.
func asksAgain(cmd *cobra.Command) func(error) error {
	return func(err error) error {
		cmd.PrintErrf("settee: %s; asking again\n", console.Clean(redact.Text(err.Error())))
		return nil
	}
}

func watchList(ctx context.Context, cmd *cobra.Command, node *console.Node, f console.Filter, asJSON bool) error {
	return node.WatchList(ctx, f, console.Follower{
		Changed: func(changes []console.Change) error { return outputOf(cmd, asJSON).WriteChanges(changes) },
		More: func() error {
			cmd.PrintErrf("settee: warning: only the first %d jobs are followed; --state, --database and --search say which\n", console.MaxWatched)
			return nil
		},
		Failed: asksAgain(cmd),
	})
}

func watchJob(ctx context.Context, cmd *cobra.Command, node *console.Node, name string, asJSON bool) error {
	job, err := node.Find(ctx, name)
	if err != nil {
		return err
	}
	var last console.Job
	err = node.WatchJob(ctx, job, func(job console.Job) error {
		last = job
		return outputOf(cmd, asJSON).WriteProgress(job)
	}, asksAgain(cmd))
	switch {
	case errors.Is(err, console.ErrGone):
		return &exitError{exitFindings, err}
	case err != nil:
		return err
	}
	return failingIf(last.State == "failed")
}

func newTop() *cobra.Command {
	var flags nodeFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what the nodes do, on a screen that is redrawn",
		Long: "top shows whether something needs attention, how full the nodes are, how many jobs are in which state,\n" +
			"what was written in the last ten seconds and in the last hour, the problems by what is wrong at which end, with\n" +
			"what to do, and the running jobs that will take longest. The node tells what has changed, so the\n" +
			"screen is redrawn at most once a second, and large lists are asked for every five seconds. Problems\n" +
			"are of the first 1,000 jobs that crash and the first 1,000 that have failed, and the slowest are of the\n" +
			"first 1,000 that run. q, Escape and Ctrl-C end it. It is for server administrators.\n\n" +
			"Without a terminal it prints the overview once.\n\n" + nodeHelp(),
		Example: "  settee top --url http://admin@127.0.0.1:5984/",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.ask(cmd, func(ctx context.Context, node *console.Node) error {
				if width, _ := sizeOf(cmd); width == 0 {
					return node.WriteOverview(ctx, cmd.OutOrStdout(), 120, 60)
				}
				screen, err := tcell.NewScreen()
				if err != nil {
					return fmt.Errorf("preparing the terminal: %w", err)
				}
				return node.Top(ctx, screen)
			})
		},
	}
	flags.register(cmd)
	return cmd
}
