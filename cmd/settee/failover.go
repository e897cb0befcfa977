package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/console"
	"settee/pkg/retry"
	"settee/replicator"
	"settee/replicator/worker"
)

// failoverRetry is the time between a comparison that found a difference and the next one.
const failoverRetry = 5 * time.Second

// failoverFlags are the flags of settee failover.
type failoverFlags struct {
	nodeFlags
	check, yes bool
	databases  int
	wait       time.Duration
}

func newFailover() *cobra.Command {
	var flags failoverFlags
	cmd := &cobra.Command{
		Use:   "failover MIRROR",
		Short: "Turn a mirror round: prove that the standby has everything, and mirror it to the server that it stood by for",
		Long: "failover moves the writers of a server to its standby, in four steps. It waits until the mirror has copied\n" +
			"everything. It compares both servers, as verify --mirror does, until they are equal. It writes the\n" +
			"mirror's document with the source and the target exchanged. Then it waits until the other way is up to\n" +
			"date. Each step says what it does, and how to go back. Until the third step nothing is changed, and a\n" +
			"signal ends the command. The same command goes back later.\n\n" +
			"Stop the writers first, and start them at the standby afterwards. On a terminal the command asks whether\n" +
			"they have stopped; without one it needs --yes. --check compares once, reports, and changes nothing.\n\n" +
			"The command compares the servers itself, so it has to reach both, with the credentials that the\n" +
			"mirror's document has. If the source is lost, nothing can be compared: docs/mirrors.md says what to do.\n\n" +
			jobName + nodeHelp() +
			"The exit status is 0 if the mirror was turned round, or could be, 1 if the command failed, 2 if the\n" +
			"command line is wrong, 3 if --check found that the standby lacks something, and 130 or 143 if a signal\n" +
			"stopped it.",
		Example: "  settee failover standby --check\n  settee failover standby --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cmp.Or(within("databases", flags.databases, 1, maxDatabases), notNegative("wait", flags.wait)); err != nil {
				return usage(cmd, err)
			}
			c, node, err := flags.open(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			return asking(cmd, func(ctx context.Context) error {
				f := &failover{foreground: foreground{cmd: cmd, stop: ctx, atATime: flags.databases}, failoverFlags: &flags, node: node, name: args[0]}
				if err := f.read(ctx, c); err != nil {
					return err
				}
				if flags.check {
					return f.report(ctx)
				}
				return f.turn(ctx)
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&flags.check, "check", false, "compare once, and change nothing")
	cmd.Flags().BoolVar(&flags.yes, "yes", false, "the writers have stopped: do not ask")
	cmd.Flags().IntVar(&flags.databases, "databases", defaultDatabases, fmt.Sprintf("the number of databases that are compared at a time, at most %d", maxDatabases))
	cmd.Flags().DurationVar(&flags.wait, "wait", defaultWait, "the time after which a missing revision is asked about again")
	return cmd
}

// failover turns a mirror round.
type failover struct {
	foreground // of the mirror
	*failoverFlags
	node     *console.Node
	name     string
	job      console.Job
	document *console.Document
}

// read reads the mirror.
func (f *failover) read(ctx context.Context, c *client) (err error) {
	if f.job, err = f.node.Find(ctx, f.name); err != nil {
		return err
	}
	if f.job.DocID == nil {
		return errors.New("it has no document that could be turned round")
	}
	if f.document, err = f.node.Document(ctx, f.job); err != nil {
		return err
	}
	text, err := f.document.Text()
	if err != nil {
		return err
	}
	parsed, err := replicator.ParseText(*f.job.DocID, text, replicator.ParseOptions{})
	if err != nil {
		return err
	}
	f.replication = parsed.Replication
	switch {
	case f.replication == nil || f.replication.Mirror == nil || !f.replication.Continuous:
		return fmt.Errorf("%q is no continuous mirror", f.name)
	case f.replication.Mirror.Prefix != "":
		return fmt.Errorf("%q has a prefix, and cannot be turned round: the databases would get it again on the way back", f.name)
	}
	f.settings, err = c.workerSettings(f.replication)
	return err
}

// ends returns the URLs of both servers, without credentials.
func (f *failover) ends() (source, target string) {
	return f.replication.Source.String(), f.replication.Target.String()
}

func (f *failover) say(format string, args ...any) {
	_, _ = fmt.Fprintln(f.cmd.OutOrStdout(), console.Clean(fmt.Sprintf(format, args...)))
}

// report is --check.
func (f *failover) report(ctx context.Context) error {
	source, target := f.ends()
	f.say("%s mirrors %s to %s: %s", f.name, source, target, f.job.Summary())
	err := f.compare(ctx)
	if err == nil && !f.job.Summary().UpToDate() {
		err = &exitError{exitFindings, nil}
	}
	if err == nil {
		f.say("If the writers of %s have stopped, the mirror can be turned round: settee failover %s", source, f.name)
	}
	return err
}

// turn is the four steps.
func (f *failover) turn(ctx context.Context) error {
	source, target := f.ends()
	if !f.yes {
		if err := confirm(f.cmd, fmt.Sprintf("Have all writers of %s stopped? [y/N] ", source)); err != nil {
			return err
		}
	}
	if err := f.prove(ctx); err != nil {
		f.say("Nothing was changed. To go back, start the writers at %s", source)
		return err
	}
	f.say("3 of 4: turning the document round, so that %s is mirrored to %s", target, source)
	if err := f.node.TurnRound(ctx, f.document); err != nil {
		f.say("See which way the mirror goes: settee jobs show %s", f.name)
		return err
	}
	f.say("The writers may start at %s. To go back, stop them and run settee failover %s again", target, f.name)
	f.say("4 of 4: waiting until %s has everything of %s", source, target)
	if err := f.awaitUpToDate(ctx); err != nil {
		return err
	}
	f.say("%s is mirrored to %s, and everything is there", target, source)
	return nil
}

// prove is the first two steps: it waits until the target has everything.
func (f *failover) prove(ctx context.Context) error {
	source, target := f.ends()
	f.say("1 of 4: waiting until the mirror %s has copied everything of %s", f.name, source)
	if err := f.awaitUpToDate(ctx); err != nil {
		return err
	}
	f.say("2 of 4: comparing %s with %s", target, source)
	for {
		err := f.compare(ctx)
		if !exitsWith(err, exitFindings) || ctx.Err() != nil {
			return err
		}
		f.say("  Not equal: the mirror compares everything, and then both are compared again. Nothing was changed: a signal ends this")
		if _, err := f.node.RunNow(ctx, f.job); err != nil {
			return err
		}
		if err := retry.Wait(ctx, failoverRetry); err != nil {
			return err
		}
		if err := f.awaitUpToDate(ctx); err != nil {
			return err
		}
	}
}

// awaitUpToDate waits until the mirror has copied everything, and prints what it does.
func (f *failover) awaitUpToDate(ctx context.Context) error {
	return f.node.AwaitUpToDate(ctx, f.job, func(says string) { f.say("  %s", says) })
}

// compare compares both servers, and prints the outcome. The error is an *exitError with exitFindings if they differ.
func (f *failover) compare(ctx context.Context) error {
	now, err := f.node.Find(ctx, f.job.JobID)
	if err != nil {
		return err
	}
	looked := time.Time{}
	if m := now.Summary(); m != nil {
		looked = m.LastLook
	}
	return f.verify(worker.Verification{Wait: f.wait}, looked)
}
