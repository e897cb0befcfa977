package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/route"
	"settee/pkg/tuple"
	"settee/replicator"
)

// lateProblem returns what the watch of a server needs a person for.
func lateProblem(server string, late Late) Problem {
	return Problem{Jobs: int64(late.Jobs), Attention: replicator.Attention{
		Kind: replicator.NeedsEarlier, Code: late.Code, Side: replicator.SideSource, Host: replicator.Endpoint{URL: server}.Host(), Since: late.Since,
	}}
}

// LateWatches returns a problem for each watch whose questions are late, with the jobs that it asks, of the first MaxLimit watches that
// nodes run, by owner and server. more reports whether there may be others.
func (s *Lists) LateWatches(ctx context.Context) (late []Problem, more bool, err error) {
	err = s.db.Transact(ctx, func(tx kv.Transaction) error {
		late = nil
		held := fdbjobs.Selection{Parts: []fdbjobs.Part{{Status: fdbjobs.Running}}}
		running, err := s.watches.List(tx.Snapshot(), held, fdbjobs.Position{}, MaxLimit)
		if err != nil {
			return err
		}
		more = len(running) == MaxLimit
		for _, watch := range running {
			status, err := statusOf(watch)
			if err != nil {
				return err
			}
			if status.Late != (Late{}) {
				server, _ := route.Server(watch.ID)
				late = append(late, lateProblem(server, status.Late))
			}
		}
		return nil
	})
	return late, more, err
}

// Waits is what [Lists.Waits] reads. It is without jobs that are paused, or whose databases are.
type Waits struct {
	// Crashing is when the crashes of the job began that has crashed for the longest time. It is zero if no job has
	// crashed since it last recovered.
	Crashing time.Time
	// Stuck is since when the job makes no progress that has made none for the longest time. It is zero if no job is stuck.
	Stuck time.Time
	// Behind is since when a target may lack changes of a continuous job, of the job that is furthest behind. It is zero if
	// none is behind for long.
	Behind time.Time
	// LongCrashing is the number of jobs that have crashed since before the time that Waits was asked for, and StuckJobs the
	// number of those that are stuck. Neither is more than maxCounted.
	LongCrashing, StuckJobs int
}

// maxCounted is the largest number of jobs that [Lists.Waits] counts. They are rows of an index.
const maxCounted = 1_000

// Waits reads since when jobs wait for a run without a crash, for progress, and for a target that has everything. Jobs that have crashed since
// before the time crashed are counted.
func (s *Lists) Waits(ctx context.Context, crashed time.Time) (w Waits, err error) {
	err = s.db.Transact(ctx, func(tx kv.Transaction) error {
		w = Waits{}
		q, err := s.readQuiet(tx.Snapshot())
		if err != nil {
			return err
		}
		each := func(mark replicator.MarkType, do func(at time.Time) bool) error {
			until := fdbjobs.EntryRange{Prefix: tuple.Tuple{string(mark)}, Until: tuple.Tuple{time.Now().Unix() + 1}}
			return s.eachTimed(tx.Snapshot(), indexMarks, until, q, func(j timedJob) bool { return do(readTime(j.at)) })
		}
		if err := each(replicator.MarkBehind, func(at time.Time) bool {
			w.Behind = at
			return false
		}); err != nil {
			return err
		}
		if err := each(replicator.MarkFailing, func(at time.Time) bool {
			w.Crashing = cmp.Or(w.Crashing, at)
			if at.After(crashed) {
				return false
			}
			w.LongCrashing++
			return true
		}); err != nil {
			return err
		}
		return each(replicator.MarkStuck, func(at time.Time) bool {
			w.StuckJobs++
			w.Stuck = cmp.Or(w.Stuck, at)
			return true
		})
	})
	return w, err
}

// maxBefore is the most jobs that [Lists.Queue] counts.
const maxBefore = 1_000

// Queue returns how many jobs of the same database or user have been due for longer than a job that waits for a slot, up
// to maxBefore.
func (s *Lists) Queue(ctx context.Context, job *Job) (*replicator.Queue, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*replicator.Queue, error) {
		n, more, err := s.jobs.DueBefore(tx.Snapshot(), job.ID, maxBefore)
		return &replicator.Queue{Before: n, More: more}, err
	})
}

// Watch returns how a parked job learns that its source has changed, or nil if the job is not parked.
func (s *Lists) Watch(ctx context.Context, job *Job) (*replicator.Watch, error) {
	if job.Parked().IsZero() {
		return nil, nil
	}
	of := sourceOf(job.State.Parked)
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*replicator.Watch, error) {
		reading := s.parking.readParked(tx.Snapshot(), of, job.ID)
		status, _, err := s.readWatch(tx.Snapshot(), of.server)
		if err != nil {
			return nil, err
		}
		watch := &replicator.Watch{Database: of.database, By: status.By, Reason: status.Why}
		watch.Server, _ = route.Server(of.server)
		row, err := reading.Await()
		if err == nil && row != nil && watch.By == replicator.ByQuestions {
			watch.NextQuestion = row.Ask.UTC()
		}
		return watch, err
	})
}

// readWatch returns how the watch of a server hears of changes, and whether a node runs it.
func (s *core) readWatch(tx kv.ReadTransaction, server string) (status WatchStatus, running bool, err error) {
	watch, err := s.watches.Get(tx, server)
	if errors.Is(err, fdbjobs.ErrNotFound) {
		return status, false, nil
	}
	if err != nil {
		return status, false, err
	}
	status, err = statusOf(watch)
	return status, watch.Status == fdbjobs.Running, err
}

// statusOf returns how a watch hears of changes.
func statusOf(watch *fdbjobs.Job) (status WatchStatus, err error) {
	if err := json.Unmarshal(watch.State, &status); err != nil {
		return status, fmt.Errorf("reading the state of the watch of %q: %w", watch.ID, err)
	}
	return status, nil
}
