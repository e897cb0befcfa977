package jobs

import (
	"encoding/json"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/check"
	"settee/pkg/kv/rows"
	"settee/replicator"
)

// isParked checks that a job whose state names a row of a parked job has the row, if it waits for a change.
func (k checker) isParked(p *check.Page, key []byte, state *replicator.JobState, jobID string) func() error {
	if state.Parked == nil {
		return func() error { return nil }
	}
	row, job := k.parking.readParked(p, sourceOf(state.Parked), jobID), peek(p, k.jobs, jobID)
	return func() error {
		is, err := job.Await()
		if err != nil || is == nil || is.Status != fdbjobs.Pending || is.Tag != tagParked {
			return err
		}
		switch row, err := row.Await(); {
		case err != nil: // the row is unreadable, which is a fault of its own
		case row == nil:
			p.Fault(key, k.makeDue(p, jobID), "the job is parked, and no change of its source would wake it")
		case row.Woken:
			p.Fault(key, k.makeDue(p, jobID), "the job is parked, and its source has changed")
		}
		return nil //nolint:nilerr // a row that cannot be read
	}
}

// makeDue returns the repair of a job that is parked and must not be.
func (k checker) makeDue(p *check.Page, jobID string) func() error {
	return func() error {
		_, err := k.jobs.MakeDue(p, []string{jobID}, tagParked, "")
		return err
	}
}

// parked checks the row of a parked job: that the job names it, and that its key in asks and its watch are there.
func (k checker) parked(e entry) (func() error, error) {
	row, err := k.parking.parseParked(e.KeyValue)
	if row.JobID == "" {
		return e.unknown()
	}
	if err != nil {
		return e.unreadable("a parked job")
	}
	job, watched := peek(e, k.jobs, row.JobID), e.Get(k.parking.watchedKey(row.Server))
	var asked kv.Future[[]byte]
	if row.ask() != 0 {
		asked = e.Get(k.parking.askKey(row.Server, row.ask(), row.JobID))
	}
	return func() error {
		there, err := job.Await()
		if err != nil {
			return err
		}
		var state replicator.JobState
		if there != nil && (there.Status == "" || there.State != nil && json.Unmarshal(there.State, &state) != nil) {
			return nil //nolint:nilerr // a fault of the job layer
		}
		if there == nil || sourceOf(state.Parked) != row.source() {
			e.Fault(e.Key, func() error { return k.parking.unpark(e, place{row.source(), row.JobID}) }, "a parked job %q, which does not exist or does not name the row", row.JobID)
			return nil
		}
		value, err := watched.Await()
		if err != nil {
			return err
		}
		if value == nil {
			e.Fault(e.Key, func() error {
				return k.parking.watch(e, row.Server, there.Owner, e.Get(k.parking.watchedKey(row.Server)))
			}, "a parked job of a server that is not watched")
		}
		if asked == nil {
			return nil
		}
		value, err = asked.Await()
		if err == nil && string(value) != row.Database {
			key := k.parking.askKey(row.Server, row.ask(), row.JobID)
			e.Wrong(key, []byte(row.Database), "the question for the job %q is missing, or names another database", row.JobID)
		}
		return err
	}, nil
}

// asks checks a question: that a row of a parked job has it.
func (k checker) asks(e entry) (func() error, error) {
	var server, jobID string
	var ask int64
	if !rows.As(e.key[0], &server) || !rows.As(e.key[1], &ask) || !rows.As(e.key[2], &jobID) {
		return e.unknown()
	}
	row := k.parking.readParked(e, source{server, string(e.Value)}, jobID)
	return func() error {
		row, err := row.Await()
		if row == nil && err != nil {
			return err
		}
		if err == nil && (row == nil || row.ask() != ask) {
			e.Stray(e.Key, "a question for the job %q, which has none then", jobID)
		}
		return nil
	}, nil
}

// watched checks that the watch of a server exists and has not ended.
func (k checker) watched(e entry) (func() error, error) {
	var server, parks string
	if !rows.As(e.key[0], &server) || len(e.key) == 2 && (!rows.As(e.key[1], &parks) || parks != "parks") {
		return e.unknown()
	}
	if len(e.key) == 2 {
		return k.parks(e, server)
	}
	watch := peek(e, k.watches, server)
	return func() error {
		is, err := watch.Await()
		if err == nil && (is == nil || is.Status == fdbjobs.Finished) {
			e.Fault(e.Key, func() error { return k.parking.addWatch(e, server, server) }, "the watch of a server does not exist or has ended")
		}
		return err
	}, nil
}

// parks checks the counter of a server whose jobs were parked.
func (k checker) parks(e entry, server string) (func() error, error) {
	if _, err := rows.ParseInt(e.Value); err != nil {
		return e.unreadable("how often jobs were parked")
	}
	watched := e.Get(k.parking.watchedKey(server))
	return func() error {
		value, err := watched.Await()
		if err == nil && value == nil {
			e.Stray(e.Key, "a counter of a server that is not watched")
		}
		return err
	}, nil
}
