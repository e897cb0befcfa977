package frontend

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/gorilla/mux"

	"settee/replicator"
	"settee/replicator/jobs"
)

// defaultLimit is how many jobs CouchDB lists when nobody says how many.
const defaultLimit = 100

// listedJob is a job as CouchDB's _scheduler/jobs shows it, and its state.
type listedJob struct {
	Database  *string            `json:"database"`
	ID        string             `json:"id"`
	PID       *string            `json:"pid"`
	Source    string             `json:"source"`
	Target    string             `json:"target"`
	User      *string            `json:"user"`
	DocID     *string            `json:"doc_id"`
	Info      *replicator.Info   `json:"info"`
	History   replicator.History `json:"history"`
	Node      *string            `json:"node"`
	StartTime *string            `json:"start_time"`
	State     replicator.State   `json:"state"`
}

func listed(job *jobs.Job) listedJob {
	state := *job.State
	state.State = job.Condition() // what info shows depends on it
	if state.State != replicator.StateRunning {
		state.PID = ""
	}
	out := listedJob{
		Database: job.Args.Database,
		ID:       shownID(job),
		PID:      orNull(state.PID),
		Source:   job.Args.Replication.Source.String(),
		Target:   job.Args.Replication.Target.String(),
		User:     job.Args.User,
		DocID:    job.Args.DocID,
		Info:     state.Info(),
		History:  state.History,
		Node:     orNull(state.Node),
		State:    state.State,
	}
	if out.History == nil {
		out.History = replicator.History{}
	}
	out.StartTime = timeText(state.StartTime)
	return out
}

// listFailures answers _scheduler/jobs/{id}/failures, which CouchDB does not have: which
// revisions the target refused, the newest first.
func (h *Handler) listFailures(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := storeContext(r)
	defer cancel()
	failures, err := h.jobs.Failures(ctx, pathValue(r, "id"))
	if errors.Is(err, jobs.ErrNotFound) {
		return notFound("missing")
	}
	if err != nil {
		return fmt.Errorf("reading what the target of a replication refused: %w", err)
	}
	out := newStream(w, r, http.StatusOK, "application/json")
	list := appender{to: out}
	list.raw(`{"total":`).number(failures.Total).raw(`,"failures":[`)
	for i, failure := range failures.Latest {
		if i > 0 {
			list.raw(",\n")
		}
		list.bytes(failure)
	}
	if list.raw("]}\n"); list.err != nil {
		return list.err
	}
	return out.end()
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (h *Handler) listJobs(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r)
	opts := listOptions(q)
	if q.err != nil {
		return q.err
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	list, err := h.jobs.List(ctx, opts)
	if err != nil {
		return fmt.Errorf("listing the replication jobs: %w", err)
	}
	rows := make([]listedJob, len(list.Jobs))
	for i, job := range list.Jobs {
		rows[i] = listed(job)
	}
	return respond(w, r, http.StatusOK, struct {
		TotalRows int64       `json:"total_rows"`
		Offset    int64       `json:"offset"`
		Jobs      []listedJob `json:"jobs"`
		Next      string      `json:"next_start_key,omitempty"`
	}{list.Total, min(int64(opts.Skip), list.Total), rows, list.Next})
}

func (h *Handler) getJob(w http.ResponseWriter, r *http.Request) error {
	id, err := url.PathUnescape(mux.Vars(r)["id"])
	if err != nil { // the router matched a path that can be unescaped
		return badRequest("the job's id is not percent-encoded well")
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	job, err := h.jobs.Get(ctx, id)
	if errors.Is(err, jobs.ErrNotFound) {
		return notFound("missing")
	}
	if err != nil {
		return fmt.Errorf("reading a replication job: %w", err)
	}
	return respond(w, r, http.StatusOK, listed(job))
}
