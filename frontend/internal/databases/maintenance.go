package databases

import (
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// EnsureFullCommit answers at once: a write is on disk before it is answered.
func (e *Endpoints) EnsureFullCommit(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	info, err := readInfo(r, db)
	if err != nil {
		return err
	}
	return web.Respond(w, r, http.StatusCreated, struct {
		OK                bool   `json:"ok"`
		InstanceStartTime string `json:"instance_start_time"`
	}{true, info.InstanceStartTime})
}

// Compact answers requests for compaction and cleaning of indexes. There is nothing to do: the store has no files that
// grow with each write, and no indexes of views or searches.
func (e *Endpoints) Compact(w http.ResponseWriter, r *http.Request, _ *docstore.Database) error {
	return web.RespondOK(w, r, http.StatusAccepted)
}

// CompactViews answers requests for compaction of the views of a design document, which has to exist.
func (e *Endpoints) CompactViews(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	if _, err := db.Get(ctx, designPrefix+web.PathValue(r, "ddoc"), docstore.GetOptions{}); err != nil {
		return web.StoreFailure(err)
	}
	return e.Compact(w, r, db)
}
