package server

import (
	"net/http"
	"slices"
	"time"

	"settee/frontend/internal/web"
	"settee/pkg/nodes"
	"settee/pkg/serverbudget"
)

// nodeNames returns the sorted names of the nodes of the store: of those that are live, and of all.
func (e *Endpoints) nodeNames() (live, all []string) {
	for _, n := range e.Nodes() {
		all = append(all, n.Name)
		if n.Live {
			live = append(live, n.Name)
		}
	}
	slices.Sort(live)
	slices.Sort(all)
	return slices.Compact(live), slices.Compact(all)
}

// Membership answers GET /_membership.
func (e *Endpoints) Membership(w http.ResponseWriter, r *http.Request) error {
	live, all := e.nodeNames()
	return web.Respond(w, r, http.StatusOK, struct {
		AllNodes     []string `json:"all_nodes"`
		ClusterNodes []string `json:"cluster_nodes"`
	}{live, all})
}

// listedNode is a node in the answer to _scheduler/nodes.
type listedNode struct {
	Name     string   `json:"name"`
	Instance string   `json:"instance"`
	Roles    []string `json:"roles"`
	Version  string   `json:"version"`
	Store    string   `json:"store"`
	Started  string   `json:"started"`
	LastSeen string   `json:"last_seen"`
	Live     bool     `json:"live"`
	Running  int      `json:"running"`
	Held     int      `json:"held"` // jobs, those that end included
	MaxJobs  int      `json:"max_jobs"`
	MaxChurn int      `json:"max_churn"`
	Memory   int64    `json:"memory,omitempty"` // in bytes
	// Budgets has the node's parts of the budgets of servers, by server.
	Budgets map[string]serverbudget.Need `json:"budgets,omitempty"`
	Level   int64                        `json:"level"` // the highest level of a store that it knows
	Cordon  *cordonOf                    `json:"cordon,omitempty"`
}

// ListNodes answers _scheduler/nodes, which CouchDB does not have: the processes that share the store.
func (e *Endpoints) ListNodes(w http.ResponseWriter, r *http.Request) error {
	rows := []listedNode{}
	for _, n := range e.Nodes() {
		rows = append(rows, listedNode{
			Name: n.Name, Instance: n.Instance, Roles: n.Roles, Version: n.Version, Store: n.Store,
			Started: n.Started.UTC().Format(time.RFC3339), LastSeen: n.LastSeen.UTC().Format(time.RFC3339), Live: n.Live,
			Running: n.Running, Held: n.Held, MaxJobs: n.MaxJobs, MaxChurn: n.MaxChurn,
			Memory: n.Memory, Level: n.Level, Budgets: n.Budgets, Cordon: listedCordon(&n),
		})
	}
	var store nodes.LevelStatus
	if e.Upgrade != nil {
		store = e.Upgrade.Status()
	}
	return web.Respond(w, r, http.StatusOK, struct {
		TotalRows int          `json:"total_rows"`
		Nodes     []listedNode `json:"nodes"`
		Level     int64        `json:"level,omitempty"`      // of the store
		Next      int64        `json:"next_level,omitempty"` // that this node can raise it to
	}{len(rows), rows, store.Level, store.Next})
}
