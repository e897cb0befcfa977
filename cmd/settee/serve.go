package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/console"
	"settee/cmd/settee/internal/lifecycle"
	"settee/pkg/config"
	"settee/pkg/redact"
)

func newServe() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: "serve runs a node. With no configuration it has both roles, keeps everything in ./data and\n" +
			"listens on 127.0.0.1:5984.\n\n" +
			"  api_frontend  accepts requests, and opens no connection to the outside\n" +
			"  replication   runs replication jobs, and accepts no requests\n\n" +
			"COUCHDB_NODE_TYPE_API_FRONTEND=false and COUCHDB_NODE_TYPE_REPLICATION=false switch a role off.\n\n" +
			"A frontend needs a server administrator. COUCHDB_USER and COUCHDB_PASSWORD, or [admins] in a file,\n" +
			"name one. If there is none and the node is started on a terminal, it creates the administrator\n" +
			"\"admin\" and prints the password once.\n\n" +
			"On SIGTERM or SIGINT running jobs write a checkpoint and go back to the queue. A frontend answers\n" +
			"requests for [settee] drain_sec more, or until the next signal, while /_up fails. After that, what\n" +
			"takes longer than [settee] grace_period_sec is cut off. A second signal then ends the node at once.\n" +
			"Nothing is lost either way. On SIGHUP the node reads the files of --config again.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reloads := make(chan os.Signal, 1)
			signal.Notify(reloads, syscall.SIGHUP)
			defer signal.Stop(reloads)
			cfg, warnings, err := flags.load()
			if err != nil {
				return err
			}
			// The global level decides what is logged. It can change while the node runs, unlike the log's own level.
			zerolog.SetGlobalLevel(config.LogLevel.Get(cfg))
			log := newLog(cmd.ErrOrStderr(), zerolog.TraceLevel)
			for _, w := range warnings {
				log.Warn().Msg(w.String())
			}
			var screen io.Writer
			if file := terminal(cmd.ErrOrStderr()); file != nil {
				screen = file
			}
			return (&node{cfg: cfg, files: flags.files, reloads: reloads, screen: screen, log: log}).run(cmd.Context())
		},
	}
	flags.register(cmd)
	return cmd
}

// newLog returns a log that writes readable lines if out is a terminal, and JSON otherwise.
func newLog(out io.Writer, level zerolog.Level) zerolog.Logger {
	if screen := terminal(out); screen != nil {
		// It quotes the fields, but not the message.
		clean := func(line map[string]any) error {
			if message, ok := line[zerolog.MessageFieldName].(string); ok {
				line[zerolog.MessageFieldName] = console.Clean(message)
			}
			return nil
		}
		out = zerolog.ConsoleWriter{Out: screen, TimeFormat: time.TimeOnly, FormatPrepare: clean}
	}
	return zerolog.New(redact.Writer(out)).Level(level).With().Timestamp().Logger()
}

// run runs the node, with more parts after its own, until a signal or ctx ends it.
func (n *node) run(ctx context.Context, more ...lifecycle.Part) error {
	if !n.cfg.Roles().Replication {
		refuseOutbound()
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(busyGarbage)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	n.failed = make(chan error, 1)
	return lifecycle.Run(ctx, append(n.parts(), more...), lifecycle.Options{
		Failed: n.failed,
		Grace:  n.gracePeriod,
		Ending: func() context.Context {
			drain := untilDrained(n.drainTime())
			stop()
			n.log.Info().Msg("settee is shutting down")
			return drain
		},
		CutOff: func() { n.log.Warn().Msg("the grace period is over: what was still running was cut off") },
	})
}

// untilDrained returns a context that ends after d, or at a signal. Signals after that end the process.
func untilDrained(d time.Duration) context.Context {
	if d <= 0 {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		return over
	}
	signalled, release := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	drain, cancel := context.WithTimeout(signalled, d)
	context.AfterFunc(drain, func() {
		release()
		cancel()
	})
	return drain
}
