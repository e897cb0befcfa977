package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/console"
)

func newNodes() *cobra.Command {
	var flags nodeFlags
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes, and take some out of service",
		Long: "nodes lists the processes that share the store: whether each is live, cordoned or drained, its roles, and how\n" +
			"many jobs it has of the most that it may run. It is for server administrators.\n\n" + nodeHelp(),
		Example: "  settee nodes\n  settee nodes drain replicator-3",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.ask(cmd, func(ctx context.Context, node *console.Node) error {
				members, err := node.Members(ctx)
				if err != nil {
					return err
				}
				return outputOf(cmd, false).WriteMembers(members)
			})
		},
	}
	flags.register(cmd)
	cmd.AddCommand(
		newCordon("cordon", "Let nodes take no jobs", "takes no jobs, and keeps those that it runs", false),
		newCordon("drain", "Let nodes give back their jobs", "takes no jobs, and gives those back that it runs, as a node does that stops. They write a\n"+
			"checkpoint, and other nodes go on. settee nodes lists the node as drained when it has none left", true),
		newUncordon(),
	)
	return cmd
}

// namedNodes says what the arguments of the commands are.
const namedNodes = "A NODE is a name, of which there may be several, or an instance, as settee nodes lists them. "

// newCordon returns a command that cordons nodes. does says what such a node does.
func newCordon(name, short, does string, drain bool) *cobra.Command {
	return changeNodes(name, short, "A node with the role replication "+does+".\n"+
		"It goes on until it is uncordoned or its process ends: a process that is started again takes jobs.",
		func(ctx context.Context, node *console.Node, of string) (string, error) {
			return map[bool]string{false: "takes no jobs", true: "gives back its jobs, and takes none"}[drain], node.Cordon(ctx, of, drain)
		})
}

func newUncordon() *cobra.Command {
	return changeNodes("uncordon", "Let nodes take jobs again", "A node that was cordoned or drained takes jobs again.",
		func(ctx context.Context, node *console.Node, of string) (string, error) {
			return "takes jobs", node.Uncordon(ctx, of)
		})
}

// changeNodes returns a command that does something with nodes. act returns what the node does from then on.
func changeNodes(name, short, long string, act func(context.Context, *console.Node, string) (string, error)) *cobra.Command {
	var flags nodeFlags
	cmd := &cobra.Command{
		Use:     name + " NODE...",
		Short:   short,
		Long:    long + "\n\n" + namedNodes + "Nodes notice\nwithin five seconds. It is for server administrators.\n\n" + nodeHelp(),
		Example: fmt.Sprintf("  settee nodes %s replicator-3", name),
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return flags.ask(cmd, func(ctx context.Context, node *console.Node) error {
				return (&each{cmd: cmd}).all(ctx, names, func(name string) (string, error) { return act(ctx, node, name) })
			})
		},
	}
	flags.register(cmd)
	return cmd
}
