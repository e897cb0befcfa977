package jobs

import (
	"context"
	"slices"
	"strings"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// Everywhere returns all parts that may list jobs of some statuses.
func Everywhere(statuses ...fdbjobs.Status) []fdbjobs.Part {
	all := parts(allStates, labelDocument, labelTransient, "") // tests do not always set a label
	all = append(all, fdbjobs.Finished.In("", ""))
	return slices.DeleteFunc(all, func(p fdbjobs.Part) bool { return !slices.Contains(statuses, p.Status) })
}

// ListFrom lists jobs that have not ended.
func (s *Store) ListFrom(ctx context.Context, skip, limit int) ([]*Job, int64, error) {
	list, err := s.List(ctx, Filter{}, ListOptions{Skip: skip, Limit: limit})
	return list.Jobs, list.Total, err
}

// LeastMaxAge is how long every transient job is kept after its end.
const LeastMaxAge = leastMaxAge

// Entitlements divides running jobs among their owners.
var Entitlements = entitlements

// CountFailures writes the number of a job's failures in the form of earlier versions.
func (s *Store) CountFailures(ctx context.Context, jobID string, n int64) error {
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set(s.failureKey(jobID), tuple.Tuple{n, "token"}.Pack())
		return nil
	})
}

// SkipAtOnce is the most jobs that one transaction skips.
const SkipAtOnce = skipAtOnce

// IndexSome is [Store.IndexNames] with another number of jobs.
func (s *Store) IndexSome(tx kv.Transaction, from []byte, limit int) ([]byte, error) {
	return s.indexNames(tx, from, limit)
}

// Matches reports whether a search finds a job of a list.
func Matches(job *Job, query string) bool { return matches(job, strings.ToLower(query)) }
