package replication

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"settee/frontend/internal/access"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/replicator"
	"settee/replicator/jobs"
)

// listedDocument is the job of a document in CouchDB's _scheduler/docs. If it has ended, it has no id, node and
// proxies. CouchDB has no warnings, no activity and no condition.
type listedDocument struct {
	Database    *string          `json:"database"`
	DocID       *string          `json:"doc_id"`
	ID          *string          `json:"id"`
	JobID       string           `json:"job_id"`
	Node        any              `json:"node,omitempty"`
	Source      string           `json:"source"`
	Target      string           `json:"target"`
	State       replicator.State `json:"state"`
	Info        *replicator.Info `json:"info"`
	ErrorCount  int              `json:"error_count"`
	LastUpdated *string          `json:"last_updated"`
	StartTime   *string          `json:"start_time"`
	SourceProxy any              `json:"source_proxy,omitempty"`
	TargetProxy any              `json:"target_proxy,omitempty"`
	Warnings    []string         `json:"warnings,omitempty"`

	Activity  *replicator.ShownActivity `json:"activity,omitempty"`
	Condition replicator.Condition      `json:"condition"`
}

func listedDoc(job *jobs.Job, t *telling) listedDocument {
	told, state := t.condition(job), *job.State
	state.State = job.Condition() // Info depends on it
	r := job.Args.Replication
	out := listedDocument{
		Database: job.Args.Database, DocID: job.Args.DocID, JobID: job.ID,
		Source: r.Source.String(), Target: r.Target.String(),
		State: state.State, Info: state.Info(), ErrorCount: state.ErrorCount,
		LastUpdated: timeText(state.LastUpdated), StartTime: timeText(state.StartTime),
		Warnings: r.Warnings(), Activity: state.ShownActivity(), Condition: told,
	}
	if job.IsMirror() {
		out.Info = out.Info.SumUp(state.Mirror, job.Summary)
	}
	if !state.State.Terminal() {
		out.ID = orNull(job.ReplicationID())
		out.Node, out.SourceProxy, out.TargetProxy = orNull(state.Node), shownProxy(r.Source), shownProxy(r.Target)
	}
	return out
}

// shownProxy returns the URL of the proxy of an endpoint, without a password.
func shownProxy(e replicator.Endpoint) *string { return orNull(e.RedactedProxy()) }

func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return orNull(t.UTC().Format(time.RFC3339))
}

// ListDocs answers _scheduler/docs.
func (e *Endpoints) ListDocs(w http.ResponseWriter, r *http.Request) error {
	return e.listDocsOf(w, r, "")
}

// DocsBelow answers _scheduler/docs/{db} and _scheduler/docs/{db}/{doc}. As in CouchDB the slash in the name of a
// database may be unencoded: the name ends with the first segment that is, or decodes to a name that ends in,
// _replicator.
func (e *Endpoints) DocsBelow(w http.ResponseWriter, r *http.Request) error {
	segments := strings.Split(mux.Vars(r)["rest"], "/")
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil { // canonical paths have no such segment
			break
		}
		segments[i] = plain
		if !replicator.IsReplicatorDatabase(plain) {
			continue
		}
		database := strings.Join(segments[:i+1], "/")
		if i+1 == len(segments) {
			return e.listDocsOf(w, r, database)
		}
		doc := strings.Join(segments[i+1:], "/")
		if id, err := url.PathUnescape(doc); err == nil {
			doc = id
		}
		return e.getDocOf(w, r, database, doc)
	}
	return web.BadRequest("Invalid path")
}

func (e *Endpoints) getDocOf(w http.ResponseWriter, r *http.Request, database, id string) error {
	if !e.Guard.MayUseJob(r, access.SeeJob, access.JobOwner{Database: database, DocID: id}) {
		return errNotAdmin
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	job, err := e.Jobs.Lists.Document(ctx, database, id)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return web.NotFound("missing")
	case errors.Is(err, docstore.ErrDatabaseNotFound):
		return web.StoreFailure(err)
	case err != nil:
		return fmt.Errorf("reading the job of a document: %w", err)
	}
	t := e.telling(r)
	out := listedDoc(job, t)
	if out.Condition, err = e.single(ctx, job, t); err != nil {
		return err
	}
	return web.Respond(w, r, http.StatusOK, out)
}

func (e *Endpoints) listDocsOf(w http.ResponseWriter, r *http.Request, database string) error {
	q := web.NewQuery(r)
	filter, opts := readDocList(q)
	filter.Database = database
	if q.Err != nil {
		return q.Err
	}
	may := database != "" && e.Guard.MayUseJobsOf(r, access.ListJobs, database)
	if !may && !e.Guard.MayUseAllJobs(r, access.ListAll) {
		return errNotAdmin
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
		return fmt.Errorf("listing the jobs of documents: %w", err)
	}
	docs, t := make([]listedDocument, len(list.Jobs)), e.telling(r)
	for i, job := range list.Jobs {
		docs[i] = listedDoc(job, t)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		TotalRows int64            `json:"total_rows"`
		Offset    int64            `json:"offset"`
		Docs      []listedDocument `json:"docs"`
		pageEnd
	}{list.Total, min(int64(opts.Skip), list.Total), docs, endOf(list, opts)})
}
