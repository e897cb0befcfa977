package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/replicator"
	"settee/replicator/jobs"
)

// listedJob is a job in CouchDB's _scheduler/jobs, its state, what its run does, and what people are told about it.
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
	JobID     string             `json:"job_id"`
	// Of a job that a mirror has made: the job id of the mirror, and the database of its source.
	Mirror           string                    `json:"mirror,omitempty"`
	MirroredDatabase string                    `json:"mirrored_database,omitempty"`
	Warnings         []string                  `json:"warnings,omitempty"`
	Activity         *replicator.ShownActivity `json:"activity,omitempty"`
	Condition        replicator.Condition      `json:"condition"`
}

func listed(job *jobs.Job, t *telling) listedJob {
	told, state := t.condition(job), *job.State
	state.State = job.Condition() // Info depends on it
	if state.State != replicator.StateRunning {
		state.PID = "" // of a run whose node has died
	}
	out := listedJob{
		Database: job.Args.Database,
		ID:       shownID(job),
		JobID:    job.ID,
		PID:      orNull(state.PID),
		Source:   job.Args.Replication.Source.String(),
		Target:   job.Args.Replication.Target.String(),
		User:     job.Args.User,
		DocID:    job.Args.DocID,
		Info:     state.Info(),
		History:  state.History,
		Node:     orNull(state.Node),
		State:    state.State,
		Mirror:   job.Mirror(), MirroredDatabase: job.Args.MirroredDatabase,
		Warnings: job.Args.Replication.Warnings(), Activity: state.ShownActivity(), Condition: told,
	}
	if job.IsMirror() {
		out.Info = out.Info.SumUp(state.Mirror, job.Summary)
	}
	if out.History == nil {
		out.History = replicator.History{}
	}
	out.StartTime = timeText(state.StartTime)
	return out
}

// ListFailures answers _scheduler/jobs/{id}/failures, which CouchDB does not have: the revisions that the target
// refused, the newest first.
func (e *Endpoints) ListFailures(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	job, err := e.jobOf(ctx, r, web.PathValue(r, "id"), access.SeeJob)
	if err != nil {
		return err
	}
	failures, err := e.Jobs.Lists.Failures(ctx, job.ID)
	if errors.Is(err, jobs.ErrNotFound) {
		return web.NotFound("missing")
	}
	if err != nil {
		return fmt.Errorf("reading what the target of a replication refused: %w", err)
	}
	return web.SendStream(w, r, "application/json", func(out *web.Stream) error {
		list := web.Appender{To: out}
		list.Raw(`{"total":`).Number(failures.Total).Raw(`,"failures":[`)
		for i, failure := range failures.Latest {
			if i > 0 {
				list.Raw(",\n")
			}
			list.Bytes(failure)
		}
		return list.Raw("]}\n").Err
	})
}

// GetDefinition answers _scheduler/jobs/{id}/definition, which CouchDB does not have: what the job replicates and how,
// without secrets. It is apart from the job, which is sent again at each step: a definition may have megabytes.
func (e *Endpoints) GetDefinition(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	job, err := e.jobOf(ctx, r, web.PathValue(r, "id"), access.SeeJob)
	if err != nil {
		return err
	}
	if job.Sealed {
		return failureOf("reading the definition of a replication job", fdbjobs.ErrSealed)
	}
	definition, err := job.Args.Replication.Definition()
	if err != nil {
		return err
	}
	return web.Respond(w, r, http.StatusOK, definition)
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// ListJobs answers _scheduler/jobs.
func (e *Endpoints) ListJobs(w http.ResponseWriter, r *http.Request) error {
	q := web.NewQuery(r)
	filter, opts := readJobList(q)
	if q.Err != nil {
		return q.Err
	}
	if filter.Mirror != "" {
		if err := e.findMirror(r, &filter); err != nil {
			return err
		}
	} else if err := e.restrict(r, &filter, opts.Order); err != nil {
		return err
	}
	var list jobs.List
	err := e.Scans.Run(r, func() (err error) {
		ctx, cancel := web.StoreContext(r)
		defer cancel()
		list, err = e.Jobs.Lists.List(ctx, filter, opts)
		return err
	})
	if errors.Is(err, docstore.ErrDatabaseNotFound) {
		return web.StoreFailure(err)
	}
	if err != nil {
		return fmt.Errorf("listing the replication jobs: %w", err)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		TotalRows *int64      `json:"total_rows"`
		Offset    int64       `json:"offset"`
		Jobs      []listedJob `json:"jobs"`
		pageEnd
	}{totalOf(list, filter, opts), min(int64(opts.Skip), list.Total), listedAll(list.Jobs, e.telling(r)), endOf(list, opts)})
}

// findMirror finds the mirror whose jobs are listed, by its job id or replication id, if the user of the request may see
// it.
func (e *Endpoints) findMirror(r *http.Request, f *jobs.Filter) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	job, err := e.jobOf(ctx, r, f.Mirror, access.SeeJob)
	if err == nil {
		f.Mirror = job.ID
	}
	return err
}

// restrict refuses a list that has jobs that the user may not list. Without a filter, users list the jobs that they have
// posted. A page in another order than by owner looks at the jobs of all owners, and its end names one of them.
func (e *Endpoints) restrict(r *http.Request, f *jobs.Filter, order jobs.Order) error {
	who, may := access.UserOf(r), false
	switch {
	case e.Guard.MayUseAllJobs(r, access.ListAll):
		return nil
	case !order.Counted():
	case f.Database != "":
		may = e.Guard.MayUseJobsOf(r, access.ListJobs, f.Database)
	default:
		if f.User == nil {
			f.User = &who.Name
		}
		may = e.Guard.MayUseJob(r, access.ListJobs, access.JobOwner{Transient: true, User: f.User})
	}
	if !may {
		return errNotAdmin
	}
	return nil
}

func listedAll(found []*jobs.Job, t *telling) []listedJob {
	rows := make([]listedJob, len(found))
	for i, job := range found {
		rows[i] = listed(job, t)
	}
	return rows
}

// RunNow answers POST _scheduler/jobs/{id}/_run, which CouchDB does not have: a job that waits for its time runs at
// once.
func (e *Endpoints) RunNow(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	job, err := e.jobOf(ctx, r, web.PathValue(r, "id"), access.RunJob)
	if err != nil {
		return err
	}
	seen := job
	job, err = e.Jobs.Requests.RunNow(ctx, job.ID)
	switch {
	case errors.Is(err, jobs.ErrEnded):
		return web.NewFailure(http.StatusConflict, "conflict", "the replication has ended")
	case err != nil:
		return failureOf("running a replication job", err)
	}
	job.Paused, job.Summary = seen.Paused, seen.Summary
	told, status := e.telling(r).condition(job), http.StatusAccepted
	if told.State == replicator.ShownRunning {
		status = http.StatusOK
	}
	return web.Respond(w, r, status, struct {
		OK        bool                 `json:"ok"`
		ID        string               `json:"id"`
		State     replicator.State     `json:"state"`
		Condition replicator.Condition `json:"condition"` // until now, as the state
	}{true, shownID(job), job.Condition(), told})
}

// Lag answers GET _scheduler/jobs/{id}/lag, which CouchDB does not have: how far the target of a mirror was behind in the last day.
func (e *Endpoints) Lag(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	job, err := e.jobOf(ctx, r, web.PathValue(r, "id"), access.SeeJob)
	if err != nil {
		return err
	}
	if !job.IsMirror() {
		return web.NotFound("the job is no mirror")
	}
	records, err := e.Jobs.Lists.Records(ctx, job)
	if err != nil {
		return failureOf("reading the lags of a mirror", err)
	}
	since, lag := records.Lags.Until(time.Now())
	return web.Respond(w, r, http.StatusOK, struct {
		Since int64    `json:"since"` // seconds since the epoch
		Step  int64    `json:"step"`  // seconds
		Lag   []*int64 `json:"lag"`
	}{since.Unix(), int64(replicator.LagSlot / time.Second), lag})
}

// VerifyNow answers POST _scheduler/jobs/{id}/_verify, which CouchDB does not have: a mirror compares its two servers, and a replication
// node both ends of any other job.
func (e *Endpoints) VerifyNow(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	job, err := e.jobOf(ctx, r, web.PathValue(r, "id"), access.RunJob)
	if err != nil {
		return err
	}
	seen := job
	job, err = e.Jobs.Requests.VerifyNow(ctx, job.ID)
	switch {
	case errors.Is(err, jobs.ErrEnded):
		return web.NewFailure(http.StatusConflict, "conflict", "the replication has ended")
	case err != nil:
		return failureOf("verifying a job", err)
	}
	job.Paused, job.Summary = seen.Paused, seen.Summary
	return web.Respond(w, r, http.StatusAccepted, struct {
		OK        bool                 `json:"ok"`
		ID        string               `json:"id"`
		Condition replicator.Condition `json:"condition"`
	}{true, shownID(job), e.telling(r).condition(job)})
}

// jobOf returns the job with that job id or replication id, if the user of the request may use it so. If its definition cannot
// be opened, it is as lists have it.
func (e *Endpoints) jobOf(ctx context.Context, r *http.Request, id string, use access.JobUse) (*jobs.Job, error) {
	job, err := e.Jobs.Lists.Get(ctx, id)
	// This node, or a proxy, may have decoded the + of an id as a space.
	if plus := strings.ReplaceAll(id, " ", "+"); plus != id && errors.Is(err, jobs.ErrNotFound) {
		job, err = e.Jobs.Lists.Get(ctx, plus)
	}
	switch {
	case err != nil:
		return nil, failureOf("reading a replication job", err)
	case !e.Guard.MayUseJob(r, use, ownerOf(job)):
		return nil, errNotAdmin
	}
	return job, nil
}

// failureOf returns the answer to an error of the job store.
func failureOf(doing string, err error) error {
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return web.NotFound("missing")
	case errors.Is(err, fdbjobs.ErrSealed):
		return web.NewFailure(http.StatusInternalServerError, "unreadable", "this node cannot open the definition of the job: it lacks the key")
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func ownerOf(job *jobs.Job) access.JobOwner {
	database, docID, _ := job.Document()
	return access.JobOwner{Transient: job.Transient(), User: job.Args.User, Database: database, DocID: docID}
}

var errNotAdmin = web.Unauthorized("You are not a server admin.")

// GetJob answers _scheduler/jobs/{id}.
func (e *Endpoints) GetJob(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	job, err := e.jobOf(ctx, r, web.PathValue(r, "id"), access.SeeJob)
	if err != nil {
		return err
	}
	records, err := e.Jobs.Lists.Records(ctx, job)
	if err != nil {
		return fmt.Errorf("reading the records of a replication job: %w", err)
	}
	t := e.telling(r)
	out := listed(job, t)
	if out.Condition, err = e.single(ctx, job, t); err != nil {
		return err
	}
	verification, ends := records.Verification, job.State.Ends
	if v := verification.Verified; v != nil && v.Ends != nil && (ends == nil || !v.Ends.At.Before(ends.At)) {
		ends = v.Ends
	}
	return web.Respond(w, r, http.StatusOK, struct {
		listedJob
		Runs           []json.RawMessage       `json:"runs"`
		Ends           *replicator.Ends        `json:"ends,omitempty"`
		Verified       *replicator.JobVerified `json:"verified,omitempty"`
		VerifyingSince *string                 `json:"verifying_since,omitempty"`
	}{out, records.Runs, ends, verification.Verified, timeText(verification.Since)})
}
