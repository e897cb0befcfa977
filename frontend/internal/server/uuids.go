package server

import (
	"fmt"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/config"
)

// UUIDs answers GET /_uuids.
func (e *Endpoints) UUIDs(w http.ResponseWriter, r *http.Request) error {
	q := web.NewQuery(r)
	count, most := q.Count("count", 1), config.MaxUUIDs.Get(e.Config.Current())
	if q.Err != nil {
		return q.Err
	}
	if count > most {
		return web.BadRequest(fmt.Sprintf("count parameter too large: the most is %d (%s)", most, config.MaxUUIDs))
	}
	ids := make([]string, count)
	for i := range ids {
		ids[i] = e.IDs.New(e.Config.Current())
	}
	// A proxy must not give the same ids to another client.
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Expires", "Mon, 01 Jan 1990 00:00:00 GMT")
	w.Header().Set("Pragma", "no-cache")
	w.Header().Set("ETag", `"`+web.NewUUID()+`"`)
	return web.Respond(w, r, http.StatusOK, struct {
		UUIDs []string `json:"uuids"`
	}{ids})
}
