package jobs

import (
	"context"
	"slices"

	"settee/fdbjobs"
)

// Everywhere returns all that jobs of some statuses may be listed as.
func Everywhere(statuses ...fdbjobs.Status) []fdbjobs.Part {
	all := append(parts(allStates, labelDocument, labelTransient), fdbjobs.Parts(statuses...)...)
	all = append(all, fdbjobs.Finished.In("", tagFailed)) // of tests, which do not all give a label
	return slices.DeleteFunc(all, func(p fdbjobs.Part) bool { return !slices.Contains(statuses, p.Status) })
}

// ListFrom lists jobs that have not ended.
func (s *Store) ListFrom(ctx context.Context, skip, limit int) ([]*Job, int64, error) {
	list, err := s.List(ctx, ListOptions{Skip: skip, Limit: limit})
	return list.Jobs, list.Total, err
}
