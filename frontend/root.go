package frontend

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"settee/pkg/docstore"
	"settee/pkg/redact"
	"settee/replicator/jobs"
)

// compatibleWith is the version of CouchDB whose interface this is. Clients take
// the welcome's version for CouchDB's and decide by it what they may ask for.
const compatibleWith = "3.5.0"

// upTimeout bounds what /_up waits for the store: load balancers do not wait long.
const upTimeout = 2 * time.Second

type vendor struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

func (h *Handler) welcome(w http.ResponseWriter, r *http.Request) error {
	return respond(w, r, http.StatusOK, struct {
		CouchDB  string   `json:"couchdb"`
		Version  string   `json:"version"`
		UUID     string   `json:"uuid"`
		Features []string `json:"features"`
		Vendor   vendor   `json:"vendor"`
	}{"Welcome", compatibleWith, h.jobs.ServerUUID(), []string{"scheduler"}, vendor{"settee", h.version}})
}

// upStatus is the answer of /_up. Nodes do not seed one another here, so that seeds
// is always empty.
type upStatus struct {
	Status string   `json:"status"`
	Seeds  struct{} `json:"seeds"`
}

func (h *Handler) up(w http.ResponseWriter, r *http.Request) error {
	if h.isDraining() {
		// What CouchDB says while a load balancer is to leave it alone.
		return respond(w, r, http.StatusNotFound, upStatus{Status: "maintenance_mode"})
	}
	if err := h.failure(); err != nil {
		return writesStopped(err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), upTimeout)
	defer cancel()
	if _, err := h.jobs.List(ctx, jobs.ListOptions{}); err != nil {
		zerolog.Ctx(r.Context()).Error().
			Str("reason", redact.Text(err.Error())).Msg("the store does not answer")
		return respond(w, r, http.StatusServiceUnavailable, upStatus{Status: "store_unavailable"})
	}
	return respond(w, r, http.StatusOK, upStatus{Status: "ok"})
}

// writesStopped is what anybody may know of a store that takes no more writes: not where it is.
func writesStopped(err error) error {
	why := ""
	var reason syscall.Errno
	if errors.As(err, &reason) {
		why = " (" + reason.Error() + ")"
	}
	return &failure{http.StatusServiceUnavailable, "store_read_only",
		"the store takes no more writes since one has failed" + why + ", until this node is started again; its log says more"}
}

func unknownPath(_ http.ResponseWriter, r *http.Request) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if name != "" && (!strings.HasPrefix(name, "_") || docstore.CheckDatabaseName(name) == nil) {
		return notFound("Database does not exist.")
	}
	return notFound("there is no such path on this server")
}
