package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"settee/cmd/settee/internal/credentials"
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

// replicateFlags are the flags of settee replicate. Those of a replication have the names of a
// replication document's fields.
type replicateFlags struct {
	clientFlags
	selectionFlags
	mirrorFlags
	continuous, createTarget, verify, json bool
}

// selectionFlags are the flags that select documents.
type selectionFlags struct {
	winningRevsOnly                         bool
	docIDs                                  []string
	filter, queryParams, selector, sinceSeq string
}

// register adds the flags to a command that copies or compares documents, as verb says.
func (s *selectionFlags) register(f *pflag.FlagSet, verb string) {
	f.BoolVar(&s.winningRevsOnly, "winning-revs-only", false, "do not "+verb+" conflicting revisions")
	f.StringArrayVar(&s.docIDs, "doc-id", nil, verb+" only this document; may be repeated")
	f.StringVar(&s.filter, "filter", "", verb+" the documents that a filter function of the source passes: ddoc/name")
	f.StringVar(&s.queryParams, "query-params", "", "the parameters of the filter function, a JSON object")
	f.StringVar(&s.selector, "selector", "", verb+" the documents that match a selector, a JSON object")
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
			if err := flags.mirrorFlags.check(cmd); err != nil {
				return usage(cmd, err)
			}
			c, err := flags.open(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			source, target, err := c.endpoints(args)
			if err != nil {
				return err
			}
			replication, err := flags.parse(source, target)
			if err != nil {
				return usage(cmd, err)
			}
			if flags.mirror {
				return flags.runMirror(c, replication)
			}
			return flags.run(c, replication)
		},
	}
	f := cmd.Flags()
	flags.clientFlags.register(cmd)
	flags.selectionFlags.register(f, "copy")
	flags.mirrorFlags.register(f, "copy")
	f.BoolVar(&flags.continuous, "continuous", false, "wait for new changes at the end of the changes feed, until stopped")
	f.BoolVar(&flags.createTarget, "create-target", false, "create the target database if it is missing")
	f.StringVar(&flags.sinceSeq, "since-seq", "", "the sequence of the changes feed to start from if there is no checkpoint")
	f.BoolVar(&flags.verify, "verify", false, "then compare the databases, as the command verify does")
	f.BoolVar(&flags.json, "json", false, "with --mirror: print a JSON object per line: the databases that failed, and then the counts")
	return cmd
}

// twoURLs checks the arguments of a command with a source and a target.
func twoURLs(_ *cobra.Command, args []string) error {
	if len(args) != 2 {
		return errors.New("two URLs are needed: the source's and the target's")
	}
	return nil
}

func (f *replicateFlags) parse(source, target any) (*replicator.Replication, error) {
	fields := map[string]any{}
	for name, on := range map[string]bool{"continuous": f.continuous, "create_target": f.createTarget} {
		if on {
			fields[name] = true
		}
	}
	f.mirrorFlags.add(fields)
	return f.selectionFlags.parse(source, target, fields)
}

// parse converts the command line into a body of POST /_replicate and parses that, so that a command accepts what a
// node accepts, with the same error messages. body has further fields.
func (s *selectionFlags) parse(source, target any, body map[string]any) (*replicator.Replication, error) {
	body["source"], body["target"] = source, target
	if s.winningRevsOnly {
		body["winning_revs_only"] = true
	}
	if s.docIDs != nil {
		body["doc_ids"] = s.docIDs
	}
	if s.filter != "" {
		body["filter"] = s.filter
	}
	if s.sinceSeq != "" {
		body["since_seq"] = s.sinceSeq
	}
	for flag, text := range map[string]string{"query-params": s.queryParams, "selector": s.selector} {
		if text == "" {
			continue
		}
		if !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("--%s must be a JSON object", flag)
		}
		body[strings.ReplaceAll(flag, "-", "_")] = json.RawMessage(text)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("writing the replication: %w", err)
	}
	request, err := replicator.ParseRequest(text, replicator.ParseOptions{})
	if err != nil {
		return nil, nameFlags(err)
	}
	return request.Replication, nil
}

func (f *replicateFlags) run(c *client, replication *replicator.Replication) error {
	settings, err := c.worker(replication)
	if err != nil {
		return err
	}
	stop, unwatch := stopOnSignal(c.cmd.Context())
	defer unwatch()
	display := newDisplay(c.cmd.OutOrStdout(), c.cmd.ErrOrStderr(), false)
	settings.ReportInterval, settings.Refused = display.every, display.refused
	result, err := worker.Run(c.cmd.Context(), worker.Job{Replication: replication, Stop: stop}, settings, display)
	outcome, failed := "completed", err
	switch {
	case errors.Is(err, worker.ErrStopped):
		outcome, failed = "stopped", stopped(stop, errors.New("stopped; the same command continues from the checkpoint"))
	case err != nil:
		outcome = "failed"
	case result.RunStats.DocWriteFailures > 0:
		failed = &exitError{exitRefused, nil}
	}
	failed = cmp.Or(failed, display.say(nil, outcome+": "+describeCopied(result.RunStats, time.Since(display.began))))
	if err != nil || !f.verify {
		return failed
	}
	what := worker.Verification{Replication: replication, Wait: defaultWait, Stop: stop}
	return cmp.Or(verify(c.cmd, what, settings, false), failed)
}

// signalled is the cause of the end of a context that a signal has ended.
type signalled syscall.Signal

func (s signalled) Error() string { return syscall.Signal(s).String() }

// stopOnSignal returns a context that ends with ctx, and at the first SIGINT or SIGTERM: see stopped. A second signal ends the
// process. release stops waiting for signals.
func stopOnSignal(ctx context.Context) (stop context.Context, release func()) {
	stop, end := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case got := <-signals:
			signal.Stop(signals) // the next signal ends the process
			end(signalled(got.(syscall.Signal)))
		case <-stop.Done():
			signal.Stop(signals)
		}
	}()
	return stop, func() { end(nil) }
}

// stopped returns the error with the exit status of a command that a signal has stopped. stop is the context of stopOnSignal, and
// err has the text.
func stopped(stop context.Context, err error) error {
	by, _ := errors.AsType[signalled](context.Cause(stop))
	return &exitError{128 + int(by), err}
}
