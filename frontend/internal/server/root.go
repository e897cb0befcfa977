package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"settee/frontend/accounts"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/nodes"
	"settee/pkg/redact"
	"settee/replicator/jobs"
)

// Endpoints answer the requests about the server and this node.
type Endpoints struct {
	Jobs        *jobs.Store
	Documents   *docstore.Store
	Accounts    *accounts.Accounts
	Config      Configuration
	Connections *web.Connections
	Scans       *web.Scans
	// WriteFailure returns why the store no longer accepts writes, nil while it accepts them.
	WriteFailure func() error
	// Backup writes an archive of the store while it is used; nil if the store cannot.
	Backup  func(ctx context.Context, w io.Writer) error
	Node    string              // the name of this node
	Nodes   func() []nodes.Seen // of the store
	Upgrade *nodes.Upgrade      // nil means none
	// Cordon changes whether a node takes jobs ([nodes.Registry.SetCordon]); nil if that cannot be changed.
	Cordon  func(ctx context.Context, node, role string, cordon *nodes.Cordon) (int, error)
	Began   time.Time             // when this node started
	Metrics http.Handler          // nil means none
	Stats   func() map[string]any // nil means none
	IDs     *web.UUIDs
	Version string // of settee
}

// compatibleWith is the latest release of CouchDB whose interface this is. Clients decide by it what they may ask for. What
// is here of later builds, such as times in since, a client finds out by asking.
const compatibleWith = "3.5.3"

// upTimeout is how long /_up waits for the store. Load balancers do not wait long.
const upTimeout = 2 * time.Second

type vendor struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// Welcome answers GET /.
func (e *Endpoints) Welcome(w http.ResponseWriter, r *http.Request) error {
	return web.Respond(w, r, http.StatusOK, struct {
		CouchDB  string   `json:"couchdb"`
		Version  string   `json:"version"`
		UUID     string   `json:"uuid"`
		Features []string `json:"features"`
		Vendor   vendor   `json:"vendor"`
		Cluster  string   `json:"cluster_name,omitempty"`
	}{
		"Welcome", compatibleWith, e.Jobs.ServerUUID, []string{"scheduler"}, vendor{jobs.Vendor, e.Version},
		config.ClusterName.Get(e.Config.Current()),
	})
}

// upStatus is the answer to /_up. Seeds is always empty: nodes do not seed one another.
type upStatus struct {
	Status string   `json:"status"`
	Seeds  struct{} `json:"seeds"`
}

// Up answers GET /_up: whether requests should be sent to this node.
func (e *Endpoints) Up(w http.ResponseWriter, r *http.Request) error {
	if e.Connections.Leaving() {
		// The answer of CouchDB when a load balancer is to send no requests.
		return web.Respond(w, r, http.StatusNotFound, upStatus{Status: "maintenance_mode"})
	}
	if err := e.WriteFailure(); err != nil {
		return writesStopped(err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), upTimeout)
	defer cancel()
	if _, err := e.Jobs.Lists.List(ctx, jobs.Filter{}, jobs.ListOptions{}); err != nil {
		zerolog.Ctx(r.Context()).Error().
			Str("reason", redact.Text(err.Error())).Msg("the store does not answer")
		return web.Respond(w, r, http.StatusServiceUnavailable, upStatus{Status: "store_unavailable"})
	}
	return web.Respond(w, r, http.StatusOK, upStatus{Status: "ok"})
}

// writesStopped returns the failure of a store that no longer accepts writes. It does not say where the store is.
func writesStopped(err error) error {
	why := ""
	var reason syscall.Errno
	if errors.As(err, &reason) {
		why = " (" + reason.Error() + ")"
	}
	return web.NewFailure(http.StatusServiceUnavailable, "store_read_only",
		"the store no longer accepts writes because one has failed"+why+", until this node is started again; its log says more")
}
