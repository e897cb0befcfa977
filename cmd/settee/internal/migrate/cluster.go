package migrate

import (
	"context"
	"errors"
	"fmt"
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
		query := fmt.Sprintf("/_all_dbs?limit=%d&start_key=%s", atOnce, url.QueryEscape(string(textOf(start))))
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
