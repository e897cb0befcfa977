package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/console"
	"settee/cmd/settee/internal/remote"
)

func newUpgrade() *cobra.Command {
	var flags nodeFlags
	var status bool
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Raise the level of the store when all nodes have a new version",
		Long: "upgrade raises the store to the highest level that the node knows. Until then the version before can come\n" +
			"back, after that it cannot. It does nothing if the store has that level. Nodes raise the level by\n" +
			"themselves once all have known it for [settee] upgrade_after_sec. With --status it only says which level\n" +
			"the store has, which one the node knows, and which live nodes do not know that one.\n\n" + nodeHelp() +
			"It is for server administrators. The exit status is 0 if the store has the highest level that the node\n" +
			"knows, 3 if it waits for nodes or has not been raised yet, 1 if the command failed, 2 if the command\n" +
			"line is wrong.",
		Example: "  settee upgrade --status --url http://admin@127.0.0.1:5984/\n  settee upgrade",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.ask(cmd, func(ctx context.Context, node *console.Node) error {
				if status {
					return showLevel(ctx, cmd, node)
				}
				return askToRaise(ctx, cmd, node)
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&status, "status", false, "say what the store has and waits for, and change nothing")
	return cmd
}

// upgradePath is where a node says the level of the store, and raises it.
const upgradePath = "/_node/_local/_upgrade"

// showLevel prints the level of the store, and what it waits for.
func showLevel(ctx context.Context, cmd *cobra.Command, node *console.Node) error {
	var is struct {
		Level    int64 `json:"level"`
		Next     int64 `json:"next_level"`
		WaitsFor []struct {
			Name    string `json:"name"`
			Version string `json:"version"`
			Level   int64  `json:"level"`
		} `json:"waits_for"`
		Converting bool `json:"converting"`
	}
	if err := node.Get(ctx, upgradePath, &is); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "The store has level %d", is.Level)
	switch {
	case is.Next == 0:
		text.WriteString(", the highest one that the node knows.\n")
	case len(is.WaitsFor) == 0:
		fmt.Fprintf(&text, ". All live nodes know level %d: settee upgrade raises it.\n", is.Next)
	default:
		fmt.Fprintf(&text, ". It cannot have level %d yet, because these live nodes do not know it:\n", is.Next)
		for _, n := range is.WaitsFor {
			fmt.Fprintf(&text, "  %s, version %s: level %d\n", console.Clean(n.Name), console.Clean(n.Version), n.Level)
		}
	}
	if is.Converting {
		fmt.Fprintf(&text, "Rows of before level %d are still being converted. Before that has ended the level is not raised.\n", is.Level)
	}
	if _, err := fmt.Fprint(cmd.OutOrStdout(), text.String()); err != nil {
		return err
	}
	if is.Next != 0 {
		return &exitError{exitFindings, nil}
	}
	return nil
}

// askToRaise lets a node raise the level of the store.
func askToRaise(ctx context.Context, cmd *cobra.Command, node *console.Node) error {
	var is struct {
		Level  int64 `json:"level"`
		Raised bool  `json:"raised"`
	}
	err := node.Ask(ctx, http.MethodPost, upgradePath, nil, &is)
	switch {
	case remote.IsStatus(err, http.StatusConflict):
		return &exitError{exitFindings, err}
	case err != nil:
		return err
	case is.Raised:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "The store has level %d now.\n", is.Level)
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "The store has level %d already, the highest one that the node knows.\n", is.Level)
	}
	return err
}
