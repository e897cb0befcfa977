package databases

import (
	"net/http"
	"time"

	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// allShards is the name of the only range of a database: there are no shards.
const allShards = "00000000-ffffffff"

// TimeSeq answers GET /{db}/_time_seq with how many changes were made in which stretches of time.
func (e *Endpoints) TimeSeq(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	bins, err := db.TimeBins(ctx)
	if err != nil {
		return web.StoreFailure(err)
	}
	shown := make([][2]any, len(bins))
	for i, bin := range bins {
		shown[i] = [2]any{bin.Begin.UTC().Format(time.RFC3339), bin.Changes}
	}
	return web.Respond(w, r, http.StatusOK, map[string]map[string]map[string][][2]any{"time_seq": {allShards: {e.Node: shown}}})
}

// ResetTimeSeq answers DELETE /{db}/_time_seq. There is nothing to reset: the times are those of the changes.
func (e *Endpoints) ResetTimeSeq(w http.ResponseWriter, r *http.Request, _ *docstore.Database) error {
	return web.RespondOK(w, r, http.StatusOK)
}
