package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"settee/pkg/config"
	"settee/replicator"
	"settee/replicator/scheduler"
	"settee/replicator/worker"
)

const (
	// progressEvery is the interval between updates of the progress bar, linesEvery between lines without a terminal.
	progressEvery = 250 * time.Millisecond
	linesEvery    = 5 * time.Second
	// shownRefusals is the number of refused documents that are printed by name.
	shownRefusals = 20
)

// replicateFlags are the flags of settee replicate. Those of a replication have the names of a
// replication document's fields.
type replicateFlags struct {
	configFlags
	continuous, createTarget, winningRevsOnly bool
	docIDs                                    []string
	filter, queryParams, selector, sinceSeq   string
}

func newReplicate() *cobra.Command {
	var flags replicateFlags
	cmd := &cobra.Command{
		Use:   "replicate SOURCE TARGET",
		Short: "Copy a database to another in the foreground, and show the progress",
		Long: "replicate copies the database at the URL SOURCE to the one at the URL TARGET. It continues\n" +
			"from the checkpoint of an earlier run. It needs no node and no store. URLs may have a\n" +
			"user name and a password, as in https://user:password@example.org/db.\n\n" +
			"The exit status is 0 if everything was copied, 1 if the replication failed, 2 if the command\n" +
			"line is wrong, 3 if the target refused documents and everything else was copied, and 130 or\n" +
			"143 if a signal stopped it.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("two URLs are needed: the source database's and the target database's")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			replication, err := flags.parse(args[0], args[1])
			if err != nil {
				return usage(cmd, err)
			}
			return flags.run(cmd, replication)
		},
	}
	flags.register(cmd)
	f := cmd.Flags()
	f.BoolVar(&flags.continuous, "continuous", false, "wait for new changes at the end of the changes feed, until stopped")
	f.BoolVar(&flags.createTarget, "create-target", false, "create the target database if it is missing")
	f.BoolVar(&flags.winningRevsOnly, "winning-revs-only", false, "do not copy conflicting revisions")
	f.StringArrayVar(&flags.docIDs, "doc-id", nil, "copy only this document; may be repeated")
	f.StringVar(&flags.filter, "filter", "", "copy the documents that a filter function of the source passes: ddoc/name")
	f.StringVar(&flags.queryParams, "query-params", "", "the parameters of the filter function, a JSON object")
	f.StringVar(&flags.selector, "selector", "", "copy the documents that match a selector, a JSON object")
	f.StringVar(&flags.sinceSeq, "since-seq", "", "the sequence of the changes feed to start from if there is no checkpoint")
	return cmd
}

// parse converts the command line into a body of POST /_replicate and parses that, so that the command accepts what a
// node accepts, with the same error messages.
func (f *replicateFlags) parse(source, target string) (*replicator.Replication, error) {
	body := map[string]any{"source": source, "target": target}
	for name, on := range map[string]bool{
		"continuous": f.continuous, "create_target": f.createTarget, "winning_revs_only": f.winningRevsOnly,
	} {
		if on {
			body[name] = true
		}
	}
	if f.docIDs != nil {
		body["doc_ids"] = f.docIDs
	}
	if f.filter != "" {
		body["filter"] = f.filter
	}
	if f.sinceSeq != "" {
		body["since_seq"] = f.sinceSeq
	}
	for name, text := range map[string]string{"query_params": f.queryParams, "selector": f.selector} {
		if text == "" {
			continue
		}
		if !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("`%s` must be a JSON object", name)
		}
		body[name] = json.RawMessage(text)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("writing the replication: %w", err)
	}
	request, err := replicator.ParseRequest(text, replicator.ParseOptions{})
	if err != nil {
		return nil, err
	}
	return request.Replication, nil
}

func (f *replicateFlags) run(cmd *cobra.Command, replication *replicator.Replication) error {
	cfg, warnings, err := f.load()
	if err != nil {
		return err
	}
	for _, w := range warnings {
		cmd.PrintErrln("settee: warning:", w.String())
	}
	if err := replication.Check(replicator.ParseOptions{
		EndpointProtocols: config.ValidEndpointProtocols.Get(cfg),
		ProxyProtocols:    config.ValidProxyProtocols.Get(cfg),
	}); err != nil {
		return usage(cmd, err)
	}

	stop, sig, release := stopOnSignal()
	defer release()
	display, every := newDisplay(cmd.ErrOrStderr())
	settings := scheduler.WorkerConfig(cfg)
	if settings.ServerUUID, err = foregroundUUID(cfg); err != nil {
		return err
	}
	settings.ReportInterval = every
	settings.UserAgent = "settee/" + currentVersion()
	settings.Refused = display.refused
	outbound := newConnections(func() *config.Config { return cfg }, newLog(cmd.ErrOrStderr(), zerolog.WarnLevel))
	defer outbound.pool.Close()
	settings.Transport = outbound.transport

	began := time.Now()
	result, err := worker.Run(cmd.Context(), worker.Job{Replication: replication, Stop: stop}, settings, display)
	display.end()
	return summary(cmd.OutOrStdout(), result, err, time.Since(began), sig)
}

// foregroundUUID returns the server uuid for the replication ids of this command: the configured one, or one that
// depends only on the host name, so that a later run finds the checkpoints.
func foregroundUUID(cfg *config.Config) (string, error) {
	if id := config.UUID.Get(cfg); id != "" {
		return id, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("making the server uuid from the name of this host: %w", err)
	}
	sum := sha256.Sum256([]byte("settee replicate on " + host))
	return hex.EncodeToString(sum[:16]), nil
}

// stopOnSignal returns a channel that is closed at the first SIGINT or SIGTERM, and a function that
// returns this signal. A second signal ends the process. release stops waiting for signals.
func stopOnSignal() (stop <-chan struct{}, received func() syscall.Signal, release func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	asked := make(chan struct{})
	done := make(chan struct{})
	var number atomic.Int64
	go func() {
		select {
		case got := <-signals:
			if s, ok := got.(syscall.Signal); ok {
				number.Store(int64(s))
			}
			signal.Stop(signals) // the next signal ends the process
			close(asked)
		case <-done:
			signal.Stop(signals)
		}
	}()
	return asked, func() syscall.Signal { return syscall.Signal(number.Load()) }, func() { close(done) }
}

// summary prints how a run ended, and returns the error with the exit status.
func summary(out io.Writer, result worker.Result, err error, took time.Duration, received func() syscall.Signal) error {
	stats := result.Stats
	outcome := "completed"
	switch {
	case errors.Is(err, worker.ErrStopped):
		outcome = "stopped"
	case err != nil:
		outcome = "failed"
	}
	_, printErr := fmt.Fprintf(out, "%s: %d documents read, %d written, %d refused in %s (%.0f a second)\n",
		outcome, stats.DocsRead, stats.DocsWritten, stats.DocWriteFailures,
		took.Round(time.Millisecond), float64(stats.DocsWritten)/max(took.Seconds(), 0.001))
	switch {
	case errors.Is(err, worker.ErrStopped):
		return &exitError{128 + int(received()), errors.New("stopped; the same command continues from the checkpoint")}
	case err != nil:
		return err
	case stats.DocWriteFailures > 0:
		return &exitError{exitRefused, nil}
	}
	return printErr
}
