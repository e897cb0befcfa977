package replication

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"settee/frontend/internal/access"
	"settee/pkg/nodes"
	"settee/replicator"
	"settee/replicator/jobs"
)

// telling explains the jobs of one answer to one user.
type telling struct {
	now     time.Time
	cluster *replicator.Cluster
	viewer  replicator.Viewer
}

// telling collects what is known once for a request.
func (e *Endpoints) telling(r *http.Request) *telling {
	return &telling{time.Now(), clusterOf(e.Nodes()), replicator.Viewer{FeedErrors: e.Guard.MayUseAllJobs(r, access.SeeFeedError)}}
}

// replicationRole is the role of the nodes that run jobs.
const replicationRole = "replication"

// clusterOf returns what the nodes of a store say of their slots.
func clusterOf(seen []nodes.Seen) *replicator.Cluster {
	c, takes := &replicator.Cluster{Live: map[string]bool{}}, false
	for _, node := range seen {
		if !node.Live || !slices.Contains(node.Roles, replicationRole) {
			continue
		}
		c.Live[node.Name] = true
		if c.Slotless += node.Held; node.Takes(replicationRole) {
			takes = true
			c.Slots, c.Used, c.Slotless = c.Slots+node.MaxJobs, c.Used+node.Running, c.Slotless-node.Running
		}
	}
	c.Cordoned = len(c.Live) > 0 && !takes
	return c
}

func (t *telling) explain(f *replicator.Facts) replicator.Condition {
	return replicator.Explain(f).For(t.viewer)
}

// condition explains a job of a list.
func (t *telling) condition(job *jobs.Job) replicator.Condition {
	return t.explain(job.Facts(t.now, t.cluster))
}

// single explains the job of an answer for one job. It reads what lists do not have.
func (e *Endpoints) single(ctx context.Context, job *jobs.Job, t *telling) (c replicator.Condition, err error) {
	f := job.Facts(t.now, t.cluster)
	switch replicator.Explain(f).Reason {
	case replicator.ReasonSlot, replicator.ReasonNoNode, replicator.ReasonCordoned:
		if f.Queue, err = e.Jobs.Lists.Queue(ctx, job); err != nil {
			return c, fmt.Errorf("counting the jobs before a replication job: %w", err)
		}
	}
	if f.Watch, err = e.Jobs.Lists.Watch(ctx, job); err != nil {
		return c, fmt.Errorf("reading what wakes a parked replication job: %w", err)
	}
	return t.explain(f), nil
}
