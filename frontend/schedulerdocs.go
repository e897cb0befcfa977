package frontend

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"settee/pkg/docstore"
	"settee/replicator"
	"settee/replicator/jobs"
)

// listedDocument is the job of a document as CouchDB's _scheduler/docs shows it. What has
// ended has neither an id nor a node, nor proxies.
type listedDocument struct {
	Database    *string          `json:"database"`
	DocID       *string          `json:"doc_id"`
	ID          *string          `json:"id"`
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
}

func listedDoc(job *jobs.Job) listedDocument {
	state := *job.State
	state.State = job.Condition() // what info shows depends on it
	r := job.Args.Replication
	out := listedDocument{
		Database: job.Args.Database, DocID: job.Args.DocID,
		Source: r.Source.String(), Target: r.Target.String(),
		State: state.State, Info: state.Info(), ErrorCount: state.ErrorCount,
		LastUpdated: timeText(state.LastUpdated), StartTime: timeText(state.StartTime),
	}
	if !state.State.Terminal() {
		out.ID = orNull(shownID(job))
		out.Node, out.SourceProxy, out.TargetProxy = orNull(state.Node), shownProxy(r.Source), shownProxy(r.Target)
	}
	return out
}

// shownProxy is the URL of an endpoint's proxy, without a password.
func shownProxy(e replicator.Endpoint) *string { return orNull(e.RedactedProxy()) }

func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return orNull(t.UTC().Format(time.RFC3339))
}

// listDocs answers _scheduler/docs.
func (h *Handler) listDocs(w http.ResponseWriter, r *http.Request) error {
	return h.listDocsOf(w, r, "")
}

// docsBelow answers _scheduler/docs/{db} and _scheduler/docs/{db}/{doc}. As CouchDB it
// takes the slash in a database's name as it is, too: the name ends with the first segment
// that is _replicator, or whose end that is.
func (h *Handler) docsBelow(w http.ResponseWriter, r *http.Request) error {
	segments := strings.Split(mux.Vars(r)["rest"], "/")
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil { // then canonical could not have made it
			break
		}
		segments[i] = plain
		if plain != "_replicator" && !strings.HasSuffix(plain, "/_replicator") {
			continue
		}
		database := strings.Join(segments[:i+1], "/")
		if i+1 == len(segments) {
			return h.listDocsOf(w, r, database)
		}
		doc := strings.Join(segments[i+1:], "/")
		if id, err := url.PathUnescape(doc); err == nil {
			doc = id
		}
		return h.getDocOf(w, r, database, doc)
	}
	return notFound("Database does not exist.")
}

func (h *Handler) getDocOf(w http.ResponseWriter, r *http.Request, database, id string) error {
	ctx, cancel := storeContext(r)
	defer cancel()
	job, err := h.jobs.Document(ctx, database, id)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return notFound("missing")
	case errors.Is(err, docstore.ErrDatabaseNotFound):
		return docFailure(err)
	case err != nil:
		return fmt.Errorf("reading the job of a document: %w", err)
	}
	return respond(w, r, http.StatusOK, listedDoc(job))
}

func (h *Handler) listDocsOf(w http.ResponseWriter, r *http.Request, database string) error {
	q := newQuery(r)
	opts := listOptions(q)
	states := q.states()
	if q.err != nil {
		return q.err
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	list, err := h.jobs.ListDocuments(ctx, database, states, opts)
	if errors.Is(err, docstore.ErrDatabaseNotFound) {
		return docFailure(err)
	}
	if err != nil {
		return fmt.Errorf("listing the jobs of documents: %w", err)
	}
	docs := make([]listedDocument, len(list.Jobs))
	for i, job := range list.Jobs {
		docs[i] = listedDoc(job)
	}
	return respond(w, r, http.StatusOK, struct {
		TotalRows int64            `json:"total_rows"`
		Offset    int64            `json:"offset"`
		Docs      []listedDocument `json:"docs"`
		Next      string           `json:"next_start_key,omitempty"`
	}{list.Total, min(int64(opts.Skip), list.Total), docs, list.Next})
}

// listOptions reads the parameters of a list of jobs: limit, skip, and start_key, which is
// the next_start_key of the page before.
func listOptions(q *query) jobs.ListOptions {
	opts := jobs.ListOptions{
		After: q.text("start_key"), Limit: q.upTo("limit", defaultLimit, jobs.MaxLimit), Skip: q.upTo("skip", 0, jobs.MaxSkip),
	}
	if len(opts.After) > maxStartKey {
		q.refuse("`start_key` must be the next_start_key of an earlier page")
	}
	return opts
}

// maxStartKey is the length of the longest job id, in bytes.
const maxStartKey = 2_000

// upTo returns a parameter that is a whole number from 0 to most.
func (q *query) upTo(name string, otherwise, most int) int {
	if !q.has(name) {
		return otherwise
	}
	n, err := strconv.Atoi(q.text(name))
	if err != nil || n < 0 || n > most {
		q.refuse("`%s` must be an integer from 0 to %d", name, most)
		return 0
	}
	return n
}

// states returns the states that a list is to have, nil for all.
func (q *query) states() []replicator.State {
	if q.text("states") == "" {
		return nil
	}
	var out []replicator.State
	for name := range strings.SplitSeq(q.text("states"), ",") {
		state, err := replicator.ParseState(strings.TrimSpace(name))
		if err != nil {
			q.refuse("States must be one or more of [initializing,error,running,pending,crashing,completed,failed]")
			return nil
		}
		out = append(out, state)
	}
	return out
}
