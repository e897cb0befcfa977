package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/pkg/kv"
	"settee/replicator"
)

// Parking notes that the run is about to park the job, and from which source its changes come. It creates the watch of
// the server if there is none. Once it has returned, each change of the source is found by the watch. So if the run then
// finds that the source has no change, it can end with [Run.Park].
//
// Without a call of Park the row stays until the run ends, and costs a question or a wake. The zero value of at clears
// it. The error is errCannotPark if the names of the source are too large. Parking is also an update of the job.
func (r *Run) Parking(ctx context.Context, at replicator.Parked) error {
	if at == (replicator.Parked{}) {
		return r.Update(ctx, func(state *replicator.JobState) { state.Parked = nil })
	}
	if err := checkParked(at); err != nil {
		return err
	}
	next := ParkedRow{
		Server: at.Server, Database: at.Database, JobID: r.job.ID, UpdateSeq: at.UpdateSeq, Ask: time.Now().Add(FirstAsk),
	}
	if t := at.Target; len(t.Server)+len(t.Database)+len(t.Identity)+len(t.Instance) <= maxTargetSize {
		next.Target = t
	}
	return r.update(ctx, func(state *replicator.JobState) {
		state.Parked = &replicator.Parked{Server: at.Server, Database: at.Database}
	}, func(tx kv.Transaction, _ *replicator.JobState) error {
		watched := tx.Get(r.store.parking.watchedKey(at.Server))
		old, err := r.store.parking.readParked(tx, next.source(), r.job.ID).Await()
		if err != nil {
			return err
		}
		r.store.parking.setParked(tx, old, next)
		return r.store.parking.watch(tx, at.Server, r.job.owner(), watched)
	})
}

func checkParked(at replicator.Parked) error {
	for _, f := range []struct {
		name       string
		size, most int
	}{
		{"URL of the server", len(at.Server), maxServerSize},
		{"name of the database", len(at.Database), maxDatabaseSize},
		{"update_seq", len(at.UpdateSeq), maxUpdateSeqSize},
	} {
		if f.size > f.most {
			return fmt.Errorf("%w: the %s of its source has %d bytes, and the most is %d", errCannotPark, f.name, f.size, f.most)
		}
	}
	if at.Server == "" || at.Database == "" {
		return fmt.Errorf("%w: its source has no server or no database", errCannotPark)
	}
	return nil
}

// errWoken: the source of a job has changed since [Run.Parking], or that was not called.
var errWoken = errors.New("the job has been woken")

// Park queues the job for about a day later, after [Run.Parking]. If the source has changed since Parking, or Parking was
// not called, it queues the job at once, and woken is true. change, if not nil, sets the last progress.
func (r *Run) Park(ctx context.Context, change func(*replicator.JobState)) (woken bool, err error) {
	if r.gone {
		return false, r.drop(ctx)
	}
	again, err := r.again(replicator.RunParked, time.Now())
	if err != nil {
		return false, err
	}
	writeDocument := r.liveStateWriter()
	err = r.halted(ctx, r.write(r.counting(func(state *replicator.JobState) {
		if change != nil {
			change(state)
		}
		state.State, state.ErrorCount = again.State, again.ErrorCount
		state.SetFault(nil)
		now := time.Now()
		if state.Parked != nil {
			state.Parked = &replicator.Parked{Since: now, Server: state.Parked.Server, Database: state.Parked.Database}
		}
		r.event(state, now, replicator.EventStopped, replicator.EndParked, "")
	}), func(state *replicator.JobState, text json.RawMessage, c charge) error {
		also := func(tx kv.Transaction) error { return r.settle(tx, c, again.Outcome, state, writeDocument) }
		r.held.Tag = tagParked
		err := r.held.Resubmit(ctx, again.At, text, func(tx kv.Transaction) error {
			// Wake writes the row in the transaction that makes the job due, if it is parked. So either that transaction
			// sees a parked job, or this one sees that the row was woken.
			waits, err := r.store.parking.waitsForChange(tx, state, r.job.ID)
			if err == nil && !waits {
				err = errWoken
			}
			if err != nil {
				return err
			}
			return also(tx)
		})
		if woken = errors.Is(err, errWoken); woken {
			r.held.Tag = ""
			err = r.held.Resubmit(ctx, time.Now(), text, also)
		}
		return err
	}))
	return woken, err
}
