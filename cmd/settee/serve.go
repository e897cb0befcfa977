package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"settee/fdbjobs"
	"settee/frontend"
	"settee/frontend/accounts"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/redact"
	"settee/pkg/tuple"
	"settee/replicator"
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
			"A frontend needs a server administrator: COUCHDB_USER and COUCHDB_PASSWORD, or [admins] in a file,\n" +
			"name one. On a terminal a store without any gets the administrator \"admin\", and the password is\n" +
			"printed, this once.\n\n" +
			"On SIGTERM or SIGINT running jobs write a checkpoint and go back to the queue; what takes longer\n" +
			"than [settee] grace_period_sec is cut off. A second signal ends the node at once. Nothing is lost\n" +
			"either way. On SIGHUP the node reads the files of --config again.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reloads := make(chan os.Signal, 1)
			signal.Notify(reloads, syscall.SIGHUP)
			defer signal.Stop(reloads)
			cfg, warnings, err := flags.load()
			if err != nil {
				return err
			}
			// What is logged changes while the node runs.
			zerolog.SetGlobalLevel(config.LogLevel.Get(cfg))
			log := newLog(cmd.ErrOrStderr(), zerolog.TraceLevel)
			for _, w := range warnings {
				log.Warn().Msg(w.String())
			}
			return serve(cmd.Context(), cfg, flags.files, reloads, terminal(cmd.ErrOrStderr()), log)
		},
	}
	flags.register(cmd)
	return cmd
}

// newLog logs for people on a terminal, and in JSON elsewhere.
func newLog(out io.Writer, level zerolog.Level) zerolog.Logger {
	if screen := terminal(out); screen != nil {
		out = zerolog.ConsoleWriter{Out: screen, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(redact.Writer(out)).Level(level).With().Timestamp().Logger()
}

// terminal returns out if that is a terminal, which somebody reads, and keeps to themselves;
// otherwise nil.
func terminal(out io.Writer) io.Writer {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

// serve runs a node until a signal or ctx ends it. What comes from reloads has it read the
// files of the configuration again. screen is the terminal, nil if there is none.
func serve(
	ctx context.Context, cfg *config.Config, files []string, reloads <-chan os.Signal, screen io.Writer, log zerolog.Logger,
) (err error) {
	roles := cfg.Roles()
	if !roles.Replication {
		refuseOutbound()
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	db, err := openStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	keys, err := openKeys(ctx, db, cfg, log)
	if err != nil {
		return err
	}
	live, err := config.OpenLive(ctx, cfg, config.LiveOptions{
		Store: db, Prefix: tuple.NewSubspace("config").Bytes(), Files: files, Log: log, Sealer: keys,
	})
	if err != nil {
		return err
	}
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { logWriteFailure(background, db, log) })
	ended.Go(func() { noteVersions(background, db) })
	ended.Go(func() { keepNoted(background, db, keys) })
	ended.Go(func() { follow(background, live, reloads, log) })
	defer ended.Wait()
	defer end()
	layer := fdbjobs.OpenSealed(db, tuple.NewSubspace("fdbjobs").Bytes(), keys)
	defer layer.Close()
	prefix := tuple.NewSubspace("docs").Bytes()
	store, err := jobs.Open(ctx, db, layer, jobs.Options{
		UUID: config.UUID.Get(cfg), Documents: prefix, Sealer: keys, Settings: func() jobs.Settings { return jobSettings(live.Current()) },
	})
	if err != nil {
		return err
	}
	docs := openDocuments(db, prefix, store, live.Current)
	defer docs.Close()

	if roles != (config.Roles{APIFrontend: true, Replication: true}) && !strings.HasPrefix(config.Store.Get(cfg), "fdb:") {
		log.Warn().Stringer("roles", roles).
			Msg("this store belongs to one process: as long as this one has it, nobody else can do what it does not")
	}
	n := node{live: live, log: log, db: db, jobs: store, docs: docs, metrics: newMetrics(store), failed: make(chan error, 3)}
	defer func() { err = errors.Join(err, n.shutdown()) }()
	if err := n.listenForScrapes(ctx, cfg); err != nil {
		return err
	}
	if roles.APIFrontend {
		if err := createDatabases(ctx, docs); err != nil {
			return err
		}
		if n.accounts, err = openAccounts(ctx, db, keys, docs, live, screen, log); err != nil {
			return err
		}
		ended.Go(func() { hashAdmins(background, live, n.accounts, files, log) })
		ended.Go(func() { n.accounts.RenewHashes(background) })
		if err := n.listen(ctx, cfg); err != nil {
			return err
		}
		n.keepUp(layer)
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
	return err
}

// entrance is where an api_frontend node accepts requests.
type entrance struct {
	address netip.AddrPort
	secure  bool // by TLS
}

// entrances are those of a node, if it is an api_frontend.
func entrances(cfg *config.Config) []entrance {
	at := config.BindAddress.Get(cfg)
	all := []entrance{{netip.AddrPortFrom(at, uint16(config.Port.Get(cfg))), false}} // the settings of ports are in their range
	if config.TLSEnable.Get(cfg) {
		if own := config.TLSAddress.Get(cfg); own.IsValid() {
			at = own
		}
		all = append(all, entrance{netip.AddrPortFrom(at, uint16(config.TLSPort.Get(cfg))), true})
	}
	return all
}

// openDocuments opens the databases. What is written to replicator databases makes jobs. How
// large documents may be, where less than the store takes, is the frontend's to say.
func openDocuments(db kv.Database, prefix []byte, store *jobs.Store, current func() *config.Config) *docstore.Store {
	return docstore.Open(db, prefix, docstore.Options{
		Sealer: store.Sealer(), Sealed: sealedDatabase,
		Security: json.RawMessage(frontend.DefaultSecurity),
		Hooks: store.HooksFor(func() replicator.ParseOptions {
			cfg := current()
			return replicator.ParseOptions{
				EndpointProtocols: config.ValidEndpointProtocols.Get(cfg),
				ProxyProtocols:    config.ValidProxyProtocols.Get(cfg),
			}
		}),
	})
}

// createDatabases makes the databases that every server has, if they are missing. Nodes that
// start together all do it.
func createDatabases(ctx context.Context, docs *docstore.Store) error {
	for _, name := range []string{"_replicator", "_users"} {
		if _, err := docs.Create(ctx, name); err != nil && !errors.Is(err, docstore.ErrDatabaseExists) {
			return err
		}
	}
	return nil
}

// node is what runs in the roles of one node.
type node struct {
	live      *config.Live
	log       zerolog.Logger
	db        kv.Database
	jobs      *jobs.Store
	docs      *docstore.Store
	accounts  *accounts.Accounts // of a frontend
	metrics   *metrics
	scrapes   *http.Server // of the metrics' own port
	frontend  *http.Server
	drain     func() // has the frontend send away those who wait
	scheduler *scheduler.Server
	outbound  *connections
	upkeep    func()     // ends it, and returns when it has ended
	failed    chan error // of a role that ended by itself
}

// listen accepts requests at all entrances.
func (n *node) listen(ctx context.Context, cfg *config.Config) error {
	handler := frontend.New(frontend.Options{
		Jobs: n.jobs, Documents: n.docs, Accounts: n.accounts, Config: n.live, Version: currentVersion(), Log: n.log,
		Metrics: n.metrics.handler(n.log), Observe: n.metrics.request,
		WriteFailure: func() error { return context.Cause(kv.Writable(n.db)) },
	})
	server := frontend.NewServer(handler)
	if config.TLSEnable.Get(cfg) {
		var err error
		if server.TLSConfig, err = serverTLS(cfg, n.log); err != nil {
			return err
		}
	}
	n.frontend, n.drain = server, handler.Drain
	for _, e := range entrances(cfg) {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", e.address.String())
		if err != nil {
			return fmt.Errorf("listening for requests: %w", err)
		}
		serve, field, url := server.Serve, "url", "http://"+listener.Addr().String()+"/"
		if e.secure {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
			field, url = "tls_url", "https://"+listener.Addr().String()+"/"
		}
		go func() {
			if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
				n.failed <- fmt.Errorf("accepting requests: %w", err)
			}
		}()
		n.log.Info().Str(field, url).Msg("settee accepts requests")
	}
	return nil
}

// keepUp tidies up, as one of the nodes that do.
func (n *node) keepUp(layer *fdbjobs.Layer) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		// It ends by cancel only.
		_ = layer.RunUpkeep(ctx, fdbjobs.UpkeepOptions{
			Tasks: slices.Concat(n.docs.Tasks(), n.jobs.Tasks()),
			Failed: func(task string, err error) {
				n.log.Error().Err(err).Str("task", task).Msg("upkeep failed, and is tried again")
			},
		})
	})
	n.upkeep = func() {
		cancel()
		ended.Wait()
	}
}

func (n *node) replicate() {
	n.outbound = newConnections(n.live.Current, n.log)
	n.scheduler = scheduler.New(scheduler.Options{
		Jobs: n.jobs, Config: n.live.Current, Changed: n.live.Changed, UserAgent: "settee/" + currentVersion(), Log: n.log,
		Transport: n.outbound.transport,
	})
	n.metrics.connecting(n.outbound)
	n.metrics.replicating(n.scheduler.Counts)
	go func() {
		// It ends by Shutdown only.
		_ = n.scheduler.Run(context.Background())
	}()
}

// shutdown ends both roles within the grace period, and upkeep, which takes some seconds at
// most to put its task back.
//
// The frontend answers until replication has ended: the databases of this node may be the
// sources and targets of its own runs, which write their checkpoints there. Who waits for a
// replication or a change is sent away at once.
func (n *node) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), config.GracePeriod.Get(n.live.Current()))
	defer cancel()
	if n.upkeep != nil {
		var tidying sync.WaitGroup
		tidying.Go(n.upkeep)
		defer tidying.Wait()
	}
	ended := make(chan error, 3)
	roles := 0
	if n.scrapes != nil {
		roles++
		go func() { ended <- errors.Join(n.scrapes.Shutdown(ctx), n.scrapes.Close()) }()
	}
	replicated := make(chan struct{}) // closed when replication has ended
	if n.frontend != nil {
		n.drain()
		roles++
		go func() {
			select {
			case <-replicated:
			case <-ctx.Done():
			}
			ended <- errors.Join(n.frontend.Shutdown(ctx), n.frontend.Close())
		}()
	}
	if n.scheduler == nil {
		close(replicated)
	} else {
		roles++
		go func() {
			defer close(replicated)
			err := n.scheduler.Shutdown(ctx)
			if n.outbound != nil {
				n.outbound.pool.Close()
			}
			ended <- err
		}()
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
