package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"settee/cmd/settee/internal/console"
)

// jobName is the part of a command's help about the names of jobs.
const jobName = "A JOB is named by DATABASE/DOCUMENT, as in _replicator/films, by its document alone if that is in\n" +
	"_replicator, by its replication id or by its job id.\n\n"

func newJobs() *cobra.Command {
	cmd := newListing("jobs")
	cmd.Short = "List, watch, run, pause and delete the jobs of a node"
	cmd.Long = "jobs without another word lists jobs, as jobs list does.\n\n" + listHelp()
	cmd.Example = "  export SETTEE_URL=http://admin@127.0.0.1:5984/\n" +
		"  settee jobs --state crashing\n" +
		"  settee jobs show _replicator/films\n" +
		"  settee jobs failures || echo 'there is something to do'"
	cmd.AddCommand(newListing("list"), newJobsShow(), newJobsWatch(), newJobsRun(), newJobsVerify(), newJobsPause(), newJobsResume(), newJobsDelete(), newJobsAcknowledge(), newJobsFailures())
	return cmd
}

// selectFlags are the flags that select jobs.
type selectFlags struct{ console.Filter }

func (s *selectFlags) register(f *pflag.FlagSet) {
	f.StringSliceVar(&s.States, "state", nil, "the jobs in these states, with commas between them: running, pending, scheduled, parked, paused, crashing,\ncompleted, failed; by default those that have not ended")
	s.registerPlace(f)
}

func (s *selectFlags) registerPlace(f *pflag.FlagSet) {
	f.StringVar(&s.Database, "database", "", "the jobs of this replicator database")
	f.BoolVar(&s.Transient, "transient", false, "the jobs that were posted to _replicate")
	f.StringVar(&s.User, "user", "", "the jobs that this user has posted to _replicate")
	f.StringVar(&s.Search, "search", "", "the jobs with this text in their source, target or id")
}

// none is what a list without jobs says.
func (s *selectFlags) none() string {
	if len(s.States) == 0 && s.Sort == "" {
		return "there is no such job; --state completed,failed lists those that have ended"
	}
	return "there is no such job"
}

func listHelp() string {
	return "The table has one line for each job: its state, its name, source and target, how many documents it\n" +
		"has written, how many changes are left if that is known, and why it is in its state. In a terminal\n" +
		"lines are cut to its width, and what does not fit is left out. A mirror is one line, with the number of\n" +
		"its databases. Their jobs come after all others, by mirror and database; with --sort they have their\n" +
		"places. --json prints each job as the node has it (docs/http.md), one a line, in the node's order. A long\n" +
		"list is read in pages and printed as it comes. If there is no job, that is said on standard error.\n\n" + nodeHelp() +
		"The exit status is 0, also if no job is like that, 1 if the command failed, 2 if the command line is\n" +
		"wrong, and 130 or 143 if a signal stopped it.\n"
}

func newListing(name string) *cobra.Command {
	var flags nodeFlags
	var which selectFlags
	var limit int
	var asJSON bool
	var mirror string
	cmd := &cobra.Command{
		Use:     name,
		Short:   "List jobs",
		Long:    listHelp(),
		Example: "  settee jobs list --state crashing,pending --database team/_replicator",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			which.Mirror = mirror // its job id is not known yet
			if err := errors.Join(which.Check(), notNegative("limit", limit)); err != nil {
				return usage(cmd, err)
			}
			return flags.ask(cmd, func(ctx context.Context, node *console.Node) error {
				if mirror != "" {
					job, err := node.Find(ctx, mirror)
					if err != nil {
						return err
					}
					if job.Summary() == nil {
						return fmt.Errorf("the job %q is no mirror", mirror)
					}
					which.Mirror = job.JobID
				}
				found, err := printJobs(cmd, node.Pages(ctx, which.Filter, limit), which.Sort != "" || mirror != "", asJSON)
				if err != nil || found || asJSON {
					return err
				}
				_, err = fmt.Fprintln(cmd.ErrOrStderr(), which.none())
				return err
			})
		},
	}
	flags.register(cmd)
	which.register(cmd.Flags())
	cmd.Flags().StringVar(&which.Sort, "sort", "", "another order, for administrators: failing (crashing longest), stuck (without progress for longest), behind\n(the target lacks changes for longest) or documents_refused (the latest one); only such jobs are listed")
	cmd.Flags().StringVar(&mirror, "mirror", "", "the jobs of the databases of this mirror, a JOB as of jobs show, by database")
	cmd.Flags().IntVar(&limit, "limit", 0, "list at most so many; 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each job as a JSON object, one a line")
	return cmd
}

// printJobs prints pages of jobs, as a table or as JSON, and reports whether there was a job. inOrder leaves the jobs of mirrors in a
// table where they are.
func printJobs(cmd *cobra.Command, pages iter.Seq2[[]console.Job, error], inOrder, asJSON bool) (found bool, err error) {
	list := &console.List{Output: outputOf(cmd, asJSON), InOrder: inOrder}
	for jobs, err := range pages {
		if err == nil {
			err = list.Write(jobs)
		}
		if err != nil {
			return found, err
		}
		found = true
	}
	return found, list.End()
}

func newJobsShow() *cobra.Command {
	var flags nodeFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show JOB",
		Short:   "Show one job: its state, why it is in that state, its latest runs and its history",
		Long:    "show shows one job, also one that has ended. Of a mirror it shows the databases, too, the first 100 by\nname.\n\n" + jobName + nodeHelp(),
		Example: "  settee jobs show _replicator/films",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.ask(cmd, func(ctx context.Context, node *console.Node) error {
				job, err := node.Find(ctx, args[0])
				if err != nil {
					return err
				}
				out := outputOf(cmd, asJSON)
				if err := out.WriteJob(job); err != nil || asJSON || job.Summary() == nil {
					return err
				}
				var databases []console.Job
				for jobs, err := range node.Pages(ctx, console.Filter{Mirror: job.JobID, States: console.States}, console.ShownDatabases+1) {
					if err != nil {
						return err
					}
					databases = append(databases, jobs...)
				}
				return out.WriteDatabases(job, databases)
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the job as a JSON object, as the node has it")
	return cmd
}

func newJobsFailures() *cobra.Command {
	var flags nodeFlags
	var which selectFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "failures [JOB]",
		Short: "List the jobs that fail, or the documents that the target of a job refused",
		Long: "failures lists the jobs that may need somebody and are not acknowledged: those that crash, in the order in which that began,\n" +
			"those that run without progress, those whose target refuses documents, and those that have failed for\n" +
			"good. It is for server administrators. With a JOB it lists the revisions that the job's target has\n" +
			"refused: how many there are, and the latest 1,000.\n\n" + jobName + nodeHelp() +
			"The exit status is 0 if there is nothing to list, 3 if there is, 1 if the command failed, 2 if the\n" +
			"command line is wrong, and 130 or 143 if a signal stopped it.",
		Example: "  settee jobs failures --database team/_replicator\n  settee jobs failures _replicator/films --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && !which.Empty() {
				return usage(cmd, errors.New("--database, --transient, --user and --search select jobs, and exclude a JOB"))
			}
			if err := which.Check(); err != nil {
				return usage(cmd, err)
			}
			return flags.ask(cmd, func(ctx context.Context, node *console.Node) error {
				if len(args) > 0 {
					return refusedOf(ctx, cmd, node, args[0], asJSON)
				}
				found, err := printJobs(cmd, node.Failing(ctx, which.Filter), true, asJSON)
				return cmp.Or(err, failingIf(found))
			})
		},
	}
	flags.register(cmd)
	which.registerPlace(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each job, or each revision, as a JSON object, one a line")
	return cmd
}

// refusedOf prints the revisions that the target of a job has refused.
func refusedOf(ctx context.Context, cmd *cobra.Command, node *console.Node, name string, asJSON bool) error {
	job, err := node.Find(ctx, name)
	if err != nil {
		return err
	}
	total, latest, err := node.Failures(ctx, job)
	if err != nil {
		return err
	}
	return cmp.Or(outputOf(cmd, asJSON).WriteRefused(job, total, latest), failingIf(total > 0))
}

// failingIf returns the error with the exit status of a list of failures.
func failingIf(found bool) error {
	if found {
		return &exitError{exitFindings, nil}
	}
	return nil
}
