package jobs

import (
	"context"
	"fmt"
	"strings"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// A search in all jobs shows first the jobs that the index finds (named.go): those with a name that begins with the text.
// Then it looks at the other jobs, one after the other. So it finds what a search without the index finds. It does without
// until all jobs are in the index, and a search that has begun without it goes on without it.

// The positions in a search that uses the index. One in the index has a mark, the kind and the name in place of an owner. One
// in the rest has a mark before the owner. No owner begins with a control character.
const (
	indexMark = "\x00"
	restMark  = "\x01"
)

// MaxOwnerSize is the most bytes of the Owner of a position in a list.
const MaxOwnerSize = fdbjobs.MaxNameSize + len(restMark)

// beforeRest is the position of the first job after those in the index.
var beforeRest = fdbjobs.Position{Owner: restMark}

func (n name) position(jobID string) fdbjobs.Position {
	return fdbjobs.Position{Owner: indexMark + n.kind + indexMark + n.text, ID: jobID}
}

// nameAt returns the name of a position in the index. ok is false for other positions.
func nameAt(p fdbjobs.Position) (n name, ok bool) {
	text, ok := strings.CutPrefix(p.Owner, indexMark)
	if !ok {
		return n, false
	}
	n.kind, n.text, ok = strings.Cut(text, indexMark)
	return n, ok
}

// searching returns what a search for a text, in lower case, reads from a position on, one after the other, and where the
// first one begins.
func (s *pages) searching(ctx context.Context, lower string, after fdbjobs.Position) ([]pageRead, fdbjobs.Position, error) {
	_, inIndex := nameAt(after)
	inRest := strings.HasPrefix(after.Owner, restMark)
	if after != (fdbjobs.Position{}) && !inIndex && !inRest {
		return []pageRead{s.page}, after, nil // it has begun without the index
	}
	all, err := kv.TransactValue(ctx, s.db, s.names.hasNames)
	switch {
	case err != nil:
		return nil, after, err
	case !all: // the store may have been restored since a position in the index was returned
		return []pageRead{s.page}, fdbjobs.Position{}, nil
	case inRest:
		return []pageRead{s.unnamed(lower)}, after, nil
	}
	return []pageRead{s.named(lower), s.unnamed(lower)}, after, nil
}

// named returns the pageRead of the jobs with a name that begins with a text, in lower case.
func (s *pages) named(lower string) pageRead {
	return func(tx kv.ReadTransaction, l listing, after fdbjobs.Position, n int) (out page, err error) {
		found, err := s.readNamed(tx, lower, after, n)
		if err != nil {
			return out, err
		}
		ids := make([]string, len(found))
		for i, at := range found {
			ids[i] = at.jobID
		}
		at := func(i int) fdbjobs.Position { return found[i].position(ids[i]) }
		out, err = s.ofIndex(tx, ids, at, func(i int, job *Job) (*Job, error) {
			if !l.has(job) || !found[i].finds(job, lower) {
				return nil, nil
			}
			return s.summed(tx)(job, nil)
		})
		out.more = len(found) == n
		return out, err
	}
}

// namedRow is a row of the index.
type namedRow struct {
	name
	jobID string
}

// finds reports whether a search finds a job by this row. It finds each job by one.
func (r namedRow) finds(job *Job, lower string) bool {
	first, has := job.firstName(lower)
	return has && first == r.name
}

// readNamed reads up to n rows of the index after a position, with names that begin with a text.
func (s *pages) readNamed(tx kv.ReadTransaction, lower string, after fdbjobs.Position, n int) (found []namedRow, err error) {
	last, begun := nameAt(after)
	for _, kind := range nameKinds {
		if begun && kind < last.kind {
			continue
		}
		packed := s.space.Pack("named", kind, lower)
		r := kv.PrefixRange(packed[:len(packed)-1]) // without the end of the text
		if begun && kind == last.kind {
			r.Begin = kv.KeyAfter(s.names.namedKey(last, after.ID))
		}
		pairs, err := tx.GetRange(r, kv.RangeOptions{Limit: n - len(found)}).Slice()
		if err != nil {
			return nil, err
		}
		for _, pair := range pairs {
			var row namedRow
			e, err := s.space.Unpack(pair.Key)
			ok := err == nil && len(e) > 0
			if ok {
				row.name, row.jobID, ok = parseNamed(e[1:])
			}
			if !ok {
				return nil, fmt.Errorf("reading the index of replication jobs by name: %w", tuple.ErrMalformed)
			}
			found = append(found, row)
		}
		if len(found) == n {
			break
		}
	}
	return found, nil
}

// unnamed returns the pageRead of the jobs that named does not find, of all jobs.
func (s *pages) unnamed(lower string) pageRead {
	return func(tx kv.ReadTransaction, l listing, after fdbjobs.Position, n int) (page, error) {
		after.Owner = strings.TrimPrefix(after.Owner, restMark)
		out, err := s.page(tx, l, after, n)
		all, places := out.jobs, out.places
		out.jobs, out.places, out.after.Owner = nil, nil, restMark+out.after.Owner
		for i, job := range all {
			if _, has := job.firstName(lower); has {
				out.passed++
				continue
			}
			places[i].Owner = restMark + places[i].Owner
			out.jobs, out.places = append(out.jobs, job), append(out.places, places[i])
		}
		return out, err
	}
}
