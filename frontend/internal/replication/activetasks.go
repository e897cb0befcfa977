package replication

import (
	"encoding/json"
	"net/http"
	"time"

	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/replicator/jobs"
)

// activeTask is a running replication in CouchDB's _active_tasks.
type activeTask struct {
	Node                  *string         `json:"node"`
	PID                   *string         `json:"pid"`
	ProcessStatus         string          `json:"process_status"`
	BulkGetAttempts       int64           `json:"bulk_get_attempts"`
	BulkGetDocs           int64           `json:"bulk_get_docs"`
	ChangesPending        *int64          `json:"changes_pending"`
	CheckpointInterval    int64           `json:"checkpoint_interval"` // milliseconds
	CheckpointedSourceSeq json.RawMessage `json:"checkpointed_source_seq"`
	Continuous            bool            `json:"continuous"`
	Database              *string         `json:"database"`
	DocID                 *string         `json:"doc_id"`
	DocWriteFailures      int64           `json:"doc_write_failures"`
	DocsRead              int64           `json:"docs_read"`
	DocsWritten           int64           `json:"docs_written"`
	MissingRevisionsFound int64           `json:"missing_revisions_found"`
	ReplicationID         *string         `json:"replication_id"`
	RevisionsChecked      int64           `json:"revisions_checked"`
	Source                string          `json:"source"`
	SourceSeq             json.RawMessage `json:"source_seq"`
	StartedOn             int64           `json:"started_on"` // seconds since the epoch
	Target                string          `json:"target"`
	ThroughSeq            json.RawMessage `json:"through_seq,omitempty"`
	Type                  string          `json:"type"`
	UpdatedOn             int64           `json:"updated_on"` // seconds since the epoch
	User                  *string         `json:"user"`
}

func (e *Endpoints) activeTask(job *jobs.Job) activeTask {
	replication, state, progress := job.Args.Replication, job.State, job.State.Progress()
	interval := config.CheckpointInterval.Get(e.Settings.Current()).Milliseconds()
	if own := replication.CheckpointInterval; own != nil {
		interval = int64(*own)
	}
	return activeTask{
		Node:                  orNull(state.Node),
		PID:                   orNull(state.PID),
		ProcessStatus:         "waiting", // of an Erlang process that waits for its next message
		BulkGetAttempts:       progress.BulkGetAttempts,
		BulkGetDocs:           progress.BulkGetDocs,
		ChangesPending:        progress.ChangesPending,
		CheckpointInterval:    interval,
		CheckpointedSourceSeq: progress.CheckpointedSourceSeq,
		Continuous:            replication.Continuous,
		Database:              job.Args.Database,
		DocID:                 job.Args.DocID,
		DocWriteFailures:      progress.DocWriteFailures,
		DocsRead:              progress.DocsRead,
		DocsWritten:           progress.DocsWritten,
		MissingRevisionsFound: progress.MissingRevisionsFound,
		ReplicationID:         orNull(job.ReplicationID()),
		RevisionsChecked:      progress.RevisionsChecked,
		Source:                replication.Source.String(),
		SourceSeq:             progress.SourceSeq,
		StartedOn:             unixSeconds(state.StartTime),
		Target:                replication.Target.String(),
		ThroughSeq:            progress.ThroughSeq,
		Type:                  "replication",
		UpdatedOn:             unixSeconds(state.LastUpdated),
		User:                  job.Args.User,
	}
}

func unixSeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// ActiveTasks answers GET /_active_tasks.
func (e *Endpoints) ActiveTasks(w http.ResponseWriter, r *http.Request) error {
	return web.SendList(w, r, func(yield func(activeTask, error) bool) {
		for job, err := range web.ScanRows(e.Scans, r, e.Jobs.Lists.Running(r.Context())) {
			if err != nil {
				yield(activeTask{}, err)
				return
			}
			if !yield(e.activeTask(job), nil) {
				return
			}
		}
	})
}
