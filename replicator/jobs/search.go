package jobs

import (
	"fmt"
	"strings"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// A search in all jobs shows first the jobs that the index finds (named.go): those with a name that begins with the text.
// Then it looks at the other jobs, one after the other. So it finds what a search without the index finds.

// The positions in a search that uses the index. One in the index has a mark, the kind and the name in place of an owner. One
// in the rest has a mark before the owner. No owner begins with a control character.
const (
	indexMark = "\x00"
	restMark  = "\x01"
)

// MaxOwnerSize is the most bytes of the Owner of a position in a list: an owner, and a mark or the letter of a state.
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

// isRest reports whether a position is in the rest.
func isRest(p fdbjobs.Position) bool { return strings.HasPrefix(p.Owner, restMark) }

// named returns the pageRead of the jobs with a name that begins with a text, in lower case.
func (s *pages) named(lower string) pageRead {
	return func(tx kv.ReadTransaction, l listing, after fdbjobs.Position, n int) (out page, err error) {
		found, err := s.readNamed(tx, lower, after, n)
		if err != nil {
			return out, err
		}
		places := make([]indexRow, len(found))
		for i, row := range found {
			places[i] = indexRow{row.jobID, row.position(row.jobID)}
		}
		return s.ofIndex(tx, places, n, func(i int, job *Job) (*Job, error) {
			if !l.has(job) || !found[i].finds(job, lower) {
				return nil, nil
			}
			return s.summed(tx, job)
		})
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
		r := fdbjobs.EntryRange{Prefix: tuple.Tuple{kind}, Text: lower, Limit: n - len(found)}
		if begun && kind == last.kind {
			r.After = tuple.Tuple{last.text, after.ID}
		}
		all, err := s.jobs.Entries(tx, indexNamed, r).Await()
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			row := namedRow{name{kind: kind}, e.ID}
			if len(e.Key) != 2 || !rows.As(e.Key[1], &row.text) {
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
