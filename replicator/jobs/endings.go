package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// A run goes on for a while after its job was removed or got a new definition: until it hears of that, and then for its
// last checkpoint. Another run with the same replication id must not begin before. Therefore the transaction that
// removes or changes a running job that has its replication id reserved notes the run:
//
//	("ending", replication id) -> (job id, lock, timeout in seconds, milliseconds since the Unix epoch)
//
// lock is the lock of the run's hold, and timeout the activity timeout of the process that wrote the row. [Run.Identify] waits until there is no
// such row. The run that the row names removes it at its end ([Run.Release]).
//
// If the process of that run dies, the row is void after the timeout, as the hold would have been. A waiting run
// measures that by its own clock from when it first saw the row, because the clocks of processes may differ. A row that
// is older than its timeout by more than expiredSkew is void without waiting, and upkeep removes it.
//
// There is one row at most for a replication id: a run that waits for the row's run has copied nothing, so it needs no
// row when its own job is removed.

const (
	// expiredSkew is by how much the clocks of processes may differ.
	expiredSkew = time.Minute
	// endingsAtOnce is the most rows that one transaction of upkeep reads.
	endingsAtOnce = 200
)

// ending is a row.
type ending struct {
	jobID, lock string
	timeout     time.Duration
	since       time.Time // when the row was written
}

func (s *reservations) endingKey(replicationID string) []byte {
	return s.space.Pack("ending", replicationID)
}

func (e ending) pack() []byte {
	return tuple.Tuple{e.jobID, e.lock, e.timeout.Seconds(), e.since.UnixMilli()}.Pack()
}

func parseEnding(value []byte) (e ending, err error) {
	var seconds float64
	var noted int64
	if err := rows.Scan("the end of a replication", value, &e.jobID, &e.lock, &seconds, &noted); err != nil {
		return ending{}, err
	}
	e.timeout, e.since = time.Duration(seconds*float64(time.Second)), time.UnixMilli(noted)
	return e, nil
}

// void reports whether the run of a row has certainly ended. A malformed row is void.
func void(value []byte) bool {
	e, err := parseEnding(value)
	return err != nil || time.Since(e.since) > e.timeout+expiredSkew
}

// endingRun is a run that may go on after the transaction that writes its row.
type endingRun struct {
	jobID string
	holding
}

// running returns the run of a job in the form of noteEndings. It has no lock if the job does not run.
func (j *Job) running() endingRun { return endingRun{j.ID, j.held} }

// noteEndings notes the runs of jobs that are removed or changed. It must be called before their reservations are
// released.
func (s *reservations) noteEndings(tx kv.Transaction, runs ...endingRun) error {
	type reads struct{ reserved, row kv.Future[[]byte] }
	read := make([]reads, len(runs))
	found := false
	for i, run := range runs {
		if run.lock != "" && run.replicationID != "" {
			read[i] = reads{tx.Get(s.reservationKey(run.replicationID)), tx.Get(s.endingKey(run.replicationID))}
			found = true
		}
	}
	if !found {
		return nil
	}
	for i, run := range runs {
		if read[i].row == nil {
			continue
		}
		reserved, err := read[i].reserved.Await()
		if err != nil {
			return err
		}
		row, err := read[i].row.Await()
		if err != nil {
			return err
		}
		if string(reserved) == run.jobID && (row == nil || void(row)) {
			tx.Set(s.endingKey(run.replicationID), ending{run.jobID, run.lock, s.jobs.Timeout(), time.Now()}.pack())
		}
	}
	return nil
}

// noteDeleted notes the run of a job that still runs although its database was deleted. Another job takes over its
// reservation of the replication id.
func (s *reservations) noteDeleted(tx kv.Transaction, jobID string) error {
	raw, err := s.jobs.Get(tx, jobID)
	switch {
	case errors.Is(err, fdbjobs.ErrNotFound):
		return nil
	case err != nil && !errors.Is(err, fdbjobs.ErrSealed):
		return err
	}
	return s.noteEndings(tx, runOf(raw))
}

// runOf returns the run of a job in the form of noteEndings.
func runOf(raw *fdbjobs.Job) endingRun {
	var state replicator.JobState
	_ = json.Unmarshal(raw.State, &state) // a run with a state that cannot be read has no replication id
	return endingRun{raw.ID, holding{raw.Lock, state.ReplicationID}}
}

// mayBegin reports whether a run may begin with a replication id that it has reserved. waited is a row whose timeout the
// run has waited for.
func (s *reservations) mayBegin(tx kv.Transaction, replicationID string, waited []byte) (bool, error) {
	row, err := tx.Get(s.endingKey(replicationID)).Await()
	switch {
	case err != nil:
		return false, err
	case row == nil:
		return true, nil
	case bytes.Equal(row, waited), void(row):
		tx.Clear(s.endingKey(replicationID))
		return true, nil
	}
	return false, nil
}

// awaitEnding waits until the row of a replication id is gone, and returns nil, or until its timeout has passed, and
// returns the row. It calls beat at least every interval.
func (s *reservations) awaitEnding(ctx context.Context, replicationID string, interval time.Duration, beat func() error) (waited []byte, err error) {
	type look struct {
		row   []byte
		watch kv.Watch
	}
	var seen []byte
	var until time.Time
	for next := time.Now().Add(interval); ; {
		found, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (out look, err error) {
			key := s.endingKey(replicationID)
			if out.row, err = tx.Snapshot().Get(key).Await(); err == nil && out.row != nil {
				out.watch = tx.Watch(key)
			}
			return out, err
		})
		if err != nil || found.row == nil {
			return nil, err
		}
		if now := time.Now(); !bytes.Equal(found.row, seen) {
			row, _ := parseEnding(found.row) // a malformed row has no timeout
			seen, until = found.row, now.Add(row.timeout)
		} else if !now.Before(until) {
			found.watch.Cancel()
			return seen, nil
		}
		kv.AwaitChange(ctx, found.watch, kv.AwaitOptions{Until: earlier(next, until)})
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if now := time.Now(); !now.Before(next) {
			if err := beat(); err != nil {
				return nil, err
			}
			next = now.Add(interval)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// removeVoid removes the rows of runs that have ended without removing them.
func (s *reservations) removeVoid(ctx context.Context) error {
	all := rows.Range(s.space.Sub("ending"))
	_, err := parts(ctx, s.db, endingsAtOnce, all.Begin, func(tx kv.Transaction, from []byte, most int) (next []byte, more bool, err error) {
		pairs, err := tx.Snapshot().GetRange(kv.KeyRange{Begin: from, End: all.End}, kv.RangeOptions{Limit: most}).Slice()
		if err != nil || len(pairs) == 0 {
			return nil, false, err
		}
		voids := slices.DeleteFunc(slices.Clone(pairs), func(pair kv.KeyValue) bool { return !void(pair.Value) })
		return kv.KeyAfter(pairs[len(pairs)-1].Key), len(pairs) == most, clearUnchanged(tx, voids)
	})
	return err
}

// clearUnchanged clears rows that are as they were read.
func clearUnchanged(tx kv.Transaction, read []kv.KeyValue) error {
	now, err := kv.Each(read, func(row kv.KeyValue) kv.Future[[]byte] { return tx.Get(row.Key) })
	for i, value := range now {
		if bytes.Equal(value, read[i].Value) {
			tx.Clear(read[i].Key)
		}
	}
	return err
}
