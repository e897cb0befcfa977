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
	"settee/pkg/kv"
	"settee/pkg/route"
	"settee/pkg/tuple"
	"settee/replicator"
)

// MaxLimit is the most jobs on a page of [Lists.List] and [Lists.ListDocuments].
const MaxLimit = 1_000

// skipAtOnce is the most jobs that one transaction skips.
const skipAtOnce = 1_000

// listBatch is the most jobs that one transaction reads. Each state may have 100,000 bytes.
const listBatch = 50

// Lists reads jobs, alone and in lists, without a change to any. The HTTP interface, the metrics and the health of a node, and the
// watches, which need the definitions of jobs, use it.
type Lists struct {
	*tables
	pages *pages
}

// Get returns the job with that job id or replication id, including jobs that have ended. It
// returns ErrNotFound if there is none.
func (s *Lists) Get(ctx context.Context, id string) (*Job, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		job, err := s.reservations.resolve(tx.Snapshot(), id)
		return s.pages.summed(tx.Snapshot())(s.usage.withPause(tx.Snapshot(), job, err))
	})
}

// Filter selects the jobs of [Lists.List]. The zero value selects all that have not ended.
type Filter struct {
	// States are the states of the jobs; nil means all jobs that have not ended.
	States []replicator.State
	// Database, if not empty, is the name of the replicator database whose jobs are listed.
	Database string
	// Transient selects the jobs of requests, and User, if not nil, the jobs of one user. The name of
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
func (s *Lists) List(ctx context.Context, f Filter, opts ListOptions) (List, error) {
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
func (s *Lists) filtered(ctx context.Context, f Filter) (l listing, err error) {
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
func (s *Lists) currentOwner(ctx context.Context, database string) (string, error) {
	db, err := s.docs.Database(ctx, database)
	if err != nil {
		return "", err
	}
	return databaseOwner(db.Name(), db.Instance()), nil
}

// ListDocuments returns the jobs of documents in the given states, nil for all. The list has the jobs of
// one replicator database, by document id, or of all databases if database is empty, by
// database and document id. It returns docstore.ErrDatabaseNotFound if there is no such database.
func (s *Lists) ListDocuments(ctx context.Context, database string, states []replicator.State, opts ListOptions) (List, error) {
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
func (s *Lists) Document(ctx context.Context, database, id string) (*Job, error) {
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
		return s.pages.summed(tx.Snapshot())(s.usage.withPause(tx.Snapshot(), job, err))
	})
}

// Running yields the running jobs of all nodes, by owner and job id, in the form of a [List].
func (s *Lists) Running(ctx context.Context) iter.Seq2[*Job, error] {
	l := listing{parts: parts([]replicator.State{replicator.StateRunning}, labels...)}
	return func(yield func(*Job, error) bool) {
		for after, more := (fdbjobs.Position{}), true; more; {
			page, err := s.pages.readPage(ctx, s.pages.page, l, after, listBatch)
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

// Counts is what [Lists.Counts] counts.
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
func (s *Lists) Counts(ctx context.Context) (Counts, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (Counts, error) {
		counted, owners, err := s.jobs.Index().Counts(tx.Snapshot(), parts(allStates, labels...)...)
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
			counts.Parked += counted[fdbjobs.Part{Status: fdbjobs.Pending, Label: label, Tag: tagParked}]
			counts.Paused += counted[fdbjobs.Part{Status: fdbjobs.Pending, Label: label, Tag: tagPaused}]
			counts.Scheduled += counted[fdbjobs.Part{Status: fdbjobs.Pending, Label: label, Tag: tagWaiting}]
		}
		return counts, nil
	})
}

// Waits is what [Lists.Waits] reads.
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

// MaxCounted is the largest number of jobs that [Lists.Waits] counts. They are rows of an index.
const MaxCounted = 1_000

// Waits reads since when jobs wait: for a node, for a run without a crash, and for progress. Jobs that have crashed since
// before the time crashed are counted.
func (s *Lists) Waits(ctx context.Context, crashed time.Time) (w Waits, err error) {
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
		w.LongCrashing, err = s.countTroubles(ctx, indexCrashing, crashed)
	}
	if !w.Stuck.IsZero() && err == nil {
		w.StuckJobs, err = s.countTroubles(ctx, indexStuck, time.Now())
	}
	return w, err
}

// OldestDue reads the time for which the due job that waits longest is scheduled ([fdbjobs.Index.OldestDue]). It is zero if
// no job is due.
func (s *Lists) OldestDue(ctx context.Context) (time.Time, error) {
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

func (s *Lists) list(ctx context.Context, opts ListOptions, l listing) (List, error) {
	if opts.Skip < 0 || opts.Limit < 0 || opts.Limit > MaxLimit ||
		len(opts.After.Owner) > MaxOwnerSize || len(opts.After.ID) > fdbjobs.MaxNameSize {
		return List{}, fmt.Errorf("listing replication jobs: skip %d, limit %d or a start key of %d and %d bytes are out of range",
			opts.Skip, opts.Limit, len(opts.After.Owner), len(opts.After.ID))
	}
	var out List
	after, reads, indexed := opts.After, []pageRead{s.pages.page}, opts.Order != ByOwner || l.mirror != ""
	switch {
	case l.mirror != "":
		reads = []pageRead{s.pages.mirrored(l.mirror, opts.Order)}
	case opts.Order != ByOwner:
		reads = []pageRead{s.pages.troubled(opts.Order)}
	}
	for begun, skip := indexed, opts.Skip; !begun; skip -= skipAtOnce {
		step := ListOptions{After: after, Skip: min(skip, skipAtOnce)}
		err := s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
			out.Total, after, err = s.pages.beginList(tx.Snapshot(), step, l)
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
		reads = s.pages.searching(lower, after)
	}
	for more && len(out.Jobs) < opts.Limit && out.Scanned < MaxScanned {
		n := listBatch
		if opts.Query == "" && !indexed {
			n = min(n, opts.Limit-len(out.Jobs))
		}
		page, err := s.pages.readPage(ctx, reads[0], l, after, n)
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

// Failures returns the failures of a job; id is as for [Lists.Get]. It returns ErrNotFound if
// there is no such job. Failures that are listed at the same time may be missing, or replace
// others in the result.
func (s *Lists) Failures(ctx context.Context, id string) (Failures, error) {
	job, err := s.Get(ctx, id)
	if err != nil {
		return Failures{}, err
	}
	var count failureCount
	begin, end := s.records.failureRows(job.ID).Range()
	ring := kv.KeyRange{Begin: begin, End: end}
	var rows []json.RawMessage
	for more := true; more; {
		page, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			read := tx.Snapshot().Get(s.records.failureKey(job.ID))
			pairs, err := tx.Snapshot().GetRange(ring, kv.RangeOptions{Limit: failuresAtOnce}).Slice()
			if err != nil {
				return nil, err
			}
			count, err = awaitFailures(read)
			return pairs, err
		})
		if err != nil {
			return Failures{}, err
		}
		for _, pair := range page {
			rows = append(rows, pair.Value)
			ring.Begin = kv.KeyAfter(pair.Key)
		}
		more = len(page) == failuresAtOnce
	}
	if len(rows) > 0 {
		next := int(count.listed) % len(rows) // the oldest row of a full ring
		if len(rows) < replicator.MaxFailures {
			next = 0
		}
		rows = append(slices.Clone(rows[next:]), rows[:next]...)
	}
	slices.Reverse(rows)
	return Failures{Total: count.total, Latest: rows}, nil
}

// Runs returns the latest runs of a job that have ended, at most MaxRuns, the newest first.
func (s *Lists) Runs(ctx context.Context, job *Job) ([]json.RawMessage, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]json.RawMessage, error) {
		var reads []kv.Future[[]byte]
		for n := job.State.Runs; n > max(job.State.Runs-MaxRuns, 0); n-- {
			reads = append(reads, tx.Snapshot().Get(s.records.runKey(job.ID, n)))
		}
		runs := make([]json.RawMessage, 0, len(reads))
		for _, read := range reads {
			text, err := read.Await()
			if err != nil {
				return nil, err
			}
			if text != nil { // the job may have been removed since
				runs = append(runs, text)
			}
		}
		return runs, nil
	})
}

// countTroubles returns the number of entries of an index with times until then, at most MaxCounted.
func (s *Lists) countTroubles(ctx context.Context, index string, until time.Time) (int, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (int, error) {
		found, err := s.jobs.Entries(tx.Snapshot(), index, fdbjobs.EntryRange{Until: tuple.Tuple{until.Unix() + 1}, Limit: MaxCounted}).Await()
		return len(found), err
	})
}

// ListMirrors returns up to limit continuous mirrors that have not ended, by their sources, with their summaries.
func (s *Lists) ListMirrors(ctx context.Context, limit int) (found []*Job, err error) {
	r := fdbjobs.EntryRange{}
	for more := true; more && len(found) < limit; {
		r.Limit = min(limit-len(found), mirrorsAtOnce)
		page, entries, err := s.pageOfMirrors(ctx, r)
		if err != nil {
			return nil, err
		}
		if found, more = append(found, page...), len(entries) == r.Limit; more {
			last := entries[len(entries)-1]
			r.After = append(slices.Clip(last.Key), last.ID)
		}
	}
	return found, nil
}

// pageOfMirrors reads mirrors of the index of mirrors, and returns the entries that it has read.
func (s *Lists) pageOfMirrors(ctx context.Context, r fdbjobs.EntryRange) (found []*Job, entries []fdbjobs.EntryRow, err error) {
	err = s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
		now := tx.Snapshot()
		found = nil
		if entries, err = s.jobs.Entries(now, indexMirrors, r).Await(); err != nil {
			return err
		}
		for _, e := range entries {
			job, err := s.mirrors.liveMirror(now, e.ID)
			if err != nil {
				return err
			}
			if job == nil || !job.IsMirror() {
				continue // its database is gone, or its definition cannot be opened
			}
			if job, err = s.pages.summed(now)(s.usage.withPause(now, job, nil)); err != nil {
				return err
			}
			found = append(found, job)
		}
		return nil
	})
	return found, entries, err
}

// MaxBefore is the most jobs that [Lists.Before] counts.
const MaxBefore = 1_000

// Before returns how many jobs of the same database or user have been due for longer than a job that waits for a slot, up
// to MaxBefore, and whether there are more.
func (s *Lists) Before(ctx context.Context, job *Job) (n int, more bool, err error) {
	err = s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
		n, more, err = s.jobs.Index().DueBefore(tx.Snapshot(), job.ID, MaxBefore)
		return err
	})
	return n, more, err
}

// Waking is what wakes a parked job.
type Waking struct {
	// Server is the URL of the job's source's server, and Database the name of the database.
	Server, Database string
	WatchStatus
	// NextQuestion is when the source is asked next. It is zero if it is not asked.
	NextQuestion time.Time
}

// Waking returns what wakes a parked job, or nil if the job is not parked.
func (s *Lists) Waking(ctx context.Context, job *Job) (*Waking, error) {
	if job.Parked().IsZero() {
		return nil, nil
	}
	of := sourceOf(job.State.Parked)
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Waking, error) {
		reading := s.parking.readParked(tx.Snapshot(), of, job.ID)
		waking := &Waking{Database: of.database}
		waking.Server, _ = route.Server(of.server)
		watch, err := s.watches.Get(tx.Snapshot(), of.server)
		switch {
		case errors.Is(err, fdbjobs.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			if err := json.Unmarshal(watch.State, &waking.WatchStatus); err != nil {
				return nil, fmt.Errorf("reading the state of the watch of %q: %w", of.server, err)
			}
		}
		row, err := reading.Await()
		if err == nil && row != nil && waking.By == ByQuestions {
			waking.NextQuestion = row.Ask
		}
		return waking, err
	})
}
