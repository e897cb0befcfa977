package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"settee/cmd/settee/internal/remote"
)

// Member is a node of the store.
type Member struct {
	Name     string   `json:"name"`
	Instance string   `json:"instance"`
	Roles    []string `json:"roles"`
	Version  string   `json:"version"`
	Live     bool     `json:"live"`
	Running  int64    `json:"running"`
	Held     int64    `json:"held"`
	MaxJobs  int64    `json:"max_jobs"`
	Cordon   *Cordon  `json:"cordon"`
}

// Cordon says that a node takes no jobs.
type Cordon struct {
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Drain   bool      `json:"drain"`
	Drained bool      `json:"drained"`
}

// State is gone, live, cordoned, draining or drained.
func (m *Member) State() string {
	switch {
	case !m.Live:
		return "gone"
	case m.Cordon == nil:
		return "live"
	case m.Cordon.Drained:
		return "drained"
	case m.Cordon.Drain:
		return "draining"
	}
	return "cordoned"
}

// nodesPath is where a node lists all nodes.
const nodesPath = "/_scheduler/nodes"

// memberList is the answer of nodesPath.
type memberList struct{ Nodes []Member }

// Members returns the nodes of the store.
func (n *Node) Members(ctx context.Context) ([]Member, error) {
	var answer memberList
	err := n.Get(ctx, nodesPath, &answer)
	return answer.Nodes, err
}

// Cordon makes the node with a name or instance take no jobs, and with drain give back those that it has.
func (n *Node) Cordon(ctx context.Context, name string, drain bool) error {
	end := "/_cordon"
	if drain {
		end = "/_drain"
	}
	return n.Ask(ctx, http.MethodPost, nodesPath+remote.Path(name)+end, nil, nil)
}

// Uncordon makes the node with a name or instance take jobs again.
func (n *Node) Uncordon(ctx context.Context, name string) error {
	return n.Ask(ctx, http.MethodDelete, nodesPath+remote.Path(name)+"/_cordon", nil, nil)
}

// WriteMembers writes nodes as a table.
func (o Output) WriteMembers(members []Member) error {
	t := o.table(
		column{head: "STATE", least: 8}, column{head: "NODE", least: 12}, column{head: "ROLES", least: 12}, column{head: "JOBS", right: true, least: 4},
		column{head: "MAX", right: true, least: 4}, column{head: "VERSION", least: 7, spare: 2}, column{head: "INSTANCE", least: 12, spare: 1})
	rows := make([][]string, len(members))
	for i, m := range members {
		rows[i] = []string{
			m.State(), m.Name, strings.Join(m.Roles, ", "), fmt.Sprint(m.Held), fmt.Sprint(m.MaxJobs), m.Version, m.Instance,
		}
	}
	return t.write(o.Out, rows)
}
