package replication

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"settee/frontend/internal/web"
	"settee/replicator"
	"settee/replicator/jobs"
)

const (
	// maxProblems is the most problems in an answer, and inProblem the most jobs that are listed of each.
	maxProblems = 50
	inProblem   = 100
)

// problem is what several jobs need a person for, in _scheduler/problems.
type problem struct {
	Kind    replicator.AttentionKind `json:"kind"`
	Code    replicator.FaultCode     `json:"code"`
	Side    replicator.Side          `json:"side,omitempty"`
	Host    string                   `json:"host,omitempty"`   // and the port
	Mirror  string                   `json:"mirror,omitempty"` // the job id of the mirror whose databases these are
	Message string                   `json:"message"`
	Advice  *replicator.Advice       `json:"advice,omitempty"`
	Jobs    int64                    `json:"jobs"`
	Since   *string                  `json:"since"` // when the first of them began to need it, null if that is not known
	First   []problemJob             `json:"first"` // the first of the jobs, none of those that are late

	since time.Time
	of    *jobs.Problem
}

// problemJob names a job of a problem.
type problemJob struct {
	JobID            string               `json:"job_id"`
	ID               string               `json:"id"`
	Database         *string              `json:"database"`
	DocID            *string              `json:"doc_id"`
	User             *string              `json:"user"`
	Mirror           string               `json:"mirror,omitempty"`
	MirroredDatabase string               `json:"mirrored_database,omitempty"`
	Source           string               `json:"source"`
	Target           string               `json:"target"`
	Condition        replicator.Condition `json:"condition"`
}

// Problems answers _scheduler/problems, which CouchDB does not have: the jobs that need attention, grouped by the kind, the code, the
// side and the host of what is wrong, and by mirror. The numbers come from tallies. It looks at the first 1,000 watches that nodes run.
func (e *Endpoints) Problems(w http.ResponseWriter, r *http.Request) error {
	var all []problem
	var attention int64
	var total int
	var more bool
	t := e.telling(r)
	err := e.Scans.Run(r, func() error {
		ctx, cancel := web.StoreContext(r)
		defer cancel()
		found, err := e.Jobs.Lists.Problems(ctx)
		if err != nil {
			return err
		}
		all = []problem{}
		for i := range found {
			all = append(all, problemOf(&found[i]))
		}
		late, moreLate, err := e.Jobs.Lists.LateWatches(ctx)
		if err != nil {
			return err
		}
		all, more, attention = append(all, lateProblems(late)...), moreLate, 0
		for _, p := range all {
			attention += p.Jobs
		}
		slices.SortStableFunc(all, func(a, b problem) int { return cmp.Compare(b.Jobs, a.Jobs) })
		total = len(all)
		all = all[:min(len(all), maxProblems)]
		for i := range all {
			p := &all[i]
			if p.of == nil {
				continue
			}
			first, since, err := e.Jobs.Lists.FirstOf(ctx, p.of, inProblem)
			if err != nil {
				return err
			}
			p.Since = timeText(since)
			for _, job := range first {
				p.First = append(p.First, nameOf(job, t))
			}
			p.openUp()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing the replication jobs that need attention: %w", err)
	}
	return web.Respond(w, r, http.StatusOK, struct {
		Attention int64     `json:"attention"`      // how many jobs need attention
		More      bool      `json:"more,omitempty"` // whether there may be others
		Total     int       `json:"total_rows"`
		Problems  []problem `json:"problems"`
	}{attention, more, total, all})
}

// problemOf returns a problem without its first jobs.
func problemOf(of *jobs.Problem) problem {
	a := of.Attention
	return problem{
		Kind: a.Kind, Code: a.Code, Side: a.Side, Host: a.Host, Mirror: of.Mirror, Message: a.Code.At(a.Side, a.Host),
		Advice: a.Code.Advice(replicator.Advised{Side: a.Side, Host: a.Host, Mirror: of.Mirror != ""}),
		Jobs:   of.Jobs, First: []problemJob{}, of: of,
	}
}

// openUp says of a problem of one job all that is known, and of one that only words describe what those of the first job are.
func (p *problem) openUp() {
	switch {
	case len(p.First) == 0 || !p.Code.Open() && p.Jobs > 1:
	case p.First[0].Condition.Fault != nil:
		p.Message = p.First[0].Condition.Fault.Message
		if p.Jobs > 1 {
			p.Message += "; others have other words"
		}
	case p.Kind == replicator.NeedsStuck:
		p.Message = "no request has failed"
	}
}

// lateProblems groups watches by the host and the reason.
func lateProblems(watches []jobs.Problem) (problems []problem) {
	for _, watch := range watches {
		a := watch.Attention
		at := slices.IndexFunc(problems, func(p problem) bool { return p.Host == a.Host && p.Code == a.Code })
		if at < 0 {
			at, problems = len(problems), append(problems, problemOf(&jobs.Problem{Attention: a}))
			problems[at].of = nil // the jobs are not listed
		}
		p := &problems[at]
		p.Jobs += watch.Jobs
		if p.since.IsZero() || a.Since.Before(p.since) {
			p.since = a.Since
		}
		p.Since = timeText(p.since)
	}
	return problems
}

func nameOf(job *jobs.Job, t *telling) problemJob {
	return problemJob{
		JobID: job.ID, ID: shownID(job), Database: job.Args.Database, DocID: job.Args.DocID, User: job.Args.User,
		Mirror: job.Mirror(), MirroredDatabase: job.Args.MirroredDatabase,
		Source: job.Args.Replication.Source.String(), Target: job.Args.Replication.Target.String(), Condition: t.condition(job),
	}
}
