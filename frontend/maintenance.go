package frontend

import (
	"net/http"

	"github.com/gorilla/mux"

	"settee/pkg/docstore"
)

// maintenanceRoutes are the paths of what an operator of CouchDB does to a database, and the
// store does by itself.
func (h *Handler) maintenanceRoutes(r *mux.Router) {
	r.Handle("/{db}/_ensure_full_commit", h.endpoint(methods{http.MethodPost: h.inDatabase(h.ensureFullCommit)}))
	tidied := h.endpoint(methods{http.MethodPost: h.inDatabase(h.tidied)})
	r.Handle("/{db}/_compact", tidied)
	r.Handle("/{db}/_compact/{ddoc}", tidied)
	r.Handle("/{db}/_view_cleanup", tidied)
}

// ensureFullCommit answers at once: what was answered before is on disk.
func (h *Handler) ensureFullCommit(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	info, err := readInfo(r, db)
	if err != nil {
		return err
	}
	return respond(w, r, http.StatusCreated, struct {
		OK                bool   `json:"ok"`
		InstanceStartTime string `json:"instance_start_time"`
	}{true, info.InstanceStartTime})
}

// tidied accepts to do what needs not be done: the store has no files that grow with each
// write, nor any of views.
func (h *Handler) tidied(w http.ResponseWriter, r *http.Request, _ *docstore.Database) error {
	return respond(w, r, http.StatusAccepted, okay{true})
}
