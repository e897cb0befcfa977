package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"settee/fdbjobs"
	"settee/frontend"
	"settee/pkg/config"
	"settee/pkg/kv"
	"settee/pkg/tuple"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
)

func newServe() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: "serve runs a node. With no configuration it has both roles, keeps everything in ./data and\n" +
			"listens on 127.0.0.1:5984.\n\n" +
			"  api_frontend  accepts requests, and opens no connection to the outside\n" +
			"  replication   runs replication jobs, and listens to nobody\n\n" +
			"COUCHDB_NODE_TYPE_API_FRONTEND=false and COUCHDB_NODE_TYPE_REPLICATION=false take a role away.\n\n" +
			"On SIGTERM or SIGINT running jobs write a checkpoint and go back to the queue; what takes longer\n" +
			"than [settee] grace_period_sec is cut off. A second signal ends the node at once. Nothing is lost\n" +
			"either way.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, warnings, err := flags.load()
			if err != nil {
				return err
			}
			log := newLog(cmd.ErrOrStderr(), config.LogLevel.Get(cfg))
			for _, w := range warnings {
				log.Warn().Msg(w.String())
			}
			return serve(cmd.Context(), cfg, log)
		},
	}
	flags.register(cmd)
	return cmd
}

// newLog logs for people on a terminal, and in JSON elsewhere.
func newLog(out io.Writer, level zerolog.Level) zerolog.Logger {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		out = zerolog.ConsoleWriter{Out: out, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}

// serve runs a node until a signal or ctx ends it.
func serve(ctx context.Context, cfg *config.Config, log zerolog.Logger) (err error) {
	roles := cfg.Roles()
	address := netip.AddrPortFrom(config.BindAddress.Get(cfg), uint16(config.Port.Get(cfg))) // the setting is in its range
	if roles.APIFrontend && !address.Addr().IsLoopback() {
		return fmt.Errorf("%s is %s, which others can reach, but this version of settee has no accounts yet: "+
			"it listens on loopback addresses only", config.BindAddress, address.Addr())
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	db, err := kv.Open(ctx, config.Store.Get(cfg))
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkStore(ctx, db); err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	noting, endNoting := context.WithCancel(context.WithoutCancel(ctx))
	var noted sync.WaitGroup
	noted.Go(func() { noteVersions(noting, db) })
	defer noted.Wait()
	defer endNoting()
	layer := fdbjobs.Open(db, tuple.NewSubspace("fdbjobs").Bytes())
	defer layer.Close()
	store, err := jobs.Open(ctx, db, layer, jobs.Options{
		UUID: config.UUID.Get(cfg), MaxHistory: config.MaxHistory.Get(cfg),
	})
	if err != nil {
		return err
	}

	if roles != (config.Roles{APIFrontend: true, Replication: true}) && !strings.HasPrefix(config.Store.Get(cfg), "fdb:") {
		log.Warn().Stringer("roles", roles).
			Msg("this store belongs to one process: as long as this one has it, nobody else can do what it does not")
	}
	n := node{cfg: cfg, log: log, jobs: store, failed: make(chan error, 2)}
	if roles.APIFrontend {
		if err := n.listen(ctx, address); err != nil {
			return err
		}
	}
	if roles.Replication {
		n.replicate()
	}
	log.Info().Stringer("roles", roles).Str("version", currentVersion()).Msg("settee is running")
	select {
	case <-ctx.Done():
		stop() // the next signal ends the process
		log.Info().Msg("settee is shutting down")
	case err = <-n.failed:
	}
	return errors.Join(err, n.shutdown())
}

// node is what runs in the roles of one node.
type node struct {
	cfg       *config.Config
	log       zerolog.Logger
	jobs      *jobs.Store
	frontend  *http.Server
	scheduler *scheduler.Server
	failed    chan error // of a role that ended by itself
}

func (n *node) listen(ctx context.Context, address netip.AddrPort) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address.String())
	if err != nil {
		return fmt.Errorf("listening for requests: %w", err)
	}
	n.frontend = frontend.NewServer(frontend.New(frontend.Options{
		Jobs: n.jobs, Config: n.cfg, Version: currentVersion(), Log: n.log,
	}))
	go func() {
		if err := n.frontend.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.failed <- fmt.Errorf("accepting requests: %w", err)
		}
	}()
	n.log.Info().Str("url", "http://"+listener.Addr().String()+"/").Msg("settee accepts requests")
	return nil
}

func (n *node) replicate() {
	n.scheduler = scheduler.New(scheduler.Options{
		Jobs: n.jobs, Config: n.cfg, UserAgent: "settee/" + currentVersion(), Log: n.log,
	})
	go func() {
		// It ends by Shutdown only.
		_ = n.scheduler.Run(context.Background())
	}()
}

// shutdown ends both roles within the grace period.
func (n *node) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), config.GracePeriod.Get(n.cfg))
	defer cancel()
	ended := make(chan error, 2)
	roles := 0
	if n.frontend != nil {
		roles++
		go func() { ended <- errors.Join(n.frontend.Shutdown(ctx), n.frontend.Close()) }()
	}
	if n.scheduler != nil {
		roles++
		go func() { ended <- n.scheduler.Shutdown(ctx) }()
	}
	var err error
	for range roles {
		err = errors.Join(err, <-ended)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		n.log.Warn().Msg("the grace period is over: what was still running was cut off")
		return nil
	}
	return err
}
