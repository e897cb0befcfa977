package server

import (
	"errors"
	"fmt"
	"net/http"

	"settee/frontend/internal/web"
	"settee/pkg/kv/levels"
	"settee/pkg/nodes"
)

// levelOfNode is a live node that does not know the next level of the store.
type levelOfNode struct {
	Name     string `json:"name"`
	Instance string `json:"instance"`
	Version  string `json:"version"`
	Level    int64  `json:"level"` // the highest one that it knows
}

// UpgradeStatus answers GET _upgrade, which CouchDB does not have: the level of the store, the level that this node can raise
// it to, the live nodes that do not know that one, and whether rows have yet to be converted.
func (e *Endpoints) UpgradeStatus(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	converting, err := e.Upgrade.Converting(ctx)
	if err != nil {
		return fmt.Errorf("reading the level of the store: %w", err)
	}
	s := e.Upgrade.Status()
	answer := struct {
		Level    int64         `json:"level"`
		Next     int64         `json:"next_level,omitempty"`
		WaitsFor []levelOfNode `json:"waits_for"`
		// Converting is whether rows of before the level have yet to be converted.
		Converting bool `json:"converting"`
	}{s.Level, s.Next, []levelOfNode{}, converting}
	for _, n := range s.Behind {
		answer.WaitsFor = append(answer.WaitsFor, levelOfNode{n.Name, n.Instance, n.Version, n.Level})
	}
	return web.Respond(w, r, http.StatusOK, answer)
}

// RaiseLevel answers POST _upgrade: it raises the store to the highest level that this node knows.
func (e *Endpoints) RaiseLevel(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	raised, err := e.Upgrade.Raise(ctx)
	var behind *nodes.BehindError
	var converting *levels.ConvertingError
	switch {
	case errors.As(err, &behind), errors.As(err, &converting):
		return web.NewFailure(http.StatusConflict, "conflict", err.Error())
	case err != nil:
		return fmt.Errorf("raising the level of the store: %w", err)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		OK     bool  `json:"ok"`
		Level  int64 `json:"level"`
		Raised bool  `json:"raised"`
	}{true, e.Upgrade.Status().Level, raised})
}
