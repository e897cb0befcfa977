package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/route"
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
		running, err := s.watches.Index().List(tx.Snapshot(), fdbjobs.Position{}, MaxLimit, fdbjobs.Part{Status: fdbjobs.Running})
		if err != nil {
			return err
		}
		more = len(running) == MaxLimit
		for _, watch := range running {
			var status WatchStatus
			if err := json.Unmarshal(watch.State, &status); err != nil {
				return fmt.Errorf("reading the state of the watch of %q: %w", watch.ID, err)
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
	// Due is the time for which the due job that waits longest is scheduled ([fdbjobs.Index.OldestDue]). It is zero if
	// no job is due.
	Due time.Time
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

// Waits reads since when jobs wait: for a node, for a run without a crash, and for progress. Jobs that have crashed since
// before the time crashed are counted.
func (s *Lists) Waits(ctx context.Context, crashed time.Time) (w Waits, err error) {
	if w.Due, err = s.OldestDue(ctx); err != nil {
		return Waits{}, err
	}
	due := w.Due
	err = s.db.Transact(ctx, func(tx kv.Transaction) error {
		w = Waits{Due: due}
		q, err := s.readQuiet(tx.Snapshot())
		if err != nil {
			return err
		}
		each := func(mark replicator.MarkType, do func(at time.Time) bool) error {
			return s.eachMarked(tx.Snapshot(), mark, time.Now(), q, do)
		}
		if err := each(replicator.MarkBehind, func(at time.Time) bool {
			w.Behind = at
			return false
		}); err != nil {
			return err
		}
		if err := each(replicator.MarkFailing, func(at time.Time) bool {
			w.Crashing = first(w.Crashing, at)
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
			w.Stuck = first(w.Stuck, at)
			return true
		})
	})
	return w, err
}

// first returns the first time that is set.
func first(known, at time.Time) time.Time {
	if known.IsZero() {
		return at
	}
	return known
}

// OldestDue reads the time for which the due job that waits longest is scheduled ([fdbjobs.Index.OldestDue]). It is zero if
// no job is due.
func (s *Lists) OldestDue(ctx context.Context) (time.Time, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (time.Time, error) {
		return s.jobs.Index().OldestDue(tx.Snapshot())
	})
}

// maxBefore is the most jobs that [Lists.Before] counts.
const maxBefore = 1_000

// Before returns how many jobs of the same database or user have been due for longer than a job that waits for a slot, up
// to maxBefore, and whether there are more.
func (s *Lists) Before(ctx context.Context, job *Job) (n int, more bool, err error) {
	err = s.db.Transact(ctx, func(tx kv.Transaction) (err error) {
		n, more, err = s.jobs.Index().DueBefore(tx.Snapshot(), job.ID, maxBefore)
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
