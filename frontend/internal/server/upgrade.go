package server

import (
	"errors"
	"fmt"
	"net/http"

	"settee/frontend/internal/web"
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
// it to, and the live nodes that do not know that one.
func (e *Endpoints) UpgradeStatus(w http.ResponseWriter, r *http.Request) error {
	s := e.Upgrade.Status()
	answer := struct {
		Level    int64         `json:"level"`
		Next     int64         `json:"next_level,omitempty"`
		WaitsFor []levelOfNode `json:"waits_for"`
	}{s.Level, s.Next, []levelOfNode{}}
	for _, n := range s.Behind {
		answer.WaitsFor = append(answer.WaitsFor, levelOfNode{n.Name, n.Instance, n.Version, n.Knows()})
	}
	return web.Respond(w, r, http.StatusOK, answer)
}

// RaiseLevel answers POST _upgrade: it raises the store to the highest level that this node knows.
func (e *Endpoints) RaiseLevel(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	raised, err := e.Upgrade.Raise(ctx)
	var behind *nodes.BehindError
	switch {
	case errors.As(err, &behind):
		return web.NewFailure(http.StatusConflict, "conflict", behind.Error())
	case err != nil:
		return fmt.Errorf("raising the level of the store: %w", err)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		OK     bool  `json:"ok"`
		Level  int64 `json:"level"`
		Raised bool  `json:"raised"`
	}{true, e.Upgrade.Status().Level, raised})
}
