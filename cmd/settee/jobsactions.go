package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/console"
	"settee/pkg/redact"
	"settee/replicator"
)

// each prints what an action does with each thing that it is for. It goes on after an error, and returns an exit status if
// there was one.
type each struct {
	cmd    *cobra.Command
	failed int
}

func (e *each) do(ctx context.Context, name string, act func() (string, error)) error {
	said, err := act()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		e.failed++
		e.cmd.PrintErrf("settee: %s: %s\n", console.Clean(name), console.Clean(redact.Text(err.Error())))
		return nil
	}
	_, err = fmt.Fprintf(e.cmd.OutOrStdout(), "%s: %s\n", console.Clean(name), console.Clean(said))
	return err
}

// all does it with all things of a command line.
func (e *each) all(ctx context.Context, names []string, act func(name string) (string, error)) error {
	for _, name := range names {
		if err := e.do(ctx, name, func() (string, error) { return act(name) }); err != nil {
			return err
		}
	}
	return e.status()
}

func (e *each) status() error {
	if e.failed > 0 {
		return &exitError{exitFailed, nil}
	}
	return nil
}

// action is what a command does with the jobs that its line names or selects.
type action struct {
	// job does it with a job, and returns what happens, in words.
	job func(*console.Node, context.Context, console.Job) (string, error)
	// database does it with a replicator database, which is then named as jobs are. nil: they cannot be named.
	database func(*console.Node, context.Context, string) (string, error)
	// check returns an error if the other flags of the command exclude each other. nil: they do not.
	check func() error
	// question is the beginning of what is asked before it is done, such as "Delete": the command has --yes. Empty: nothing is asked.
	question string
}

// newAction completes a command that acts on jobs.
func newAction(cmd *cobra.Command, a action) *cobra.Command {
	var flags nodeFlags
	var which selectFlags
	var yes bool
	cmd.Long += "\n\n" + actionHelp()
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		err := checkSelection(names, which.Filter)
		if a.check != nil {
			err = errors.Join(err, a.check())
		}
		if err != nil {
			return usage(cmd, err)
		}
		return flags.ask(cmd, func(ctx context.Context, node *console.Node) error {
			if a.question != "" && !yes {
				if err := a.ask(ctx, cmd, node, names, which.Filter); err != nil {
					return err
				}
			}
			return a.do(ctx, &each{cmd: cmd}, node, names, which.Filter)
		})
	}
	flags.register(cmd)
	which.register(cmd.Flags())
	if a.question != "" {
		cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	}
	return cmd
}

// ask asks the question.
func (a *action) ask(ctx context.Context, cmd *cobra.Command, node *console.Node, names []string, f console.Filter) error {
	what := strings.Join(names, ", ")
	if len(names) == 0 {
		n := 0
		for jobs, err := range node.Pages(ctx, f, 0) {
			if err != nil {
				return err
			}
			n += len(jobs)
		}
		what = fmt.Sprintf("%d jobs that are selected", n)
	}
	return confirm(cmd, a.question+" "+console.Clean(what)+"? [y/N] ")
}

// do acts on the jobs with the names, or, if there are none, on those that the filter selects.
func (a *action) do(ctx context.Context, e *each, node *console.Node, names []string, f console.Filter) error {
	if len(names) > 0 {
		return e.all(ctx, names, func(name string) (string, error) { return a.named(ctx, node, name) })
	}
	for jobs, err := range node.Pages(ctx, f, 0) {
		if err != nil {
			return err
		}
		for _, job := range jobs {
			if err := e.do(ctx, job.Name(), func() (string, error) { return a.job(node, ctx, job) }); err != nil {
				return err
			}
		}
	}
	return e.status()
}

// named acts on the job or the database with a name.
func (a *action) named(ctx context.Context, node *console.Node, name string) (string, error) {
	if a.database != nil && replicator.IsReplicatorDatabase(name) {
		return a.database(node, ctx, name)
	}
	job, err := node.Find(ctx, name)
	if err != nil {
		return "", err
	}
	return a.job(node, ctx, job)
}

// checkSelection returns an error unless a command line has either names or a filter.
func checkSelection(names []string, f console.Filter) error {
	switch {
	case len(names) > 0 && !f.Empty():
		return errors.New("name jobs, or select them with --state, --database, --transient, --user and --search, but not both")
	case len(names) == 0 && f.Empty():
		return errors.New("which jobs? Name them, or select them with --state, --database, --transient, --user and --search")
	}
	return f.Check()
}

// actionHelp is the part of an action's help about its jobs and its exit status.
func actionHelp() string {
	return "The jobs are named, or selected with --state and the other filters of jobs list.\n\n" + jobName + nodeHelp() +
		"The exit status is 0 if all could be done, 1 if something failed (the rest is done nevertheless), 2 if\n" +
		"the command line is wrong, and 130 or 143 if a signal stopped it.\n"
}

func newJobsRun() *cobra.Command {
	return newAction(&cobra.Command{
		Use:   "run [JOB...]",
		Short: "Run jobs now that wait for their time",
		Long: "run runs jobs at once that crash, that are periodic, or that are parked. A job that is paused, or\n" +
			"whose database is, runs when that is resumed. The document of a job that has ended is written again, so\n" +
			"that it is replicated once more.",
		Example: "  settee jobs run _replicator/films\n  settee jobs run --state crashing --search b.example",
	}, action{job: (*console.Node).RunNow})
}

func newJobsVerify() *cobra.Command {
	return newAction(&cobra.Command{
		Use:   "verify [JOB...]",
		Short: "Let a node compare both ends of jobs",
		Long: "verify asks for a comparison of both ends of jobs, whatever their state, by a node with the role replication:\n" +
			"it looks for each leaf revision of the source at the target, and changes nothing. A mirror compares all its\n" +
			"databases. It does not wait: settee jobs show has what was found.",
		Example: "  settee jobs verify _replicator/films\n  settee jobs verify --state completed",
	}, action{job: (*console.Node).Verify})
}

func newJobsDelete() *cobra.Command {
	return newAction(&cobra.Command{
		Use:   "delete [JOB...]",
		Short: "Delete replications: the documents of jobs, or the jobs that were posted to _replicate",
		Long: "delete deletes the documents of jobs, and cancels jobs that were posted to _replicate. What was copied\n" +
			"stays. To stop jobs for a while, pause them. On a terminal it asks first; without one it\n" +
			"needs --yes.",
		Example: "  settee jobs delete _replicator/films --yes",
	}, action{job: (*console.Node).Delete, question: "Delete"})
}

func newJobsAcknowledge() *cobra.Command {
	var note, end string
	var undo bool
	var until time.Time
	cmd := &cobra.Command{
		Use:   "acknowledge [JOB...]",
		Short: "Say that you know of the trouble of jobs, so that they need nobody's attention",
		Long: "acknowledge takes jobs that fail, are stuck or have refused documents out of the problems and the alerts.\n" +
			"They are tried again as before. That ends at the end that is given, if they get another error, and if they\n" +
			"have trouble again after progress. settee jobs show has the note.",
		Example: "  settee jobs acknowledge _replicator/films --note 'a.example moves' --until 24h\n  settee jobs acknowledge _replicator/films --undo",
	}
	cmd.Flags().StringVar(&note, "note", "", "why, at most 500 bytes")
	cmd.Flags().StringVar(&end, "until", "", "the end: a duration such as 24h, or a time such as 2026-12-01T00:00:00Z")
	cmd.Flags().BoolVar(&undo, "undo", false, "take the acknowledgement back")
	return newAction(cmd, action{
		job: func(node *console.Node, ctx context.Context, job console.Job) (string, error) {
			if undo {
				return node.Unacknowledge(ctx, job)
			}
			return node.Acknowledge(ctx, job, note, until)
		},
		check: func() (err error) {
			if undo && (note != "" || end != "") {
				return errors.New("--undo excludes --note and --until")
			}
			until, err = console.ParseUntil(end, time.Now())
			return err
		},
	})
}

// confirm asks a question on the terminal before anything is changed. It returns an error unless the answer is yes.
func confirm(cmd *cobra.Command, question string) error {
	in := terminal(cmd.InOrStdin())
	if in == nil {
		return usage(cmd, errors.New("--yes is needed: there is no terminal to ask on"))
	}
	line, err := asker{in, cmd.ErrOrStderr()}.Ask(question)
	if err != nil {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// pauseHelp says what is paused.
const pauseHelp = "A single job is paused in its document, with \"paused\": true. A mirror is paused with all its databases,\n" +
	"which cannot be paused one by one. Jobs that were posted to _replicate cannot be paused. A DATABASE is the\n" +
	"name of a replicator database, such as team/_replicator: it is paused with all its jobs, by giving it no\n" +
	"shares of the nodes' time ([replicator.shares]), which is for server administrators."

func newJobsPause() *cobra.Command {
	return newAction(&cobra.Command{
		Use:     "pause [JOB|DATABASE...]",
		Short:   "Pause jobs, or all jobs of replicator databases",
		Long:    "pause stops running jobs, after a checkpoint, and starts them no more until they are resumed.\n\n" + pauseHelp,
		Example: "  settee jobs pause _replicator/films\n  settee jobs pause team/_replicator",
	}, action{job: (*console.Node).PauseJob, database: (*console.Node).Pause})
}

func newJobsResume() *cobra.Command {
	var shares int
	cmd := &cobra.Command{
		Use:   "resume [JOB|DATABASE...]",
		Short: "Resume paused jobs, or the jobs of paused replicator databases",
		Long: "resume lets paused jobs go on from their checkpoints. Paused replicator databases get the shares again\n" +
			"that they had before. If these are not known, they get 100, which is usual.\n\n" + pauseHelp,
		Example: "  settee jobs resume _replicator/films\n  settee jobs resume team/_replicator",
	}
	cmd.Flags().IntVar(&shares, "shares", 0, "give databases so many shares, from 1 to 1000")
	return newAction(cmd, action{
		job: (*console.Node).ResumeJob,
		database: func(node *console.Node, ctx context.Context, database string) (string, error) {
			return node.Resume(ctx, database, shares)
		},
		check: func() error {
			if !cmd.Flags().Changed("shares") {
				return nil
			}
			return within("shares", shares, 1, 1000)
		},
	})
}
