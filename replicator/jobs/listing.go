package jobs

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/replicator"
	"settee/replicator/shares"
)

// MaxLimit is the most jobs on a page of [Lists.List].
const MaxLimit = 1_000

// skipAtOnce is the most jobs that one transaction skips.
const skipAtOnce = 1_000

// listBatch is the most jobs that one transaction reads. Each state may have 100,000 bytes.
const listBatch = 50

// Lists reads jobs, alone and in lists, without a change to any. The HTTP interface, the metrics and the health of a node, and the
// watches, which need the definitions of jobs, use it.
type Lists struct {
	*core
	reservations *reservations
	parking      *parkedRows
	records      *jobRecords
	mirrors      *mirrorRows
	pages        *pages
}

// Get returns the job with that job id or replication id, including jobs that have ended. It
// returns ErrNotFound if there is none. See [Job].Sealed.
func (s *Lists) Get(ctx context.Context, id string) (*Job, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Job, error) {
		job, err := s.reservations.resolve(tx.Snapshot(), id)
		return s.pages.single(tx.Snapshot(), job, err)
	})
}

// Filter selects the jobs of [Lists.List]. The zero value selects all that have not ended. What selects jobs by counters, so that the
// Total is of the selected jobs, or by an index of its own, is a field here. What a page can only find by looking at each job, such as
// Query, is one of [ListOptions].
type Filter struct {
	// States are the states of the jobs; the zero value means all jobs that have not ended.
	States States
	// Database, if not empty, is the name of the replicator database whose jobs are listed.
	Database string
	// Transient selects the jobs of requests, and User, if not nil, the jobs of one user. The name of
	// the anonymous user is empty.
	Transient bool
	User      *string
	// Documents selects the jobs of documents alone, with the zero value of States also those that have ended. As in CouchDB
	// the Total of their list is the number of jobs in any state.
	Documents bool
	// Mirrors selects the continuous mirrors that have not ended, by their sources. Their list has no Total, no Query and cannot Skip.
	Mirrors bool
	// Mirror, if not empty, is the job id of a mirror whose jobs are listed, by the names of their databases. Their list has no
	// Total and cannot Skip. With the order ByCrash it has the databases whose runs fail.
	Mirror string
	// Unmirrored leaves out the jobs that mirrors have made of the databases of their sources.
	Unmirrored bool
}

// maxScanned is the most jobs that one page looks at.
const maxScanned = 2_000

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

// List returns jobs by owner and job id, unless another order is asked for. A long list is read in several transactions, each
// of which sees a later state. It returns docstore.ErrDatabaseNotFound if there is no such database. Total is
// the number of jobs that the filter selects, whatever the Query.
func (s *Lists) List(ctx context.Context, f Filter, opts ListOptions) (List, error) {
	if err := opts.check(); err != nil {
		return List{}, err
	}
	l, err := s.filtered(ctx, f)
	switch {
	case err != nil:
		return List{}, err
	case f.Mirrors:
		g := gathering{limit: opts.Limit, after: opts.After, more: true}
		err = s.gather(ctx, &g, l, s.pages.ofServers)
		return g.list(), err
	case f.Mirror != "":
		return s.indexed(ctx, l, opts, s.pages.mirrored(f.Mirror, opts.Order))
	case opts.Order == ByState:
		return s.byState(ctx, l, opts)
	case opts.Order != ByOwner:
		return s.indexed(ctx, l, opts, s.pages.marked(replicator.MarkType(opts.Order)))
	}
	return s.byOwner(ctx, l, opts)
}

// filtered returns the list that a filter describes.
func (s *Lists) filtered(ctx context.Context, f Filter) (l listing, err error) {
	l.states, l.labels = f.States, labels
	if f.States.all() {
		l.states = liveStates
	}
	switch {
	case f.Database != "":
		if l.owner, err = s.currentOwner(ctx, f.Database); err != nil {
			return l, err
		}
	case f.User != nil:
		l.owner = shares.OwnerOf("", "", *f.User)
	case f.Transient:
		l.labels = postedLabels
	}
	if f.Unmirrored {
		l.labels = slices.DeleteFunc(slices.Clone(l.labels), isMirroredLabel)
	}
	if l.counted = l.states; f.Documents {
		l.states, l.counted, l.labels = f.States, States{}, []string{labelDocument}
	}
	return l, nil
}

// currentOwner returns the owner that is a replicator database.
func (s *Lists) currentOwner(ctx context.Context, database string) (string, error) {
	db, err := s.docs.Database(ctx, database)
	if err != nil {
		return "", err
	}
	return shares.OwnerOf(db.Name(), db.Instance(), ""), nil
}

// Document returns the job of a document of a replicator database, as lists have it if its definition cannot be opened. It
// returns docstore.ErrDatabaseNotFound or ErrNotFound.
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
		return s.pages.single(tx.Snapshot(), job, err)
	})
}

// Running yields the running jobs of all nodes, by owner and job id, in the form of a [List].
func (s *Lists) Running(ctx context.Context) iter.Seq2[*Job, error] {
	l := listing{states: States{Shown: []replicator.ShownState{replicator.ShownRunning}}, labels: labels}
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
	// Jobs is the number of jobs in each state, without Turn and Gone. Mirrored is the number of those that mirrors have made of
	// databases of their sources.
	Jobs, Mirrored map[replicator.ShownState]int64
	// Again is the number of pending jobs that are crashing for CouchDB: their wait after a failed run is over.
	Again int64
	// Turn is the number of databases of mirrors that wait for their turn, and Gone the number of those that were deleted at the
	// source. Their jobs are pending and completed.
	Turn, Gone int64
	// Databases and Users are the numbers of replicator databases and of users that have jobs.
	Databases, Users int64
	// Due is the time for which the due job that waits longest is scheduled ([fdbjobs.Queue.OldestDue]). It is zero if no job
	// is due.
	Due time.Time
}

// Counts counts the jobs, from counters. Jobs of deleted databases are left out.
func (s *Lists) Counts(ctx context.Context) (Counts, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (Counts, error) {
		q, err := s.readQuiet(tx.Snapshot())
		if err != nil {
			return Counts{}, err
		}
		parts := partsOf(States{}, false, labels)
		counted, owners, err := s.jobs.Counts(tx.Snapshot(), fdbjobs.Selection{Parts: parts})
		if err != nil {
			return Counts{}, err
		}
		due, err := s.jobs.OldestDue(tx.Snapshot())
		if err != nil {
			return Counts{}, err
		}
		counts := Counts{
			Due: due, Jobs: make(map[replicator.ShownState]int64, len(replicator.ShownStates)), Mirrored: map[replicator.ShownState]int64{},
			Databases: owners[labelDocument], Users: owners[labelTransient],
		}
		for _, state := range replicator.ShownStates {
			counts.Jobs[state] = 0
		}
		count := func(of map[fdbjobs.Part]int64, times int64, paused bool) {
			for part, n := range of {
				switch part.Tag {
				case tagTurn:
					counts.Turn += times * n
				case tagGone:
					counts.Gone += times * n
				default:
					state := statesIn(part, paused).shown
					counts.Jobs[state] += times * n
					if isMirroredLabel(part.Label) {
						counts.Mirrored[state] += times * n
					}
				}
				if part.Tag == tagAgain && !paused {
					counts.Again += times * n
				}
			}
		}
		count(counted, 1, false)
		for _, owner := range q {
			of, _, err := s.jobs.Counts(tx.Snapshot(), fdbjobs.Selection{Owner: &owner.name, Parts: parts})
			if err != nil {
				return Counts{}, err
			}
			if count(of, -1, false); !owner.deleted {
				count(of, 1, true)
			}
		}
		return counts, nil
	})
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

// Failures returns the failures of a job; id is as for [Lists.Get]. It returns ErrNotFound if
// there is no such job. Failures that are listed at the same time may be missing, or replace
// others in the result.
func (s *Lists) Failures(ctx context.Context, id string) (Failures, error) {
	job, err := s.Get(ctx, id)
	if err != nil {
		return Failures{}, err
	}
	var count failureCount
	ring := rows.Range(s.records.failureRows(job.ID))
	var listed []json.RawMessage
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
			listed = append(listed, pair.Value)
			ring.Begin = kv.KeyAfter(pair.Key)
		}
		more = len(page) == failuresAtOnce
	}
	if len(listed) == replicator.MaxFailures {
		oldest := int(count.listed % replicator.MaxFailures)
		listed = append(slices.Clone(listed[oldest:]), listed[:oldest]...)
	}
	slices.Reverse(listed)
	return Failures{Total: count.total, Latest: listed}, nil
}

// Records are what is stored of the past of a job, besides its [Failures].
type Records struct {
	// Runs are the latest runs that have ended, at most maxRuns, the newest first.
	Runs []json.RawMessage // a replicator.EndedRun each
	// Lags is how far the target of a mirror was behind in the last day. The zero value means that this is not known.
	Lags         replicator.MirrorLags
	Verification Verification
}

// Records returns the records of a job. They are empty if it has been removed since.
func (s *Lists) Records(ctx context.Context, job *Job) (Records, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (r Records, err error) {
		now, verification, lags := tx.Snapshot(), tx.Snapshot().Get(s.records.verificationKey(job.ID)), tx.Snapshot().Get(s.records.lagsKey(job.ID))
		var latest []int64
		for n := job.State.Runs; n > max(job.State.Runs-maxRuns, 0); n-- {
			latest = append(latest, n)
		}
		found, err := kv.Each(latest, func(n int64) kv.Future[[]byte] { return now.Get(s.records.runKey(job.ID, n)) })
		if err != nil {
			return r, err
		}
		r.Runs = make([]json.RawMessage, 0, len(found))
		for _, text := range found {
			if text != nil {
				r.Runs = append(r.Runs, text)
			}
		}
		if r.Lags, err = awaitLags(lags); err != nil {
			return r, err
		}
		r.Verification, err = awaitVerification(verification, job.ID)
		return r, err
	})
}
