package frontend

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/gorilla/mux"
	"github.com/rs/zerolog"

	"settee/frontend/accounts"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/replicator/jobs"
)

// storeTimeout bounds what a request waits for the store: not for a replication.
const storeTimeout = 30 * time.Second

// errGoingAway is why waiting requests end when the node does.
var errGoingAway = errors.New("this node is going away")

// Options are the options of [New].
type Options struct {
	Jobs *jobs.Store
	// Documents are the databases.
	Documents *docstore.Store
	// Accounts say who may make which requests.
	Accounts *accounts.Accounts
	// Config is asked for what it says each time that it counts, and what it says can be
	// changed below /_node. nil is every setting's default, for good.
	Config Configuration
	// WriteFailure returns why the store takes no more writes until the node is started again,
	// nil while it does. It returns at once. Default: nobody knows of any.
	WriteFailure func() error
	// Node is this node's name below /_node. Default: the host's name.
	Node string
	// Metrics answers GET /_node/_local/_prometheus. nil: there is no such path.
	Metrics http.Handler
	// Observe, if it is not nil, is told of each request that has ended. The status is 0 where
	// nothing was answered.
	Observe func(method string, status int, took time.Duration)
	// Version is settee's own.
	Version string
	// Log gets a line for each request, at level info (debug for /_up and metrics), and what went
	// wrong.
	Log zerolog.Logger
}

// Handler serves the HTTP interface. It is safe for concurrent use.
type Handler struct {
	jobs     *jobs.Store
	docs     *docstore.Store
	accounts *accounts.Accounts
	config   Configuration
	failure  func() error // of the store: see Options.WriteFailure
	node     string
	metrics  http.Handler
	observe  func(method string, status int, took time.Duration)
	version  string
	log      zerolog.Logger
	router   *mux.Router
	// Browsers send what any page asks of them. The zero value refuses requests that
	// change something and come from another origin.
	origins     http.CrossOriginProtection
	connections connections

	draining context.Context // ends with Drain
	drain    context.CancelCauseFunc
}

// New returns the HTTP interface of a node.
func New(opts Options) *Handler {
	h := &Handler{
		jobs: opts.Jobs, docs: opts.Documents, accounts: opts.Accounts, config: opts.Config, node: opts.Node,
		metrics: opts.Metrics, observe: opts.Observe, version: opts.Version, log: opts.Log, failure: opts.WriteFailure,
	}
	if h.config == nil {
		h.config = defaults{}
	}
	if h.node == "" {
		h.node, _ = os.Hostname() // without one the node is _local only
	}
	if h.failure == nil {
		h.failure = func() error { return nil }
	}
	h.connections.log = opts.Log
	h.connections.most = func() int { return config.MaxConnections.Get(h.config.Current()) }
	h.draining, h.drain = context.WithCancelCause(context.Background())
	h.router = h.routes()
	return h
}

// documentPath is that of a document. The slash behind _design and _local needs not be
// encoded.
const documentPath = "/{db}/{doc:(?:_(?:design|local)/)?[^/]+}"

// documentRoutes are the paths of documents and their attachments.
func (h *Handler) documentRoutes(r *mux.Router) {
	in := h.inDatabase
	for path, m := range map[string]methods{
		"/{db}/_all_docs":            {http.MethodGet: in(h.allDocs), http.MethodPost: in(h.allDocs)},
		"/{db}/_all_docs/queries":    {http.MethodPost: in(h.allDocsQueries)},
		"/{db}/_design_docs":         {http.MethodGet: in(h.designDocs), http.MethodPost: in(h.designDocs)},
		"/{db}/_design_docs/queries": {http.MethodPost: in(h.designDocsQueries)},
		"/{db}/_local_docs":          {http.MethodGet: in(h.localDocs), http.MethodPost: in(h.localDocs)},
		"/{db}/_local_docs/queries":  {http.MethodPost: in(h.localDocs)},
		"/{db}/_bulk_get":            {http.MethodPost: in(h.bulkGet)},
		"/{db}/_bulk_docs":           {http.MethodPost: in(h.bulkDocs)},
	} {
		r.Handle(path, h.endpoint(m))
	}
	r.Handle(documentPath, h.endpoint(methods{
		http.MethodGet: in(h.getDocument), http.MethodPut: in(h.putDocument), http.MethodDelete: in(h.deleteDocument),
		methodCopy: in(h.copyDocument),
	}))
	r.Handle(documentPath+"/{attachment:.+}", h.endpoint(methods{
		http.MethodGet: in(h.getAttachment), http.MethodPut: in(h.putAttachment), http.MethodDelete: in(h.deleteAttachment),
	}))
}

// routes are the paths there are, in the form that canonical gives them.
func (h *Handler) routes() *mux.Router {
	r := mux.NewRouter().UseEncodedPath().SkipClean(true)
	r.Handle("/", h.endpoint(methods{http.MethodGet: h.welcome}))
	r.Handle("/_up", h.endpoint(methods{http.MethodGet: h.up}))
	r.Handle("/_session", h.endpoint(methods{
		http.MethodGet: h.getSession, http.MethodPost: h.postSession, http.MethodDelete: h.deleteSession,
	}))
	r.Handle("/_replicate", h.endpoint(methods{http.MethodPost: h.replicate}))
	r.Handle("/_scheduler/jobs", h.endpoint(methods{http.MethodGet: h.listJobs}))
	r.Handle("/_scheduler/jobs/{id}", h.endpoint(methods{http.MethodGet: h.getJob}))
	r.Handle("/_scheduler/jobs/{id}/failures", h.endpoint(methods{http.MethodGet: h.listFailures}))
	r.Handle("/_scheduler/shares", h.endpoint(methods{http.MethodGet: h.listShares}))
	r.Handle("/_scheduler/docs", h.endpoint(methods{http.MethodGet: h.listDocs}))
	r.Handle("/_scheduler/docs/{rest:.+}", h.endpoint(methods{http.MethodGet: h.docsBelow}))
	h.serverRoutes(r)
	h.nodeRoutes(r)
	h.databaseRoutes(r)
	h.documentRoutes(r) // the last: {doc} is any name
	r.NotFoundHandler = h.action(unknownPath)
	return r
}

// Drain ends the requests that wait for a replication, those that come later
// included, with an error that says that the node is going away and the replication
// goes on. From then on /_up says that no requests should be sent here.
func (h *Handler) Drain() { h.drain(errGoingAway) }

func (h *Handler) isDraining() bool { return h.draining.Err() != nil }
