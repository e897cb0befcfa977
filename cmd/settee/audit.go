package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"settee/cmd/settee/internal/console"
	"settee/pkg/audit"
)

func newAudit() *cobra.Command {
	var flags nodeFlags
	var limit int
	var of string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "audit [JOB]",
		Short: "List who has changed jobs and settings",
		Long: "audit lists the latest changes that users have made: documents of replications that were edited, paused,\n" +
			"resumed and deleted, jobs that were run at once or cancelled, settings, shares among them, and nodes that were\n" +
			"cordoned. The newest is first, and the latest 1,000 are kept. With a JOB it lists the changes of that job. It is for server\n" +
			"administrators.\n\n" + jobName + nodeHelp(),
		Example: "  settee audit\n  settee audit _replicator/films",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := within("limit", limit, 1, audit.Kept); err != nil {
				return usage(cmd, err)
			}
			if of != "" && !slices.Contains(audit.Kinds, audit.Kind(of)) {
				return usage(cmd, fmt.Errorf("--of must be one of %s", audit.Kinds))
			}
			return flags.ask(cmd, func(ctx context.Context, node *console.Node) error {
				jobID := ""
				if len(args) > 0 {
					job, err := node.Find(ctx, args[0])
					if err != nil {
						return err
					}
					jobID = job.JobID
				}
				changes, err := node.Audit(ctx, jobID, of, limit)
				if err != nil {
					return err
				}
				return outputOf(cmd, asJSON).WriteAudit(changes)
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most so many, from 1 to 1000")
	cmd.Flags().StringVar(&of, "of", "", "list only changes of jobs, settings or nodes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each change as a JSON object, one a line")
	return cmd
}
