package main

import (
	"context"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/pkg/docstore"
	"settee/replicator/jobs"
)

// documentUpkeepEvery is the pause between two runs of a task of the databases.
const documentUpkeepEvery = 5 * time.Minute

// upkeepTasks returns the tasks with which api_frontend nodes clean up a store in the background. A task's name is the
// id of its job in the store and must not change: otherwise the task would run twice while old and new nodes run
// together.
func upkeepTasks(docs *docstore.Store, replications *jobs.Upkeep) []upkeep.Task {
	return slices.Concat([]upkeep.Task{
		documentTask("deleted databases", docs.RemoveDatabases),
		documentTask("unused uploads", docs.RemoveUploads),
		documentTask("old updates", docs.RemoveUpdates),
	}, replications.Tasks())
}

// documentTask calls remove until it reports that nothing is left.
func documentTask(name string, remove func(context.Context) (more bool, err error)) upkeep.Task {
	return upkeep.Task{Name: name, Every: documentUpkeepEvery, Run: func(ctx context.Context, _ *fdbjobs.Held) error {
		for {
			if more, err := remove(ctx); err != nil || !more {
				return err
			}
		}
	}}
}
