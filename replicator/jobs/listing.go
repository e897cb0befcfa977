package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/replicator"
)

// MaxLimit is the most jobs on a page of [Store.List] and [Store.ListDocuments].
const MaxLimit = 1_000

// skipAtOnce is the most jobs that one transaction skips.
const skipAtOnce = 1_000

// listBatch is the most jobs that one transaction reads. Each state may have 100,000 bytes.
const listBatch = 50

// Get returns the job with that job id or replication id, including jobs that have ended. It
// returns ErrNotFound if there is none.
func (s *Store) Get(ctx context.Context, id string) (*Job, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		job, err := s.resolve(tx.Snapshot(), id)
		return s.summed(tx.Snapshot())(s.withPause(tx.Snapshot(), job, err))
	})
}

// Filter selects the jobs of [Store.List]. The zero value selects all that have not ended.
type Filter struct {
	// States are the states of the jobs; nil means all jobs that have not ended.
	States []replicator.State
	// Database, if not empty, is the name of the replicator database whose jobs are listed.
	Database string
	// Transient selects the jobs of requests, and User, if not nil, those of one user. The name of
	// the anonymous user is empty.
	Transient bool
	User      *string
	// Mirror, if not empty, is the job id of a mirror whose jobs are listed, by the names of their databases. Their list has no
	// Total and cannot Skip. With the order ByCrash it has the databases whose runs fail.
	Mirror string
}

// ListOptions select a page of a list. The zero value selects nothing.
type ListOptions struct {
	// After is where the page starts: the Next of the page before, the zero value for the first.
	After fdbjobs.Position
	// Skip is the number of jobs to skip, which is better done with After if there are many. Limit
	// is the most jobs on the page, at most MaxLimit.
	Skip, Limit int
	// Query, if not empty, selects the jobs with this text, in lower or upper case, in their source,
	// target, job id, replication id or document id. A page looks at MaxScanned jobs at most, so it
	// may have a Next and fewer jobs than Limit. In lists of all owners, the jobs come first with a host or
	// a database whose name begins with the text, if the store has an index of them, and the page with
	// the last of these ends. If Query is the job id or replication id of a job of
	// the list, the page has that job alone, and no Next.
	Query string
	// Parked, if not nil, selects the jobs that are parked, or those that are not: see [Job.Parked].
	Parked *bool
	// Order is the order of the list. Only the one by owner has a Total and can Skip. In the others
	// each page looks at MaxScanned jobs at most, and After and Next have a time instead of an owner.
	Order Order
}

// MaxScanned is the most jobs that one page looks at.
const MaxScanned = 2_000

// Order is an order of a list of jobs.
type Order string

// The orders of lists.
const (
	// ByOwner is by owner and job id.
	ByOwner Order = ""
	// ByCrash has the jobs that have crashed and not recovered since, also while they run again: the
	// one whose crashes began first is the first.
	ByCrash Order = "since"
	// ByStuck has the running jobs that make no progress although they have something to do: the one
	// that has made none for longest is the first.
	ByStuck Order = "stuck"
	// ByLag has the continuous jobs whose targets may have lacked changes for long: the one that is furthest behind is the
	// first.
	ByLag Order = "behind"
	// ByRefusal has the jobs that have not ended and whose target has refused revisions: the one with
	// the latest refusal is the first.
	ByRefusal Order = "refused"
)

// List is a page of a list of jobs. Their definitions have no credentials and no document ids,
// selectors and parameters, which may be large.
type List struct {
	Jobs []*Job
	// Total is the number of jobs in the whole list.
	Total int64
	// Next is where the next page starts, nil if this is the last one.
	Next *fdbjobs.Position
	// Scanned is the number of jobs that the page looked at.
	Scanned int
}

// List returns jobs by owner and job id. A long list is read in several transactions, each of which
// sees a later state. It returns docstore.ErrDatabaseNotFound if there is no such database. Total is
// the number of jobs that the filter and Parked select, whatever the Query.
func (s *Store) List(ctx context.Context, f Filter, opts ListOptions) (List, error) {
	l, err := s.filtered(ctx, f)
	if err != nil {
		return List{}, err
	}
	l.parts = parkedParts(l.parts, opts.Parked)
	l.counted = l.parts
	l.mirror = f.Mirror
	return s.list(ctx, opts, l)
}

// filtered returns the list that a filter describes.
func (s *Store) filtered(ctx context.Context, f Filter) (l listing, err error) {
	states, among := f.States, labels
	if states == nil {
		states = liveStates
	}
	switch {
	case f.Database != "":
		if l.owner, err = s.currentOwner(ctx, f.Database); err != nil {
			return l, err
		}
	case f.User != nil:
		if l.owner = userPrefix + *f.User; len(l.owner) > fdbjobs.MaxNameSize {
			states = nil // no job has such an owner
		}
	case f.Transient:
		among = postedLabels
	}
	l.parts = parts(states, among...)
	return l, nil
}

// currentOwner returns the owner that is a replicator database.
func (s *Store) currentOwner(ctx context.Context, database string) (string, error) {
	db, err := s.docs.Database(ctx, database)
	if err != nil {
		return "", err
	}
	return databaseOwner(db.Name(), db.Instance()), nil
}

// ListDocuments returns the jobs of documents in the given states, nil for all. They are those of
// one replicator database, by document id, or those of all databases if database is empty, by
// database and document id. It returns docstore.ErrDatabaseNotFound if there is no such database.
func (s *Store) ListDocuments(ctx context.Context, database string, states []replicator.State, opts ListOptions) (List, error) {
	if states == nil {
		states = allStates
	}
	l := listing{parts: parkedParts(parts(states, labelDocument), opts.Parked), counted: parts(allStates, labelDocument)}
	if database != "" {
		var err error
		if l.owner, err = s.currentOwner(ctx, database); err != nil {
			return List{}, err
		}
	}
	return s.list(ctx, opts, l)
}

// Document returns the job of a document of a replicator database. It returns
// docstore.ErrDatabaseNotFound or ErrNotFound.
func (s *Store) Document(ctx context.Context, database, id string) (*Job, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		db, err := s.docs.DatabaseIn(tx.Snapshot(), database)
		if err != nil {
			return nil, err
		}
		jobID := replicator.PersistentJobID(db.Instance(), id)
		if len(jobID) > fdbjobs.MaxNameSize {
			return nil, ErrNotFound
		}
		job, err := s.read(tx.Snapshot(), jobID)
		return s.summed(tx.Snapshot())(s.withPause(tx.Snapshot(), job, err))
	})
}

// Running yields the running jobs of all nodes, by owner and job id, in the form of a [List].
func (s *Store) Running(ctx context.Context) iter.Seq2[*Job, error] {
	l := listing{parts: parts([]replicator.State{replicator.StateRunning}, labels...)}
	return func(yield func(*Job, error) bool) {
		for after, more := (fdbjobs.Position{}), true; more; {
			page, err := s.readPage(ctx, s.page, l, after, listBatch)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, job := range page.jobs {
				if !yield(job, nil) {
					return
				}
			}
			after, more = page.after, page.more
		}
	}
}

// Counts is what [Store.Counts] counts.
type Counts struct {
	// Jobs is the number of jobs in each state.
	Jobs map[replicator.State]int64
	// Parked is the number of pending jobs that are parked: see [Job.Parked].
	Parked int64
	// Paused is the number of pending jobs whose documents are paused: see [Job.DocumentPaused].
	Paused int64
	// Scheduled is the number of pending jobs of periodic replications that wait for their next time.
	Scheduled int64
	// Databases and Users are the numbers of replicator databases and of users that have jobs.
	Databases, Users int64
}

// Counts counts the jobs, from counters. Jobs of deleted databases count until upkeep has removed
// them.
func (s *Store) Counts(ctx context.Context) (Counts, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (Counts, error) {
		counted, owners, err := s.jobs.Index().Counts(tx.Snapshot(), fdbjobs.Pending, fdbjobs.Running, fdbjobs.Finished)
		if err != nil {
			return Counts{}, err
		}
		counts := Counts{
			Jobs:      make(map[replicator.State]int64, len(allStates)),
			Databases: owners[labelDocument], Users: owners[labelTransient],
		}
		for _, state := range allStates {
			for _, p := range parts([]replicator.State{state}, labels...) {
				counts.Jobs[state] += counted[p]
			}
		}
		for _, label := range labels {
			counts.Parked += counted[fdbjobs.Pending.In(label, tagParked)]
			counts.Paused += counted[fdbjobs.Pending.In(label, tagPaused)]
			counts.Scheduled += counted[fdbjobs.Pending.In(label, tagWaiting)]
		}
		return counts, nil
	})
}

// Waits is what [Store.Waits] reads.
type Waits struct {
	// Due is the time for which the due job that waits longest is scheduled ([fdbjobs.Index.OldestDue]). It is zero if
	// no job is due.
	Due time.Time
	// Crashing is when the crashes of the job began that has crashed for the longest time. It is zero if no job has
	// crashed since it last recovered.
	Crashing time.Time
	// Stuck is since when the running job makes no progress that has made none for the longest time. It is zero if all that
	// have something to do make progress.
	Stuck time.Time
	// Behind is since when a target may lack changes of a continuous job, of the job that is furthest behind. It is zero if
	// none is behind for long.
	Behind time.Time
	// LongCrashing is the number of jobs that have crashed since before the time that Waits was asked for, and StuckJobs the
	// number of those that make no progress. Neither is more than MaxCounted.
	LongCrashing, StuckJobs int
}

// MaxCounted is the largest number of jobs that [Store.Waits] counts. They are rows of an index.
const MaxCounted = 1_000

// Waits reads since when jobs wait: for a node, for a run without a crash, and for progress. Jobs that have crashed since
// before the time crashed are counted.
func (s *Store) Waits(ctx context.Context, crashed time.Time) (w Waits, err error) {
	if w.Due, err = s.OldestDue(ctx); err != nil {
		return Waits{}, err
	}
	for order, since := range map[Order]func(*replicator.JobState){
		ByCrash: func(s *replicator.JobState) { w.Crashing = s.CrashingSince },
		ByStuck: func(s *replicator.JobState) { w.Stuck = s.StuckSince },
		ByLag:   func(s *replicator.JobState) { w.Behind = s.BehindSince },
	} {
		longest, err := s.List(ctx, Filter{}, ListOptions{Limit: 1, Order: order})
		if err != nil {
			return Waits{}, err
		}
		for _, job := range longest.Jobs {
			since(job.State)
		}
	}
	if !w.Crashing.IsZero() {
		w.LongCrashing, err = s.countTroubles(ctx, "crashing", crashed)
	}
	if !w.Stuck.IsZero() && err == nil {
		w.StuckJobs, err = s.countTroubles(ctx, "stuck", time.Now())
	}
	return w, err
}

// OldestDue reads the time for which the due job that waits longest is scheduled ([fdbjobs.Index.OldestDue]). It is zero if
// no job is due.
func (s *Store) OldestDue(ctx context.Context) (time.Time, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (time.Time, error) {
		return s.jobs.Index().OldestDue(tx.Snapshot())
	})
}

// listing describes a list of jobs.
type listing struct {
	owner   string // empty: any
	parts   []fdbjobs.Part
	counted []fdbjobs.Part // for the total
	mirror  string         // empty: any job
}

// has reports whether a job belongs to the list.
func (l listing) has(job *Job) bool {
	its := part(job.label(), job.Condition())
	if !job.Parked().IsZero() {
		its.Tag = tagParked
	}
	return (l.owner == "" || l.owner == job.owner()) && slices.Contains(l.parts, its)
}

// matches reports whether a job has a text, in lower case, in its source, target or ids, or a name that begins with it.
func matches(job *Job, lower string) bool {
	r := job.Args.Replication
	for _, text := range []string{r.Source.String(), r.Target.String(), job.ID, job.ReplicationID(), deref(job.Args.DocID)} {
		if strings.Contains(strings.ToLower(text), lower) {
			return true
		}
	}
	_, named := job.firstName(lower) // without the percent-encoding of the URL
	return named
}

func (s *Store) list(ctx context.Context, opts ListOptions, l listing) (List, error) {
	if opts.Skip < 0 || opts.Limit < 0 || opts.Limit > MaxLimit ||
		len(opts.After.Owner) > MaxOwnerSize || len(opts.After.ID) > fdbjobs.MaxNameSize {
		return List{}, fmt.Errorf("listing replication jobs: skip %d, limit %d or a start key of %d and %d bytes are out of range",
			opts.Skip, opts.Limit, len(opts.After.Owner), len(opts.After.ID))
	}
	var out List
	after, reads, indexed := opts.After, []pageRead{s.page}, opts.Order != ByOwner || l.mirror != ""
	switch {
	case l.mirror != "":
		reads = []pageRead{s.mirrored(l.mirror, opts.Order)}
	case opts.Order != ByOwner:
		reads = []pageRead{s.troubled(opts.Order)}
	}
	for begun, skip := indexed, opts.Skip; !begun; skip -= skipAtOnce {
		step := ListOptions{After: after, Skip: min(skip, skipAtOnce)}
		err := s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
			out.Total, after, err = s.beginList(tx.Snapshot(), step, l)
			return err
		})
		if err != nil {
			return List{}, err
		}
		begun = skip <= skipAtOnce || after == step.After
	}
	if opts.Query != "" && !indexed && opts.After == (fdbjobs.Position{}) && opts.Limit > 0 {
		if job, err := s.Get(ctx, opts.Query); err == nil && l.has(job) {
			out.Jobs, out.Scanned = []*Job{job}, 1
			return out, nil
		} else if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, fdbjobs.ErrSealed) {
			return List{}, err
		}
	}
	lower, more := strings.ToLower(opts.Query), true
	if opts.Query != "" && !indexed && l.owner == "" {
		var err error
		if reads, after, err = s.searching(ctx, lower, after); err != nil {
			return List{}, err
		}
	}
	for more && len(out.Jobs) < opts.Limit && out.Scanned < MaxScanned {
		n := listBatch
		if opts.Query == "" && !indexed {
			n = min(n, opts.Limit-len(out.Jobs))
		}
		page, err := s.readPage(ctx, reads[0], l, after, n)
		if err != nil {
			return List{}, err
		}
		after, more = page.after, page.more
		out.Scanned += page.passed
		for i, job := range page.jobs {
			out.Scanned++
			if indexed && !l.has(job) || opts.Query != "" && !matches(job, lower) {
				continue
			}
			if out.Jobs = append(out.Jobs, job); len(out.Jobs) == opts.Limit && i+1 < len(page.jobs) {
				after, more = page.places[i], true
				break
			}
		}
		if !more && len(reads) > 1 {
			after, more, reads = beforeRest, true, reads[1:]
			if len(out.Jobs) > 0 {
				break
			}
		}
	}
	if more && opts.Limit > 0 {
		out.Next = &after
	}
	return out, nil
}

// beginList returns the total of a list, and the position after which the page begins. If there are
// more than deletedAtOnce deleted databases, it counts the jobs of the rest.
func (s *Store) beginList(tx kv.ReadTransaction, opts ListOptions, l listing) (total int64, after fdbjobs.Position, err error) {
	after = opts.After
	index := s.jobs.Index()
	if l.owner != "" {
		index = index.Of(l.owner)
		if total, err = index.Count(tx, l.counted...); err != nil {
			return 0, after, err
		}
		after, err = index.Skip(tx, after, opts.Skip, nil, l.parts...)
		return total, after, err
	}
	deleted, err := s.deletedDatabases(tx, "")
	if err != nil {
		return 0, after, err
	}
	if total, err = index.Count(tx, l.counted...); err != nil {
		return 0, after, err
	}
	without := make([]string, len(deleted))
	for i, d := range deleted {
		n, err := index.Of(d.owner).Count(tx, l.counted...)
		if err != nil {
			return 0, after, err
		}
		total, without[i] = total-n, d.owner
	}
	after, err = index.Skip(tx, after, opts.Skip, without, l.parts...)
	return total, after, err
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

func (s *Store) readPage(ctx context.Context, read pageRead, l listing, after fdbjobs.Position, n int) (page, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (page, error) {
		return read(tx.Snapshot(), l, after, n)
	})
}

// page is the pageRead of a list by owner. It skips all jobs of a deleted database in one step.
func (s *Store) page(tx kv.ReadTransaction, l listing, after fdbjobs.Position, n int) (out page, err error) {
	index := s.jobs.Index()
	if l.owner != "" {
		index = index.Of(l.owner)
	}
	batch, err := index.List(tx, after, n, l.parts...)
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
			out.after, out.more = fdbjobs.AfterOwner(raw.Owner), true
			return out, nil
		}
		job, err := s.summed(tx)(s.parseListed(raw, of))
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
	exists bool // see Store.ownerExists
	pause
}

func (s *Store) ownership(tx kv.ReadTransaction, owner string) (of ownership, err error) {
	if of.exists, err = s.ownerExists(tx, owner); err == nil && of.exists {
		of.pause, err = s.readPause(tx, owner)
	}
	return of, err
}

// parseListed parses a job of a list, whose args are a summary.
func (s *Store) parseListed(raw *fdbjobs.Job, of ownership) (*Job, error) {
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
