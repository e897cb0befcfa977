package jobs

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// Everywhere returns all parts that may list jobs of some statuses.
func Everywhere(statuses ...fdbjobs.Status) []fdbjobs.Part {
	all := partsOf(States{}, false, []string{labelDocument, labelTransient, ""}) // tests do not always set a label
	all = append(all, fdbjobs.Part{Status: fdbjobs.Finished})
	return slices.DeleteFunc(all, func(p fdbjobs.Part) bool { return !slices.Contains(statuses, p.Status) })
}

// CountIn returns the number of jobs of a queue in some parts.
func CountIn(tx kv.ReadTransaction, queue *fdbjobs.Queue, parts []fdbjobs.Part) (int64, error) {
	return countIn(tx, queue, fdbjobs.Selection{Parts: parts})
}

// ListFrom lists jobs that have not ended.
func (s *Store) ListFrom(ctx context.Context, skip, limit int) ([]*Job, int64, error) {
	list, err := s.Lists.List(ctx, Filter{}, ListOptions{Skip: skip, Limit: limit})
	return list.Jobs, list.Total, err
}

// LeastMaxAge is how long every transient job is kept after its end.
const LeastMaxAge = leastMaxAge

// Limits and errors that tests name.
const (
	MaxDocumentIDSize = maxDocumentIDSize
	MaxDocumentSize   = maxDocumentSize
	MaxRuns           = maxRuns
	MaxScanned        = maxScanned
)

// ErrCannotPark is returned for a source that is too large.
var ErrCannotPark = errCannotPark

// LateProblem returns what the watch of a server needs a person for.
var LateProblem = lateProblem

// NextRun returns when a job runs next that waits for a time.
func (j *Job) NextRun() time.Time { return j.nextRun() }

// SkipAtOnce is the most jobs that one transaction skips.
const SkipAtOnce = skipAtOnce

// Matches reports whether a search finds a job of a list.
func Matches(job *Job, query string) bool { return matches(job, strings.ToLower(query)) }

// MirrorSummary is [MirrorRun.Summary] without a run.
func (s *Store) MirrorSummary(ctx context.Context, mirror string) (replicator.MirrorSummary, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (replicator.MirrorSummary, error) {
		return s.Lists.mirrors.mirrorSummary(tx.Snapshot(), mirror)
	})
}

// Listed returns what lists show of a job.
func Listed(job *Job) (json.RawMessage, error) { return job.summary() }

// CheckGone is check, and reports whether the run takes its database for gone.
func (r *Run) CheckGone(tx kv.ReadTransaction) (gone bool, err error) {
	err = r.check(tx)
	return r.gone, err
}
