package jobs

import (
	"time"

	"settee/replicator"
)

// Facts returns what replicator.Explain needs to know of the job. cluster may be nil.
func (j *Job) Facts(now time.Time, cluster *replicator.Cluster) *replicator.Facts {
	f := &replicator.Facts{
		Now: now, Status: replicator.JobStatus(j.Status), Scheduled: j.scheduled, Queued: j.tag == tagCrashing || j.tag == tagWaiting,
		Again: j.tag == tagAgain, Parked: !j.Parked().IsZero(), Turn: j.tag == tagTurn, Redefined: j.redefined, Args: j.Args, State: j.State, Cluster: cluster,
		Mirror: j.Summary,
	}
	if j.Paused {
		f.Pause = &replicator.Pause{Since: j.PausedSince}
	}
	return f
}
