package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// pages reads the pages of lists, in each order that a list may have: by owner here, by time and by mirror below, and by name in
// search.go. [Lists] uses it.
type pages struct {
	*core
	mirrors *mirrorRows
}

// page is a part of a list.
type page struct {
	jobs   []*Job
	places []fdbjobs.Position // of the jobs
	passed int                // rows of an index that led to no job of the list
	after  fdbjobs.Position   // where the next page begins
	more   bool               // whether there may be one
}

// pageRead reads up to n jobs of a list from a position on.
type pageRead func(tx kv.ReadTransaction, l listing, after fdbjobs.Position, n int) (page, error)

func (s *pages) readPage(ctx context.Context, read pageRead, l listing, after fdbjobs.Position, n int) (page, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (page, error) {
		return read(tx.Snapshot(), l, after, n)
	})
}

// page is the pageRead of a list by owner. It skips all jobs of a deleted database in one step.
func (s *pages) page(tx kv.ReadTransaction, l listing, after fdbjobs.Position, n int) (out page, err error) {
	chosen, err := s.chosen(tx, l, nil)
	if err != nil {
		return out, err
	}
	batch, err := s.jobs.List(tx, chosen, after, n)
	if err != nil {
		return out, err
	}
	out.more = len(batch) == n
	var of ownership
	for i, raw := range batch {
		if i == 0 || raw.Owner != batch[i-1].Owner {
			if of, err = s.ownership(tx, raw.Owner); err != nil {
				return out, err
			}
		}
		if !of.exists && l.owner != "" {
			return page{}, docstore.ErrDatabaseNotFound
		}
		if !of.exists {
			out.after, out.more = fdbjobs.Position{Owner: raw.Owner + "\x00"}, true
			return out, nil
		}
		job, err := s.parseListed(raw, of)
		if err == nil {
			job, err = s.summed(tx, job)
		}
		if err != nil {
			return out, err
		}
		out.after = fdbjobs.Position{Owner: raw.Owner, ID: raw.ID}
		out.jobs, out.places = append(out.jobs, job), append(out.places, out.after)
	}
	return out, nil
}

// ownership is what the jobs of an owner in a list have in common.
type ownership struct {
	exists bool // see core.ownerExists
	pause  *replicator.Pause
}

func (s *pages) ownership(tx kv.ReadTransaction, owner string) (of ownership, err error) {
	if of.exists, err = s.ownerExists(tx, owner); err != nil || !of.exists {
		return of, err
	}
	paused, err := s.shares.Paused(tx, owner)
	of.pause = paused[owner]
	return of, err
}

// parseListed parses a job of a list, whose args are a summary.
func (s *pages) parseListed(raw *fdbjobs.Job, of ownership) (*Job, error) {
	listed := *raw
	if listed.Args = raw.Listed; listed.Args == nil {
		listed.Args = json.RawMessage("{}")
	}
	job, err := s.parse(&listed)
	if err == nil {
		job.setPause(of.pause)
	}
	return job, err
}

// beginList returns the total of a list, and the position after which the page begins. If there are
// more than deletedAtOnce deleted databases, it counts the jobs of the rest.
func (s *pages) beginList(tx kv.ReadTransaction, opts ListOptions, l listing) (total int64, after fdbjobs.Position, err error) {
	var deleted []deletedDatabase
	if l.owner == "" {
		if deleted, err = s.deletedDatabases(tx, ""); err != nil {
			return 0, after, err
		}
	}
	counted := l
	counted.states = l.counted
	chosen, err := s.chosen(tx, counted, deleted)
	if err != nil {
		return 0, after, err
	}
	if total, err = countIn(tx, s.jobs, chosen); err != nil || opts.Skip == 0 {
		return total, opts.After, err
	}
	if chosen, err = s.chosen(tx, l, deleted); err != nil {
		return 0, after, err
	}
	after, err = s.jobs.Skip(tx, chosen, opts.After, opts.Skip)
	return total, after, err
}

// chosen returns which jobs a list by owner has. It has none of the deleted databases that are given.
func (s *pages) chosen(tx kv.ReadTransaction, l listing, deleted []deletedDatabase) (fdbjobs.Selection, error) {
	if len(l.owner) > fdbjobs.MaxNameSize {
		return fdbjobs.Selection{}, nil // no job has such an owner, and no key has room for it
	}
	if l.owner != "" {
		paused, err := s.shares.Paused(tx, l.owner)
		return fdbjobs.Selection{Owner: &l.owner, Parts: partsOf(l.states, paused[l.owner] != nil, l.labels)}, err
	}
	paused, err := s.shares.Paused(tx)
	instead := map[string][]fdbjobs.Part{}
	for owner := range paused {
		instead[owner] = partsOf(l.states, true, l.labels)
	}
	for _, d := range deleted {
		instead[d.owner] = nil
	}
	return fdbjobs.Selection{Parts: partsOf(l.states, false, l.labels), Instead: instead}, err
}

// countIn returns the number of selected jobs of a queue.
func countIn(tx kv.ReadTransaction, queue *fdbjobs.Queue, selected fdbjobs.Selection) (total int64, err error) {
	jobs, _, err := queue.Counts(tx, selected)
	for _, n := range jobs {
		total += n
	}
	return total, err
}

// single returns a job that was read alone, with its pause and its summary.
func (s *pages) single(tx kv.ReadTransaction, job *Job, err error) (*Job, error) {
	if job, err = s.opened(tx, job, err); err != nil {
		return job, err
	}
	paused, err := s.shares.Paused(tx, job.owner())
	if err != nil {
		return job, err
	}
	job.setPause(paused[job.owner()])
	return s.summed(tx, job)
}

// opened replaces a job whose definition cannot be opened by the job as lists have it.
func (s *pages) opened(tx kv.ReadTransaction, job *Job, err error) (*Job, error) {
	if !errors.Is(err, fdbjobs.ErrSealed) {
		return job, err
	}
	raw, err := s.jobs.Read(tx, job.ID).Await()
	if err != nil {
		return nil, err
	}
	if job, err = s.parseListed(raw, ownership{exists: true}); err == nil {
		job.Sealed = true
	}
	return job, err
}

// summed sums up the databases of a job if it is a mirror. Its pause is known.
func (s *pages) summed(tx kv.ReadTransaction, job *Job) (*Job, error) {
	if !job.IsMirror() {
		return job, nil
	}
	if job.Status == fdbjobs.Finished && job.State.Mirror != nil && job.State.Mirror.Summary != nil {
		job.Summary = job.State.Mirror.Summary // its databases go
		return job, nil
	}
	var err error
	job.Summary, err = s.mirrors.shownSummary(tx, job)
	return job, err
}

// ofServers is the pageRead of the continuous mirrors, by their sources' servers. A position has the server in place of an owner.
func (s *pages) ofServers(tx kv.ReadTransaction, _ listing, after fdbjobs.Position, n int) (out page, err error) {
	r := fdbjobs.EntryRange{Limit: n}
	if after != (fdbjobs.Position{}) {
		r.After = tuple.Tuple{after.Owner, after.ID}
	}
	found, err := s.jobs.Entries(tx, indexMirrors, r).Await()
	if err != nil {
		return out, err
	}
	places := make([]indexRow, len(found))
	for i, e := range found {
		if places[i] = (indexRow{e.ID, fdbjobs.Position{ID: e.ID}}); !rows.Store(e.Key, &places[i].at.Owner) {
			return out, fmt.Errorf("reading the mirrors of a server: %w", tuple.ErrMalformed)
		}
	}
	return s.ofIndex(tx, places, n, func(_ int, job *Job) (*Job, error) { return s.summed(tx, job) })
}

// marked returns the pageRead of the jobs with a mark, by time. A position has the time in place of an owner.
func (s *pages) marked(mark replicator.MarkType) pageRead {
	return func(tx kv.ReadTransaction, _ listing, after fdbjobs.Position, n int) (out page, err error) {
		r := fdbjobs.EntryRange{Prefix: tuple.Tuple{string(mark)}, Limit: n, Reverse: mark == replicator.MarkDocumentsRefused}
		if after != (fdbjobs.Position{}) {
			key, err := timedKey(after)
			switch {
			case err != nil:
				return out, err
			case r.Reverse:
				r.Until = key
			default:
				r.After = key
			}
		}
		found, err := s.timed(tx, indexMarks, r).Await()
		if err != nil {
			return out, err
		}
		places := make([]indexRow, len(found))
		for i, j := range found {
			places[i] = indexRow{j.id, timedPosition(j.at, j.id)}
		}
		return s.ofIndex(tx, places, n, whole)
	}
}

// whole shows each job of an index as it is.
func whole(_ int, job *Job) (*Job, error) { return job, nil }

// timedPosition returns a position in an index by time: it has the time in place of an owner.
func timedPosition(at int64, id string) fdbjobs.Position {
	return fdbjobs.Position{Owner: strconv.FormatInt(at, 10), ID: id}
}

// timedKey returns the end of the key of a timedPosition.
func timedKey(at fdbjobs.Position) (tuple.Tuple, error) {
	seconds, err := strconv.ParseInt(at.Owner, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("listing replication jobs: the start key has no time: %w", err)
	}
	return tuple.Tuple{seconds, at.ID}, nil
}

// indexRow is a row of an index: the id of its job, and its position in the list.
type indexRow struct {
	id string
	at fdbjobs.Position
}

// ofIndex returns a page with the jobs of rows of an index. There may be more if it has n rows. show is called with each job that
// exists, and returns what the page shows of it, or nil if the row is not true of the job.
func (s *pages) ofIndex(tx kv.ReadTransaction, places []indexRow, n int, show func(i int, job *Job) (*Job, error)) (out page, err error) {
	found, err := kv.Each(places, func(row indexRow) kv.Future[*fdbjobs.Job] { return s.jobs.Read(tx, row.id) })
	if err != nil {
		return out, err
	}
	out.more = len(places) == n
	owners := map[string]ownership{}
	for i, raw := range found {
		out.after = places[i].at
		job, err := s.indexedJob(tx, raw, owners)
		if err == nil && job != nil {
			job, err = show(i, job)
		}
		if err != nil {
			return out, err
		}
		if job == nil {
			out.passed++
			continue
		}
		out.jobs, out.places = append(out.jobs, job), append(out.places, out.after)
	}
	return out, nil
}

// indexedJob parses a job of an index. It returns nil if the job or its database does not exist.
func (s *pages) indexedJob(tx kv.ReadTransaction, raw *fdbjobs.Job, owners map[string]ownership) (*Job, error) {
	if raw == nil {
		return nil, nil
	}
	of, known := owners[raw.Owner]
	if !known {
		var err error
		if of, err = s.ownership(tx, raw.Owner); err != nil {
			return nil, err
		}
		owners[raw.Owner] = of
	}
	if !of.exists {
		return nil, nil
	}
	return s.parseListed(raw, of)
}

// mirrored returns the pageRead of the jobs of a mirror, by database, or by since when their runs fail. A position has the
// number of that time instead of an owner, and the database instead of an id.
func (s *pages) mirrored(mirror string, order Order) pageRead {
	return func(tx kv.ReadTransaction, _ listing, after fdbjobs.Position, n int) (out page, err error) {
		var read kv.Future[[]mirroredEntry]
		if order == ByCrash {
			r := fdbjobs.EntryRange{Limit: n}
			if after != (fdbjobs.Position{}) {
				if r.After, err = timedKey(after); err != nil {
					return out, err
				}
				r.After = append(r.After, replicator.ChildJobID(mirror, after.ID))
			}
			read = s.mirrors.mirrorTimes(tx, mirror, timeFailing, r)
		} else {
			read = s.mirrors.mirrored(tx, mirror, after.ID, n)
		}
		found, err := read.Await()
		if err != nil {
			return out, err
		}
		places := make([]indexRow, len(found))
		for i, e := range found {
			places[i] = indexRow{e.id, timedPosition(e.at, e.database)}
		}
		return s.ofIndex(tx, places, n, whole)
	}
}

// ListOptions select a page of the jobs of a [Filter], and do not change their Total. The zero value selects nothing.
type ListOptions struct {
	// After is where the page starts: the Next of the page before, the zero value for the first.
	After fdbjobs.Position
	// Skip is the number of jobs to skip, which is better done with After if there are many. Limit
	// is the most jobs on the page, at most MaxLimit.
	Skip, Limit int
	// Query, if not empty, selects the jobs with this text, in lower or upper case, in their source,
	// target, job id, replication id or document id. A page looks at maxScanned jobs at most, so it
	// may have a Next and fewer jobs than Limit. In lists of all owners, the jobs come first with a host or
	// a database whose name begins with the text, and the page with the last of these ends. If Query is the job id or replication id of a job of
	// the list, the page has that job alone, and no Next.
	Query string
	// Order is the order of the list. Only those by owner and by state have a Total and can Skip. In the others
	// each page looks at maxScanned jobs at most, and After and Next have a time instead of an owner. A list by state has no Query.
	Order Order
}

// Order is an order of a list of jobs.
type Order string

// listing describes a list of jobs.
type listing struct {
	owner   string // empty: any
	states  States
	labels  []string
	counted States // for the total
}

// has reports whether a job belongs to the list.
func (l listing) has(job *Job) bool {
	return (l.owner == "" || l.owner == job.owner()) && slices.Contains(l.labels, job.label()) && l.states.have(job.states())
}

// The orders of lists. Those by time are called as the mark that their jobs have.
const (
	// ByOwner is by owner and job id.
	ByOwner Order = ""
	// ByState has the jobs that may need somebody first: those that have failed, are crashing, wait, run, and so on. The jobs of a state
	// are by owner and job id.
	ByState Order = "state"
	// ByCrash has the jobs that are failing (see [replicator.JobState.FollowErrors]), also while they run again: the one whose crashes
	// began first is the first.
	ByCrash = Order(replicator.MarkFailing)
	// ByStuck has the running jobs that make no progress although they have something to do: the one
	// that has made none for longest is the first.
	ByStuck = Order(replicator.MarkStuck)
	// ByLag has the continuous jobs whose targets may have lacked changes for long: the one that is furthest behind is the
	// first.
	ByLag = Order(replicator.MarkBehind)
	// ByRefusal has the jobs that have not ended and whose target has refused revisions: the one with
	// the latest refusal is the first.
	ByRefusal = Order(replicator.MarkDocumentsRefused)
)

// Counted reports whether a list in this order has a Total and can Skip.
func (o Order) Counted() bool { return o == ByOwner || o == ByState }
