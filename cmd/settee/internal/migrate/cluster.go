package migrate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"settee/cmd/settee/internal/remote"
	"settee/replicator"
)

// welcome is the answer to GET /.
type welcome struct {
	Version string
	UUID    string
	Vendor  struct{ Name, Version string }
}

func (s *Server) welcome(ctx context.Context) (welcome, error) {
	var w welcome
	err := s.Get(ctx, "/", &w)
	if err == nil && (w.Vendor.Name == "settee") != (s.Name == "settee") {
		err = fmt.Errorf("%s is not %s: its vendor is %q", s.URL(), s.Name, w.Vendor.Name)
	}
	if err == nil && w.UUID == "" {
		err = fmt.Errorf("%s does not tell its uuid", s)
	}
	return w, err
}

// membership returns the nodes of a cluster, and those that are not connected.
func (s *Server) membership(ctx context.Context) (nodes, lost []string, err error) {
	var answer struct {
		All     []string `json:"all_nodes"`
		Cluster []string `json:"cluster_nodes"`
	}
	if err := s.Get(ctx, "/_membership", &answer); err != nil {
		return nil, nil, err
	}
	for _, node := range answer.Cluster {
		if !slices.Contains(answer.All, node) {
			lost = append(lost, node)
		}
	}
	return answer.Cluster, lost, nil
}

// reasonOf returns what a server said.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*remote.StatusError](err); ok {
		return e.Reason
	}
	return err.Error()
}

// Databases returns the replicator databases of a server.
func (s *Server) Databases(ctx context.Context) ([]string, error) {
	const atOnce = 1000
	var all []string
	for start := ""; ; {
		var names []string
		query := fmt.Sprintf("/_all_dbs?limit=%d&start_key=%s", atOnce, url.QueryEscape(string(quoted(start))))
		if err := s.Get(ctx, query, &names); err != nil {
			return nil, err
		}
		for _, name := range names {
			if replicator.IsReplicatorDatabase(name) {
				all = append(all, name)
			}
		}
		if len(names) < atOnce {
			slices.Sort(all)
			return slices.Compact(all), nil
		}
		start = names[len(names)-1]
	}
}

// listed is a job in one of CouchDB's lists.
type listed struct {
	Database string  `json:"database"`
	DocID    string  `json:"doc_id"`
	ID       *string `json:"id"`
	Source   string  `json:"source"`
	Target   string  `json:"target"`
	Type     string  `json:"type"` // in _active_tasks
}

// shard is the name of a part of a database, as _active_tasks has it.
var shard = regexp.MustCompile(`^shards/[0-9a-f]+-[0-9a-f]+/(.*)\.[0-9]+$`)

// pagesOfJobs calls visit with the rows of a list of jobs.
func (s *Server) pagesOfJobs(ctx context.Context, at, query string, visit func(listed) error) error {
	const atOnce = 1000
	for skip := 0; ; skip += atOnce {
		var answer struct{ Jobs, Docs []listed }
		if err := s.Get(ctx, fmt.Sprintf("%s?%slimit=%d&skip=%d", at, query, atOnce, skip), &answer); err != nil {
			return err
		}
		rows := slices.Concat(answer.Jobs, answer.Docs)
		for _, r := range rows {
			if err := visit(r); err != nil {
				return err
			}
		}
		if len(rows) < atOnce {
			return nil
		}
	}
}

// jobsOf returns the documents of a database that have a job in CouchDB. A document that is being read has one, too.
func (s *Server) jobsOf(ctx context.Context, db string) ([]string, error) {
	found := map[string]bool{}
	note := func(job listed) error {
		if match := shard.FindStringSubmatch(job.Database); match != nil {
			job.Database = match[1]
		}
		if job.Database == db && job.DocID != "" {
			found[job.DocID] = true
		}
		return nil
	}
	// In this order: a job that is in none of the lists is stopped.
	const states = "states=initializing,error,pending,running,crashing&"
	if err := s.pagesOfJobs(ctx, "/_scheduler/docs"+remote.Path(db), states, note); err != nil {
		return nil, err
	}
	if err := s.pagesOfJobs(ctx, "/_scheduler/jobs", "", note); err != nil {
		return nil, err
	}
	var tasks []listed
	if err := s.Get(ctx, "/_active_tasks", &tasks); err != nil {
		return nil, err
	}
	for _, task := range tasks {
		if task.Type == "replication" {
			_ = note(task) // never fails
		}
	}
	all := make([]string, 0, len(found))
	for id := range found {
		all = append(all, id)
	}
	slices.Sort(all)
	return all, nil
}

// pauseRecord is the local document of a database of settee that says how its shares were set before it was paused. It
// is there until a way back has ended.
const pauseRecord = "_local/import-couchdb"

type pause struct {
	Rev    string  `json:"_rev,omitempty"`
	Shares *string `json:"shares"` // as set in settee's store; nil: not set there
}

func (t *transfer) recordPath() string { return remote.Path(t.db) + "/" + pauseRecord }

// readPause returns the record, nil if there is none.
func (t *transfer) readPause(ctx context.Context) (*pause, error) {
	var p pause
	err := t.Settee.Get(ctx, t.recordPath(), &p)
	if remote.IsStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	return &p, err
}

func (t *transfer) sharesPath() string {
	return "/_node/_local/_config/replicator.shares" + remote.Path(t.db)
}

// pause gives settee's database no shares.
func (t *transfer) pause(ctx context.Context) (*pause, error) {
	p, err := t.readPause(ctx)
	if err != nil {
		return nil, err
	}
	if p == nil {
		p = &pause{}
		var set map[string]map[string]struct{ Value, Origin string }
		if err := t.Settee.Get(ctx, "/_node/_local/_config?origins=true", &set); err != nil {
			return nil, err
		}
		if shares := set["replicator.shares"][t.db]; shares.Origin == "store" {
			p.Shares = &shares.Value
		}
		var written struct{ Rev string }
		if err := t.Settee.Ask(ctx, http.MethodPut, t.recordPath(), p, &written); err != nil {
			return nil, err
		}
		p.Rev = written.Rev
	}
	return p, t.Settee.Ask(ctx, http.MethodPut, t.sharesPath(), "0", nil)
}

// resume gives settee's database the shares that it had, and removes the record.
func (t *transfer) resume(ctx context.Context, p *pause) error {
	method, body := http.MethodDelete, any(nil)
	if p.Shares != nil {
		method, body = http.MethodPut, *p.Shares
	}
	if err := t.Settee.Ask(ctx, method, t.sharesPath(), body, nil); err != nil && !remote.IsStatus(err, http.StatusNotFound) {
		return err
	}
	return t.Settee.Ask(ctx, http.MethodDelete, t.recordPath()+"?rev="+url.QueryEscape(p.Rev), nil, nil)
}

// busyInSettee returns running jobs of the database, or its name while it is not paused.
func (t *transfer) busyInSettee(ctx context.Context) ([]string, error) {
	var answer struct {
		Shares []struct {
			Database                   string
			Shares                     float64
			Running, Pending, Crashing int
		}
		Jobs []listed
	}
	if err := t.Settee.Get(ctx, "/_scheduler/shares", &answer); err != nil {
		return nil, err
	}
	for _, s := range answer.Shares {
		// A database without jobs that wait or run has the default shares here, whatever is set.
		if s.Database == t.db && (s.Running > 0 || s.Shares > 0 && s.Pending+s.Crashing > 0) {
			return []string{t.db}, nil
		}
	}
	query := "/_scheduler/jobs?states=running&limit=1&database=" + url.QueryEscape(t.db)
	if err := t.Settee.Get(ctx, query, &answer); err != nil || len(answer.Jobs) == 0 {
		return nil, err
	}
	return []string{answer.Jobs[0].DocID}, nil
}
