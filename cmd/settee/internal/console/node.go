package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"settee/cmd/settee/internal/remote"
)

const (
	// pageSize is the number of jobs that one request of a list asks for.
	pageSize = 500
	// maxPage is the most jobs that a node has in one answer.
	maxPage = 1000
)

// Node is a node of settee.
type Node struct{ *remote.Server }

// Filter selects jobs. The zero value selects those that have not ended.
type Filter struct {
	// States are names of [States].
	States []string
	// Database is a replicator database. Transient selects the jobs without one, and User the jobs of one user.
	Database  string
	Transient bool
	User      string
	// Search is a text in the source, the target or an id.
	Search string
	// Mirror is the job id of a mirror: the jobs of its databases are listed by their names.
	Mirror string
	// Sort is an order: failing, stuck, behind or documents_refused, see docs/http.md.
	Sort string
}

// States are the states that jobs are shown in, as in [Condition].
var States = []string{"running", "pending", "scheduled", "parked", "paused", "crashing", "completed", "failed"}

// sorts are the orders of lists: marks of [Condition].
var sorts = []string{"failing", "stuck", "behind", "documents_refused"}

// Check returns an error that names the flag if no list is like that.
func (f Filter) Check() error {
	for _, state := range f.States {
		if !slices.Contains(States, state) {
			return fmt.Errorf("--state has %q, which is none of %s", state, strings.Join(States, ", "))
		}
	}
	switch {
	case f.Sort != "" && !slices.Contains(sorts, f.Sort):
		return fmt.Errorf("--sort must be one of %s", strings.Join(sorts, ", "))
	case f.Mirror != "" && (f.Database != "" || f.Transient || f.User != ""):
		return errors.New("--mirror excludes --database, --transient and --user")
	case f.Mirror != "" && f.Sort != "" && f.Sort != "failing":
		return errors.New("--sort must be failing with --mirror")
	case f.Database != "" && (f.Transient || f.User != ""):
		return errors.New("--database excludes --transient and --user, which are for jobs without a database")
	}
	return nil
}

// Empty reports whether the filter selects nothing in particular.
func (f Filter) Empty() bool {
	return len(f.States) == 0 && f.Database == "" && !f.Transient && f.User == "" && f.Search == ""
}

// query returns the parameters of a list.
func (f Filter) query() url.Values {
	q := url.Values{}
	if len(f.States) > 0 {
		q.Set("condition", strings.Join(f.States, ","))
	}
	if f.Database != "" || f.Transient {
		q.Set("database", f.Database)
	}
	for name, value := range map[string]string{"user": f.User, "q": f.Search, "sort": f.Sort, "mirror": f.Mirror} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// path returns the path of a page. The start is the next_start_key of the page before.
func (f Filter) path(limit int, start string) string {
	q := f.query()
	q.Set("limit", strconv.Itoa(limit))
	if start != "" {
		q.Set("start_key", start)
	}
	return "/_scheduler/jobs?" + q.Encode()
}

// Pages returns the pages of a list, at most limit jobs in all, or all with 0.
func (n *Node) Pages(ctx context.Context, f Filter, limit int) iter.Seq2[[]Job, error] {
	return func(yield func([]Job, error) bool) {
		start := ""
		for left := limit; limit == 0 || left > 0; {
			size := pageSize
			if limit > 0 {
				size = min(size, left)
			}
			var p page
			if err := n.Get(ctx, f.path(size, start), &p); err != nil {
				yield(nil, err)
				return
			}
			if len(p.Jobs) > 0 && !yield(p.Jobs, nil) || p.Next == "" {
				return
			}
			start, left = p.Next, left-len(p.Jobs)
		}
	}
}

// NoJobError is the error of a name that no job has.
type NoJobError struct{ Name string }

func (e *NoJobError) Error() string {
	return fmt.Sprintf("there is no job %q: name it as settee jobs list does, by DATABASE/DOCUMENT, its document in _replicator, or its id", e.Name)
}

// Find returns the job of a name: DATABASE/DOCUMENT, a document of _replicator, a replication id or a job id. It returns
// a *NoJobError if there is none.
func (n *Node) Find(ctx context.Context, name string) (job Job, err error) {
	path, err := n.pathOf(ctx, name)
	if err != nil {
		return job, err
	}
	err = n.Get(ctx, path, &job)
	if remote.IsStatus(err, http.StatusNotFound) { // it was removed meanwhile
		err = &NoJobError{name}
	}
	return job, err
}

// pathOf returns the path of the job of a name.
func (n *Node) pathOf(ctx context.Context, name string) (string, error) {
	database, doc, ok := splitName(name)
	if !ok {
		path := jobPath(name)
		err := n.Get(ctx, path, nil)
		if !remote.IsStatus(err, http.StatusNotFound) {
			return path, err
		}
		database, doc = "_replicator", name
	}
	var found struct {
		JobID string `json:"job_id"`
	}
	err := n.Get(ctx, "/_scheduler/docs"+remote.Path(database, doc), &found)
	if remote.IsStatus(err, http.StatusNotFound) {
		return "", &NoJobError{name}
	}
	return jobPath(found.JobID), err
}

// splitName splits DATABASE/DOCUMENT after the first _replicator. ok is false if the name has none.
func splitName(name string) (database, doc string, ok bool) {
	const end = "_replicator/"
	at := strings.Index(name, end)
	if at < 0 || at > 0 && name[at-1] != '/' {
		return "", "", false
	}
	return name[:at+len(end)-1], name[at+len(end):], true
}

// jobPath returns the path of the job of an id. A proxy may decode a + as a space.
func jobPath(id string) string {
	return "/_scheduler/jobs/" + strings.ReplaceAll(url.PathEscape(id), "+", "%2B")
}

// Failures returns how many revisions of a job the target has refused, and the latest of them.
func (n *Node) Failures(ctx context.Context, job Job) (total int64, latest []json.RawMessage, err error) {
	var answer struct {
		Total    int64
		Failures []json.RawMessage
	}
	err = n.Get(ctx, jobPath(job.JobID)+"/failures", &answer)
	return answer.Total, answer.Failures, err
}

// Failing returns the pages of the jobs that fail: those that crash, that are stuck, whose target has refused documents, and
// that have failed, without those that are acknowledged. Each job is in one of them. The filter has no States and no Sort.
func (n *Node) Failing(ctx context.Context, f Filter) iter.Seq2[[]Job, error] {
	return func(yield func([]Job, error) bool) {
		for _, part := range []struct {
			sort   string
			states []string
		}{{"failing", nil}, {"stuck", nil}, {"documents_refused", nil}, {"", []string{"failed"}}} {
			f.Sort, f.States = part.sort, part.states
			for jobs, err := range n.Pages(ctx, f, 0) {
				jobs = slices.DeleteFunc(jobs, func(j Job) bool {
					if j.Condition.Acknowledged != nil {
						return true
					}
					switch part.sort {
					case "stuck":
						return j.Condition.has("failing")
					case "documents_refused":
						return j.Condition.has("failing") || j.Condition.has("stuck")
					}
					return false
				})
				if len(jobs) == 0 && err == nil {
					continue
				}
				if !yield(jobs, err) || err != nil {
					return
				}
			}
		}
	}
}
