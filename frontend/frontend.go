package frontend

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/gorilla/mux"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"settee/frontend/accounts"
	"settee/frontend/internal/access"
	"settee/frontend/internal/databases"
	"settee/frontend/internal/functions"
	"settee/frontend/internal/replication"
	"settee/frontend/internal/server"
	"settee/frontend/internal/views"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/pkg/nodes"
	"settee/replicator/jobs"
)

// Configuration is the configuration of a node, which may change while the node runs. *config.Live is one.
type Configuration = server.Configuration

// Options are the options of [New].
type Options struct {
	Jobs *jobs.Store
	// Documents has the databases.
	Documents *docstore.Store
	// Accounts has the users, and authenticates them.
	Accounts *accounts.Accounts
	// Config is read again for each request. Requests below /_node change it. nil means the default of every setting, which
	// no request can change.
	Config Configuration
	// WriteFailure returns why the store no longer accepts writes until the node is restarted, or nil while it accepts
	// them. It returns at once. nil means that the store always accepts writes.
	WriteFailure func() error
	// Backup writes an archive of the store while it is used ([kv.BackupWriter]). nil means that the store cannot.
	Backup func(ctx context.Context, w io.Writer) error
	// Node is the name of this node below /_node. The default is the name of the host.
	Node string
	// Nodes returns the nodes of the store, with this one. The default is this one alone.
	Nodes func() []nodes.Seen
	// Cordon changes whether a node takes jobs ([nodes.Registry.SetCordon]). If it is nil there are no paths for that.
	Cordon func(ctx context.Context, node, role string, cordon *nodes.Cordon) (int, error)
	// Upgrade raises the level of the store. If it is nil there is no path /_node/_local/_upgrade.
	Upgrade *nodes.Upgrade
	// Metrics answers GET /_node/_local/_prometheus. If it is nil there is no such path.
	Metrics http.Handler
	// Stats returns the answer to GET /_node/_local/_stats: CouchDB's tree of objects, at whose ends are objects with the
	// members value, type and desc. If it is nil there is no such path.
	Stats func() map[string]any
	// Observe, if it is not nil, is called after each request. The status is 0 if nothing was answered.
	Observe func(method string, status int, took time.Duration)
	// Tracer, if it is not nil, makes a span of each request, except requests of monitoring.
	Tracer trace.Tracer
	// Memory is the number of bytes that connections and requests may use. The default is 256 MiB.
	Memory int64
	// MaxConnections is the maximum number of client connections, besides [chttpd] max_connections. 0 means any number.
	MaxConnections int
	// Version is the version of settee.
	Version string
	// Log gets a line for each request, at level info (debug for /_up and metrics), and the errors.
	Log zerolog.Logger
}

// Handler serves the HTTP interface. It is safe for concurrent use.
type Handler struct {
	web         *web.Server
	guard       *access.Guard
	server      *server.Endpoints
	replication *replication.Endpoints
	databases   *databases.Endpoints
	views       *views.Views
	router      *mux.Router
}

// Listener returns the listener that a server of NewServer should accept connections from, instead of inner.
func (h *Handler) Listener(inner net.Listener) net.Listener { return h.web.Connections.Listener(inner) }

// New returns the HTTP interface of a node.
func New(opts Options) *Handler {
	if opts.Config == nil {
		opts.Config = server.Defaults{}
	}
	if opts.Node == "" {
		opts.Node, _ = os.Hostname() // a node without a name is _local only
	}
	began := time.Now()
	if opts.Nodes == nil {
		self := nodes.Node{Name: opts.Node, Roles: []string{"api_frontend"}, Version: opts.Version, Started: began}
		opts.Nodes = func() []nodes.Seen { return []nodes.Seen{{Node: self, LastSeen: time.Now(), Live: true}} }
	}
	if opts.WriteFailure == nil {
		opts.WriteFailure = func() error { return nil }
	}
	if opts.Memory == 0 {
		opts.Memory = web.DefaultMemory
	}
	c := web.NewConnections(opts.Config, opts.Memory, opts.MaxConnections, opts.Log)
	g := &access.Guard{Documents: opts.Documents, Accounts: opts.Accounts, Settings: opts.Config}
	ids, scans := new(web.UUIDs), web.NewScans(access.TurnOf)
	h := &Handler{
		guard: g,
		web:   &web.Server{Settings: opts.Config, Connections: c, Log: opts.Log, Observe: opts.Observe, Tracer: opts.Tracer},
		server: &server.Endpoints{
			Jobs: opts.Jobs, Documents: opts.Documents, Accounts: opts.Accounts, Config: opts.Config, Connections: c, Scans: scans,
			WriteFailure: opts.WriteFailure, Backup: opts.Backup, Node: opts.Node, Nodes: opts.Nodes, Upgrade: opts.Upgrade, Cordon: opts.Cordon, Began: began,
			Metrics: opts.Metrics, Stats: opts.Stats, Version: opts.Version, IDs: ids,
		},
		replication: &replication.Endpoints{Jobs: opts.Jobs, Settings: opts.Config, Connections: c, Scans: scans, Guard: g, Nodes: opts.Nodes},
		databases: &databases.Endpoints{
			Documents: opts.Documents, Settings: opts.Config, Connections: c, Guard: g, Functions: functions.New(opts.Config, opts.Memory),
			UUIDs: ids, Node: opts.Node,
		},
		views: views.New(c),
	}
	h.router = h.routes()
	return h
}

// ServeHTTP answers a request, and logs it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.web.Serve(w, r, func(w http.ResponseWriter, r *http.Request) error {
		known, err := h.guard.Admit(w, r)
		if err != nil {
			return err
		}
		h.router.ServeHTTP(w, known)
		return nil
	})
}

// Leave makes /_up say that no requests should be sent here, and answers those that come with Connection: close.
func (h *Handler) Leave() { h.web.Connections.Leave() }

// Drain is Leave, and ends the requests that wait for a replication, those that come later included, with an error that
// says that the node is going away and the replication goes on. Feeds that wait end with their last sequence.
func (h *Handler) Drain() { h.web.Connections.Drain() }

// Close frees what h keeps for later requests. Requests are still answered.
func (h *Handler) Close() { h.databases.Functions.Close() }

// NewServer returns an HTTP server for h. The caller sets Addr, or calls Serve. Shutdown drains h, so that it need not
// wait for replications to end.
//
// The server has at most [chttpd] max_connections connections, counting all its listeners, and answers as many
// requests at a time.
func NewServer(h *Handler) *http.Server { return h.web.HTTPServer(h) }

// DefaultSecurity is the security object of databases without one of their own, as in CouchDB 3.
const DefaultSecurity = access.DefaultSecurity

// OnlyLocalNames refuses requests whose Host header is neither an address nor localhost. It is for interfaces without
// authentication, which listen on loopback.
func OnlyLocalNames(next http.Handler) http.Handler { return web.OnlyLocalNames(next) }
