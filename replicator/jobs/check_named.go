package jobs

import (
	"slices"

	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
)

// listed checks that a job is in the index with its names, once all jobs are.
func (k checker) listed(p *check.Page, pair kv.KeyValue) (func() error, error) {
	_, listed := k.jobs.Admin().Rows()
	jobID, err := rows.LastString(listed, pair.Key)
	if err != nil {
		return nil, nil //nolint:nilerr // a fault of the job layer
	}
	all, err := k.names.hasNames(p)
	if err != nil || !all {
		return nil, err
	}
	names := namesListed(pair.Value)
	reads := make([]kv.Future[[]byte], len(names))
	for i, n := range names {
		reads[i] = p.Get(k.names.namedKey(n, jobID))
	}
	return func() error {
		for i, n := range names {
			value, err := reads[i].Await()
			if err != nil {
				return err
			}
			if value == nil {
				p.Wrong(k.names.namedKey(n, jobID), nil, "the job %q is missing in the index of the %s %q", jobID, n.kind, n.text)
			}
		}
		return nil
	}, nil
}

// named checks a row of the index by name: that its job exists and has the name, and that the store has the index.
func (k checker) named(e entry) (func() error, error) {
	n, jobID, ok := parseNamed(e.key)
	if !ok {
		return e.unknown()
	}
	keeps, err := k.names.keepsNames(e)
	if err != nil {
		return nil, err
	}
	_, listed := k.jobs.Admin().Rows()
	read := e.Get(listed.Pack(jobID))
	return func() error {
		value, err := read.Await()
		switch {
		case err != nil:
			return err
		case !keeps:
			e.Stray(e.Key, "the index of the %s %q has the job %q, and the store's level is too low for that index", n.kind, n.text, jobID)
		case !slices.Contains(namesListed(value), n):
			e.Stray(e.Key, "the index of the %s %q has the job %q, which has no such name", n.kind, n.text, jobID)
		}
		return nil
	}, nil
}
