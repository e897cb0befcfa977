package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"settee/cmd/settee/internal/lifecycle"
	"settee/cmd/settee/internal/tracing"
	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/frontend"
	"settee/frontend/accounts"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/levels"
	"settee/pkg/kv/pebblekv"
	"settee/pkg/nodes"
	"settee/pkg/sealed"
	"settee/pkg/serverbudget"
	"settee/replicator"
	"settee/replicator/jobs"
	"settee/replicator/scheduler"
	"settee/replicator/watch"
)

// node is a node of settee. Each part sets its fields when it starts, and uses the fields of the parts before it.
type node struct {
	cfg     *config.Config   // at the start
	files   []string         // the configuration files
	reloads <-chan os.Signal // each value makes the node read the files again
	screen  io.Writer        // the terminal, nil if there is none
	log     zerolog.Logger
	failed  chan error // see fail
	traces  *tracing.Traces

	db          kv.Database
	guard       *levels.Guard // is db, unless a test has set that
	slow        atomic.Int64  // transactions that were repeated for long
	memoryLimit atomic.Int64  // Go's, in bytes
	garbage     atomic.Int64  // GOGC, see setGarbage
	running     atomic.Int64  // jobs, see limitMemory
	keys        *sealed.Keys
	live        *config.Live
	layer       *fdbjobs.Layer
	jobs        *jobs.Store
	docs        *docstore.Store
	nodes       *nodes.Registry
	upgrade     *nodes.Upgrade
	budgets     *serverbudget.Node // nil without the role replication
	metrics     *metrics
	scrapes     *server // serves the metrics' own port
	accounts    *accounts.Accounts

	handler  *frontend.Handler
	frontend *server
	url      string // of the last entrance, with a slash at its end

	outbound  *connections
	scheduler *scheduler.Server
	watcher   *watch.Watcher
}

// parts returns everything that the node runs, in the order in which it is started.
//
// The frontend stops after replication has: the databases of this node may be the sources and
// targets of its own runs, which write their checkpoints there.
func (n *node) parts() []lifecycle.Part {
	parts := []lifecycle.Part{
		n.tracesPart(),
		{Start: func(context.Context) error { n.limitMemory(0); return nil }},
		lifecycle.Background(n.boundGarbage),
		{Start: n.openStore, Stop: func(context.Context) error { return n.db.Close() }},
		{Start: n.openKeys},
		{Start: n.openConfiguration},
		lifecycle.Background(n.logWriteFailure),
		lifecycle.Background(n.noteVersions),
		lifecycle.Background(n.keepNoted),
		lifecycle.Background(func(ctx context.Context) { _ = n.live.Run(ctx) }), // ends with ctx
		lifecycle.Background(n.followLevel),
		n.budgetsPart(),
		lifecycle.Background(n.reload),
		n.jobsPart(),
		n.documentsPart(),
		n.nodesPart(),
		{Start: n.warnOfMissingRole},
	}
	if config.MetricsListen.Get(n.cfg) {
		parts = append(parts, n.metricsPart())
	}
	roles := n.cfg.Roles()
	if roles.APIFrontend {
		parts = append(parts,
			lifecycle.Part{Start: n.createDatabases},
			lifecycle.Part{Start: n.openAccounts},
			lifecycle.Background(n.hashAdmins),
			lifecycle.Background(func(ctx context.Context) { n.accounts.RenewHashes(ctx) }),
			n.frontendPart(),
		)
		for _, e := range entrances(n.cfg) {
			parts = append(parts, lifecycle.Part{Start: func(ctx context.Context) error { return n.accept(ctx, e) }})
		}
		parts = append(parts, lifecycle.Worker(n.runUpkeep), lifecycle.Background(n.warmFunctions))
	}
	if roles.Replication {
		parts = append(parts, n.replicationPart(), n.watchesPart())
	}
	parts = append(parts, lifecycle.Worker(n.raiseLevel))
	return append(parts, lifecycle.Part{Start: func(context.Context) error {
		n.nodes.Start()
		n.log.Info().Stringer("roles", roles).Str("version", currentVersion()).Msg("settee is running")
		return nil
	}}, n.notifyPart(), lifecycle.Worker(n.beat))
}

// fail ends the node with an error. Errors after the first one are dropped.
func (n *node) fail(err error) {
	select {
	case n.failed <- err:
	default:
	}
}

// settings returns the current settings: the settings of the start until the store is open.
func (n *node) settings() *config.Config {
	if n.live == nil {
		return n.cfg
	}
	return n.live.Current()
}

// gracePeriod returns how long running jobs and requests have to end.
func (n *node) gracePeriod() time.Duration { return config.GracePeriod.Get(n.settings()) }

// drainTime returns how long a node that was told to stop answers requests as before.
func (n *node) drainTime() time.Duration {
	if !n.cfg.Roles().APIFrontend {
		return 0
	}
	return config.DrainTime.Get(n.settings())
}

func (n *node) openStore(ctx context.Context) (err error) {
	if dir := pebblekv.Directory(config.Store.Get(n.cfg)); dir != "" {
		if mode := openTo(dir); mode != 0 {
			n.log.Warn().Str("directory", dir).Str("permissions", fmt.Sprintf("%03o", mode)).
				Msg("users other than the owner have access to the store's directory: run chmod go= on it")
		}
	}
	n.guard, err = openStore(ctx, n.cfg, kv.Options{
		Slow: n.slowTransaction, CacheBytes: cacheBytes(n.cfg), OpenFiles: n.fileShares().store,
	}, n.fail)
	n.db = n.guard
	return err
}

// warnOfMissingRole warns if nodes with the other role cannot open the store of this one.
func (n *node) warnOfMissingRole(context.Context) error {
	roles := n.cfg.Roles()
	if roles != (config.Roles{APIFrontend: true, Replication: true}) && !strings.HasPrefix(config.Store.Get(n.cfg), "fdb:") {
		n.log.Warn().Stringer("roles", roles).
			Msg("only one process can open this store: while this node runs, no node can take the role that it does not have")
	}
	return nil
}

func (n *node) openConfiguration(ctx context.Context) (err error) {
	n.live, err = config.OpenLive(ctx, n.cfg, config.LiveOptions{
		Store: n.db, Prefix: configPrefix, Files: n.files, Log: n.log, Sealer: n.keys,
	})
	return err
}

func (n *node) jobsPart() lifecycle.Part {
	return lifecycle.Part{Start: n.openJobs, Stop: func(context.Context) error {
		n.layer.Close()
		return nil
	}}
}

// activityTimeout is the activity timeout of jobs, 0 for the default.
var activityTimeout time.Duration

// openJobs opens the job layer and the replication jobs in it.
func (n *node) openJobs(ctx context.Context) (err error) {
	n.layer = fdbjobs.Open(n.db, jobsPrefix, fdbjobs.Options{
		Sealer: n.keys, Claimers: n.claimers, Derive: jobs.Derivations(), Timeout: activityTimeout,
	})
	n.jobs, err = jobs.Open(ctx, n.db, n.layer, jobs.Options{
		UUID: config.UUID.Get(n.cfg), Documents: docsPrefix, Sealer: n.keys,
		Settings: func() jobs.Settings { return jobSettings(n.live.Current()) },
	})
	if err == nil {
		err = n.requeueJobs(ctx)
	}
	if err != nil {
		n.layer.Close()
		return err
	}
	n.metrics = newMetrics(n.db, n.jobs.Lists, &n.slow, func() time.Duration { return config.CrashAlert.Get(n.live.Current()) })
	return nil
}

// requeueJobs queues the jobs that an earlier process held when it died, if the store belongs to one process. On a
// shared store the activity monitor does that after their timeout.
func (n *node) requeueJobs(ctx context.Context) error {
	if !kv.Exclusive(n.db) {
		return nil
	}
	requeued, err := n.jobs.Upkeep.RequeueAll(ctx)
	for queue, count := range requeued {
		if count > 0 {
			n.log.Info().Str("queue", queue).Int("jobs", count).Msg("queued the jobs that the previous process was running")
		}
	}
	if err != nil {
		return fmt.Errorf("queueing the jobs of an earlier process: %w", err)
	}
	return nil
}

func (n *node) documentsPart() lifecycle.Part {
	return lifecycle.Part{Start: n.openDocuments, Stop: func(context.Context) error {
		n.docs.Close()
		return nil
	}}
}

// openDocuments opens the databases. A write to a replicator database makes a job. The frontend
// enforces the limits on the size of documents that are below the store's.
func (n *node) openDocuments(context.Context) error {
	n.docs = docstore.Open(n.db, docsPrefix, docstore.Options{
		Sealer: n.keys, Sealed: sealedDatabase, Salted: replicator.IsReplicatorDatabase,
		Security: json.RawMessage(frontend.DefaultSecurity),
		Hooks:    n.jobs.Documents.Hooks(func() replicator.ParseOptions { return parseOptions(n.live.Current()) }),
	})
	return nil
}

// createDatabases creates the databases that every server has, if they are missing. Several nodes may do so at the same
// time.
func (n *node) createDatabases(ctx context.Context) error {
	for _, name := range []string{"_replicator", "_users"} {
		if _, err := n.docs.Create(ctx, name); err != nil && !errors.Is(err, docstore.ErrDatabaseExists) {
			return err
		}
	}
	return nil
}

// frontendPart answers requests, which arrive through the entrances, the parts after it.
func (n *node) frontendPart() lifecycle.Part {
	return lifecycle.Part{
		Start: n.openFrontend,
		Leave: func() { n.handler.Leave() },
		Drain: func() { n.handler.Drain() },
		Stop: func(ctx context.Context) error {
			defer n.handler.Close()
			return n.frontend.stop(ctx)
		},
	}
}

func (n *node) openFrontend(context.Context) error {
	var backup func(context.Context, io.Writer) error
	if store := kv.FindBackup(n.db); store != nil {
		backup = store.Backup
	}
	n.handler = frontend.New(frontend.Options{
		Jobs: n.jobs, Documents: n.docs, Accounts: n.accounts, Config: n.live, Version: currentVersion(), Log: n.log,
		Node: nodeName(), Nodes: n.nodes.Nodes, Cordon: n.nodes.SetCordon, Upgrade: n.upgrade, Memory: clientBytes(n.cfg), MaxConnections: n.fileShares().clients,
		Metrics: n.metrics.handler(n.log), Stats: n.metrics.stats, Observe: n.metrics.request,
		Tracer:       n.traces.Tracer("settee/frontend"),
		WriteFailure: func() error { return context.Cause(kv.Writable(n.db)) }, Backup: backup,
	})
	n.frontend = &server{Server: frontend.NewServer(n.handler), wrap: n.handler.Listener}
	n.warnOfFewFiles()
	if !config.TLSEnable.Get(n.cfg) {
		return nil
	}
	var err error
	if n.frontend.TLSConfig, err = serverTLS(n.cfg, n.log); err != nil {
		return err
	}
	n.metrics.certificate("server", func() (*tls.Certificate, error) {
		latest, err := n.frontend.TLSConfig.GetConfigForClient(nil)
		if err != nil {
			return nil, err
		}
		return &latest.Certificates[0], nil
	})
	return nil
}

// entrance is an address on which an api_frontend node accepts requests.
type entrance struct {
	address netip.AddrPort
	secure  bool // uses TLS
}

// entrances returns the entrances of an api_frontend node.
func entrances(cfg *config.Config) []entrance {
	at := config.BindAddress.Get(cfg)
	all := []entrance{{netip.AddrPortFrom(at, uint16(config.Port.Get(cfg))), false}} // ports are checked when the settings are read
	if config.TLSEnable.Get(cfg) {
		if own := config.TLSAddress.Get(cfg); own.IsValid() {
			at = own
		}
		all = append(all, entrance{netip.AddrPortFrom(at, uint16(config.TLSPort.Get(cfg))), true})
	}
	return all
}

// accept accepts requests at an entrance.
func (n *node) accept(ctx context.Context, e entrance) error {
	serve, field, scheme := n.frontend.Serve, "url", "http://"
	if e.secure {
		serve = n.frontend.serveTLS
		field, scheme = "tls_url", "https://"
	}
	address, err := n.frontend.listen(ctx, e.address, serve, func(err error) { n.fail(fmt.Errorf("accepting requests: %w", err)) })
	if err != nil {
		return fmt.Errorf("listening for requests: %w", err)
	}
	n.url = scheme + address + "/"
	n.log.Info().Str(field, n.url).Msg("settee accepts requests")
	return nil
}

// runUpkeep takes part in the upkeep of the store until ctx ends.
func (n *node) runUpkeep(ctx context.Context) {
	tasks := append(upkeepTasks(n.docs, n.jobs.Upkeep), n.conversionTasks(storeLevels)...)
	_ = upkeep.Run(ctx, n.db, n.layer, tasks, func(task string, err error) { // it fails only with ctx.Err()
		n.log.Error().Err(err).Str("task", task).Msg("upkeep failed and will be tried again")
	})
}

// replicationPart runs replication jobs.
func (n *node) replicationPart() lifecycle.Part {
	return lifecycle.Part{
		Start: func(context.Context) error {
			n.replicate()
			return nil
		},
		Leave: func() { n.scheduler.Leave() },
		Stop: func(ctx context.Context) error {
			defer n.outbound.pool.Close()
			return n.scheduler.Shutdown(ctx)
		},
	}
}

func (n *node) replicate() {
	n.outbound = newConnections(n.live.Current, n.log)
	n.scheduler = scheduler.New(scheduler.Options{
		Jobs: n.jobs, Config: n.live.Current, Changed: n.live.Changed, UserAgent: userAgent(), Log: n.log,
		Node: nodeName(), Transport: n.outbound.transport, Traffic: n.outbound.traffic,
		Tracer:  n.traces.Tracer("settee/replicator"),
		Running: n.limitMemory, Budgets: n.budgets,
	})
	n.metrics.connecting(n.outbound)
	n.metrics.registry.MustRegister(newBudgetMetrics(n.budgets))
	n.metrics.replicating(n.scheduler, func() int {
		if n.nodes.Cordoned() {
			return 0
		}
		return config.MaxJobs.Get(n.live.Current())
	})
	n.metrics.claiming(n.jobs.Jobs.Claims)
	n.metrics.certificate("client", n.outbound.pool.Certificate)
	go func() {
		_ = n.scheduler.Run(context.Background()) // ends with Shutdown, which waits for it
	}()
}

// watchesPart watches the servers of parked jobs, with the connections of the runs.
func (n *node) watchesPart() lifecycle.Part {
	return lifecycle.Part{
		Start: func(context.Context) error {
			n.watcher = watch.New(watch.Options{
				Jobs: n.jobs, Config: n.live.Current, Changed: n.live.Changed, Worker: n.scheduler.Requests, Log: n.log,
			})
			n.metrics.watching(n.watcher)
			n.watch()
			return nil
		},
		Leave: func() { n.watcher.Leave() },
		Stop:  func(ctx context.Context) error { return n.watcher.Shutdown(ctx) },
	}
}

func (n *node) watch() {
	go func() {
		_ = n.watcher.Run(context.Background()) // ends with Shutdown, which waits for it
	}()
}
