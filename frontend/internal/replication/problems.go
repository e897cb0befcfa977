package replication

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"settee/frontend/internal/web"
	"settee/replicator"
	"settee/replicator/causes"
	"settee/replicator/jobs"
)

const (
	// maxProblems is the most problems in an answer, and inProblem the most jobs that are listed of each.
	maxProblems = 50
	inProblem   = 100
)

// The kinds of problems.
const (
	kindCrashing = "crashing" // the jobs are tried again
	kindFailed   = "failed"   // the jobs have ended
	kindStuck    = "stuck"    // the jobs run, and make no progress
	kindRefused  = "refused"  // the targets of the jobs have refused documents
	kindLate     = "late"     // the jobs are parked, and their sources are asked for changes too seldom
)

// lateCauses are the causes of late questions.
var lateCauses = map[jobs.NoFeed]string{
	jobs.FeedRefused: causes.FeedRefused, jobs.FeedMissing: causes.FeedMissing, jobs.FeedFails: causes.FeedFails,
}

// diagnosis is why a job needs attention. The zero value means that it needs none.
type diagnosis struct {
	kind, endpoint, cause string
	side                  string // source or target, "" if it is not known which one it is
	remedy                causes.Remedy
	since                 time.Time // when it began, zero if that is not known
}

// problem is a diagnosis that several jobs have in common, in _scheduler/problems.
type problem struct {
	Endpoint *string       `json:"endpoint"` // the host and the port, null if the error names none
	Side     string        `json:"side,omitempty"`
	Cause    string        `json:"cause"`
	Kind     string        `json:"kind"`
	Jobs     int           `json:"jobs"`
	Since    *string       `json:"since"` // when the first of them began to fail, null if that is not known
	Remedy   causes.Remedy `json:"remedy,omitempty"`
	Advice   string        `json:"advice,omitempty"`
	First    []problemJob  `json:"first"` // the first of the jobs, none of those that are late

	since time.Time
}

// problemJob names a job of a problem.
type problemJob struct {
	JobID            string  `json:"job_id"`
	ID               string  `json:"id"`
	Database         *string `json:"database"`
	DocID            *string `json:"doc_id"`
	User             *string `json:"user"`
	Mirror           string  `json:"mirror,omitempty"`
	MirroredDatabase string  `json:"mirrored_database,omitempty"`
	Source           string  `json:"source"`
	Target           string  `json:"target"`
}

// Problems answers _scheduler/problems, which CouchDB does not have: the jobs that need attention, grouped by endpoint and
// cause. It looks at the first 1,000 jobs of each kind, and at the first 1,000 watches that nodes run.
func (e *Endpoints) Problems(w http.ResponseWriter, r *http.Request) error {
	var needy []*jobs.Job
	var counts jobs.Counts
	var late []jobs.LateWatch
	var more, moreLate bool
	err := e.Scans.Run(r, func() error {
		ctx, cancel := web.StoreContext(r)
		defer cancel()
		var err error
		if counts, err = e.Jobs.Lists.Counts(ctx); err != nil {
			return err
		}
		for _, of := range []struct {
			order  jobs.Order
			states []replicator.ShownState
		}{{jobs.ByCrash, nil}, {jobs.ByOwner, []replicator.ShownState{replicator.ShownFailed}}, {jobs.ByStuck, nil}, {jobs.ByRefusal, nil}} {
			list, err := e.Jobs.Lists.List(ctx, jobs.Filter{States: of.states}, jobs.ListOptions{Limit: jobs.MaxLimit, Order: of.order})
			if err != nil {
				return err
			}
			needy, more = append(needy, list.Jobs...), more || list.Next != nil
		}
		late, moreLate, err = e.Jobs.Lists.LateWatches(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("listing the replication jobs that need attention: %w", err)
	}
	problems, attention := grouped(needy)
	if more { // the counters know of all that crash, and of all that have failed
		attention = max(attention, int(counts.Jobs[replicator.ShownCrashing]+counts.Jobs[replicator.ShownFailed]))
	}
	for _, p := range lateProblems(late) {
		problems, attention = append(problems, p), attention+p.Jobs
	}
	slices.SortFunc(problems, compareProblems)
	return web.Respond(w, r, http.StatusOK, struct {
		Attention int       `json:"attention"`      // how many jobs need attention
		More      bool      `json:"more,omitempty"` // whether there may be others
		Total     int       `json:"total_rows"`
		Problems  []problem `json:"problems"`
	}{attention, more || moreLate, len(problems), problems[:min(len(problems), maxProblems)]})
}

// lateProblems groups watches by the host and the cause.
func lateProblems(watches []jobs.LateWatch) (problems []problem) {
	for _, watch := range watches {
		host, cause := causes.HostOf(watch.Server), lateCauses[watch.NoFeed]
		at := slices.IndexFunc(problems, func(p problem) bool { return *p.Endpoint == host && p.Cause == cause })
		if at < 0 {
			remedy := causes.RemedyOf(cause)
			at, problems = len(problems), append(problems, problem{
				Endpoint: &host, Side: "source", Cause: cause, Kind: kindLate, Remedy: remedy, Advice: remedy.Advice(),
				First: []problemJob{}, since: watch.Since,
			})
		}
		p := &problems[at]
		p.Jobs += watch.Jobs
		if watch.Since.Before(p.since) {
			p.since = watch.Since
		}
		p.Since = timeText(p.since)
	}
	return problems
}

// grouped groups jobs by their diagnoses, the most jobs in front, and returns how many there are. A job may be in found
// more than once.
func grouped(found []*jobs.Job) (problems []problem, attention int) {
	type key struct{ kind, endpoint, side, cause string }
	groups, seen := map[key]*problem{}, map[string]bool{}
	for _, job := range found {
		its := diagnose(job)
		if its.kind == "" || seen[job.ID] {
			continue
		}
		seen[job.ID] = true
		at := key{its.kind, its.endpoint, its.side, its.cause}
		p := groups[at]
		if p == nil {
			p = &problem{
				Endpoint: orNull(its.endpoint), Side: its.side, Cause: its.cause, Kind: its.kind, Remedy: its.remedy, Advice: its.remedy.Advice(),
				since: its.since,
			}
			groups[at] = p
		}
		p.Jobs++
		if p.since.IsZero() || !its.since.IsZero() && its.since.Before(p.since) {
			p.since = its.since
		}
		if len(p.First) < inProblem {
			p.First = append(p.First, nameOf(job))
		}
	}
	problems = make([]problem, 0, len(groups))
	for _, p := range groups {
		p.Since = timeText(p.since)
		problems = append(problems, *p)
	}
	slices.SortFunc(problems, compareProblems)
	return problems, len(seen)
}

// compareProblems compares problems, of which those with the most jobs are the first.
func compareProblems(a, b problem) int {
	return cmp.Or(
		cmp.Compare(b.Jobs, a.Jobs), compareSince(a.since, b.since), cmp.Compare(a.Kind, b.Kind),
		slices.CompareFunc(a.First, b.First, func(a, b problemJob) int { return cmp.Compare(a.JobID, b.JobID) }))
}

// compareSince compares times, of which those that are not known are the last.
func compareSince(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}

func nameOf(job *jobs.Job) problemJob {
	return problemJob{
		JobID: job.ID, ID: shownID(job), Database: job.Args.Database, DocID: job.Args.DocID, User: job.Args.User,
		Mirror: job.Mirror(), MirroredDatabase: job.Args.MirroredDatabase,
		Source: job.Args.Replication.Source.String(), Target: job.Args.Replication.Target.String(),
	}
}

// diagnose returns why a job needs attention. An error comes before a lack of progress, and that before documents that
// were refused.
func diagnose(job *jobs.Job) diagnosis {
	state, source, target := *job.State, job.Args.Replication.Source.String(), job.Args.Replication.Target.String()
	state.State = job.Condition()
	switch {
	case state.State == replicator.StateFailed || !state.CrashingSince.IsZero():
		its := diagnosis{kind: kindCrashing, since: state.CrashingSince}
		if state.State == replicator.StateFailed {
			its.kind = kindFailed
			if len(state.History) > 0 {
				its.since = state.History[0].Timestamp
			}
		}
		cause := causes.Of(lastError(&state))
		its.endpoint, its.side, its.cause, its.remedy = cause.Endpoint, cause.Side, cause.Text, causes.RemedyOf(cause.Text)
		if its.side == "" {
			its.side = sideOf(cause.URL, source, target)
		}
		return its
	case state.State == replicator.StateRunning && !state.StuckSince.IsZero():
		its := diagnosis{kind: kindStuck, endpoint: causes.HostOf(source), side: "source", since: state.StuckSince}
		if state.Activity != nil {
			its.cause = string(state.Activity.Doing)
			for _, wait := range state.Activity.Waiting {
				its.side, its.endpoint = wait.Endpoint, causes.HostOf(map[string]string{"source": source, "target": target}[wait.Endpoint])
				its.cause = causes.Of(wait.Error).Text
				its.remedy = causes.RemedyOf(its.cause)
				break
			}
		}
		return its
	case !state.State.Terminal() && state.Stats.DocWriteFailures > 0:
		return diagnosis{kind: kindRefused, endpoint: causes.HostOf(target), side: "target", cause: causes.Refuses, remedy: causes.Documents}
	}
	return diagnosis{}
}

// sideOf returns which endpoint of a job a URL is, or "".
func sideOf(named, source, target string) string {
	switch plain := withoutLogin(named); plain {
	case "":
	case withoutLogin(source):
		return "source"
	case withoutLogin(target):
		return "target"
	}
	return ""
}

// withoutLogin returns a URL without a user and a slash at the end.
func withoutLogin(text string) string {
	if u, err := url.Parse(text); err == nil {
		u.User = nil
		text = u.String()
	}
	return strings.TrimSuffix(text, "/")
}

// lastError returns the error of a job, also while it runs again.
func lastError(state *replicator.JobState) string {
	if info := state.Info(); info != nil && info.Error != "" {
		return info.Error
	}
	for _, event := range state.History {
		if event.Type == replicator.EventCrashed {
			return event.Reason
		}
	}
	return ""
}
