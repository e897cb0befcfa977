package databases

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// GetRevsLimit answers with the number of ancestors that each leaf keeps.
func (e *Endpoints) GetRevsLimit(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	limit, err := db.RevsLimit(ctx)
	if err != nil {
		return web.StoreFailure(err)
	}
	return web.Respond(w, r, http.StatusOK, limit)
}

// PutRevsLimit sets the number of ancestors that each leaf keeps.
func (e *Endpoints) PutRevsLimit(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	body, err := web.ReadJSON(w, r, e.Settings.Current())
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(string(bytes.TrimSpace(body)))
	if err != nil || limit < 1 || limit > docstore.MaxRevsLimit {
		return web.BadRequest(fmt.Sprintf("the revs_limit must be a whole number from 1 to %d", docstore.MaxRevsLimit))
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	if err := db.SetRevsLimit(ctx, limit); err != nil {
		return web.StoreFailure(err)
	}
	return web.RespondOK(w, r, http.StatusOK)
}
