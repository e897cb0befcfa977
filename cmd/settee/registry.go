package main

import (
	"context"
	"os"
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
			n.nodes = nodes.New(nodes.Options{Store: n.db, Prefix: nodesPrefix, Describe: n.describe, Budgets: n.budgets, Cordoned: n.cordoned})
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

// replicationRole is the role whose nodes take the jobs of replications.
var replicationRole = config.Roles{Replication: true}.String()

// claimers returns the number of live replication nodes that take jobs.
func (n *node) claimers() int {
	return countNodes(n.nodes, func(node *nodes.Seen) bool { return node.Takes(replicationRole) })
}

// countNodes returns the number of nodes that are like that.
func countNodes(registry *nodes.Registry, is func(*nodes.Seen) bool) (count int) {
	for _, node := range registry.Nodes() {
		if is(&node) {
			count++
		}
	}
	return count
}

// cordoned makes this node take no jobs, or take them again if cordon is nil.
func (n *node) cordoned(cordon *nodes.Cordon) {
	is, drain := cordon != nil, cordon != nil && cordon.Drain
	n.scheduler.Cordon(is, drain) // only nodes with that role are cordoned
	n.watcher.Cordon(is, drain)
	switch {
	case drain:
		n.log.Warn().Str("user", cordon.By).Msg("this node is drained: it takes no jobs, and gives back those that it has")
	case is:
		n.log.Warn().Str("user", cordon.By).Msg("this node is cordoned: it takes no jobs")
	default:
		n.log.Info().Msg("this node is no longer cordoned: it takes jobs again")
	}
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
		self.Running, self.Held = n.scheduler.Running(), int(n.running.Load())
	}
	return self
}
