package main

import (
	"context"
	"os"
	"slices"
	"strings"

	"settee/cmd/settee/internal/lifecycle"
	"settee/pkg/config"
	"settee/pkg/nodes"
)

// nodeName returns the name of this node, which is the name of the host, or "" if that is not known.
func nodeName() string {
	name, _ := os.Hostname() // a node without a name is _local only
	return name
}

// nodesPart lists this node with the others of the store, until the parts after it have ended. The row is renewed once
// the whole node runs.
func (n *node) nodesPart() lifecycle.Part {
	return lifecycle.Part{
		Start: func(context.Context) error {
			n.nodes = nodes.New(nodes.Options{Store: n.db, Prefix: nodesPrefix, Describe: n.describe, Budgets: n.budgets})
			n.metrics.knowing(n.nodes)
			if n.guard != nil {
				n.upgrade = nodes.NewUpgrade(n.guard, n.nodes)
				n.upgrade.Raising = n.beginConversion
				n.metrics.upgrading(n.upgrade)
			}
			return nil
		},
		Stop: func(ctx context.Context) error { return n.nodes.Stop(ctx) },
	}
}

// claimers returns the number of live replication nodes, which take the jobs of replications.
func (n *node) claimers() int { return liveNodes(n.nodes, config.Roles{Replication: true}.String()) }

// liveNodes returns the number of live nodes with a role.
func liveNodes(registry *nodes.Registry, role string) (count int) {
	for _, node := range registry.Nodes() {
		if node.Live && slices.Contains(node.Roles, role) {
			count++
		}
	}
	return count
}

// describe returns what this node says about itself.
func (n *node) describe() nodes.Node {
	cfg, roles := n.live.Current(), n.cfg.Roles()
	store, _, _ := strings.Cut(config.Store.Get(n.cfg), ":") // the rest of the URL may be a secret
	self := nodes.Node{Name: nodeName(), Roles: strings.Split(roles.String(), ", "), Version: currentVersion(), Store: store, Level: ownLevel(), Memory: heldMemory()}
	if roles.Replication {
		self.MaxJobs, self.MaxChurn = config.MaxJobs.Get(cfg), config.MaxChurn.Get(cfg)
	}
	if n.scheduler != nil { // set before the first renewal
		self.Running = n.scheduler.Running()
	}
	return self
}
