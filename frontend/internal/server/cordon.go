package server

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/pkg/nodes"
)

// cordonOf is the cordon of a node in the answer to _scheduler/nodes.
type cordonOf struct {
	At string `json:"at"`
	By string `json:"by"`
	// Drain reports that the node gives back its jobs, and Drained that it has given back all.
	Drain   bool `json:"drain"`
	Drained bool `json:"drained"`
}

func listedCordon(n *nodes.Seen) *cordonOf {
	if n.Cordon == nil {
		return nil
	}
	return &cordonOf{n.Cordon.At.UTC().Format(time.RFC3339), n.Cordon.By, n.Cordon.Drain, n.Drained()}
}

// CordonNode answers POST _scheduler/nodes/{node}/_cordon, which CouchDB does not have: a node takes no jobs.
func (e *Endpoints) CordonNode(w http.ResponseWriter, r *http.Request) error {
	return e.setCordon(w, r, &nodes.Cordon{})
}

// DrainNode answers POST _scheduler/nodes/{node}/_drain: a node takes no jobs, and gives back those that it has.
func (e *Endpoints) DrainNode(w http.ResponseWriter, r *http.Request) error {
	return e.setCordon(w, r, &nodes.Cordon{Drain: true})
}

// UncordonNode answers DELETE _scheduler/nodes/{node}/_cordon: a node takes jobs again.
func (e *Endpoints) UncordonNode(w http.ResponseWriter, r *http.Request) error {
	return e.setCordon(w, r, nil)
}

func (e *Endpoints) setCordon(w http.ResponseWriter, r *http.Request, cordon *nodes.Cordon) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	if cordon != nil {
		cordon.At, cordon.By = time.Now().UTC(), access.UserOf(r).Name
	}
	n, err := e.Cordon(ctx, web.PathValue(r, "node"), "replication", cordon)
	switch {
	case errors.Is(err, nodes.ErrNoNode):
		return web.NotFound(err.Error())
	case err != nil:
		return fmt.Errorf("changing the cordon of a node: %w", err)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		OK    bool `json:"ok"`
		Nodes int  `json:"nodes"`
	}{true, n})
}
