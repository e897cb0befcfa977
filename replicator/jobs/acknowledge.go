package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/tuple"
	"settee/replicator"
)

// Acknowledgements are in the args of jobs, and in what lists show of them: the state is written by the holder of a job alone. What
// follows from them is in derivation.go. A new definition has none, and upkeep removes those whose end has come.

// acknowledgedAtOnce is the most jobs whose acknowledgements one transaction changes.
const acknowledgedAtOnce = 50

// ErrNoAttention is returned for a job that needs nobody.
var ErrNoAttention = errors.New("the replication needs nobody's attention")

// Acknowledge makes a job need nobody, see [replicator.Acknowledgement]; Kind and Code of ack become those of the job. It replaces an
// earlier acknowledgement; nil removes one, if the job has any. The job runs, waits or has ended as before. It returns ErrNotFound if
// there is no job with that job id or replication id, and ErrNoAttention if the job needs nobody, whether it is acknowledged or not.
func (s *Requests) Acknowledge(ctx context.Context, id string, ack *replicator.Acknowledgement) error {
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		job, err := s.reservations.resolve(tx.Snapshot(), id)
		if job, err = s.pages.opened(tx.Snapshot(), job, err); err != nil {
			return err
		}
		if ack == nil {
			return s.setAcknowledged(tx, job.ID, nil)
		}
		needs := job.State.Attention()
		if needs.Kind == "" {
			return fmt.Errorf("%w: %q", ErrNoAttention, id)
		}
		return s.setAcknowledged(tx, job.ID, ack.Of(needs))
	})
}

// AcknowledgeProblem acknowledges the jobs of a problem that [Lists.Problems] has returned, without those of paused databases. It returns
// the number of jobs. After an error some may be acknowledged: the problem has the others.
func (s *Requests) AcknowledgeProblem(ctx context.Context, p *Problem, ack replicator.Acknowledgement) (n int, err error) {
	done := map[string]bool{} // also by transactions whose result is not known
	for _, key := range p.keys {
		_, err := parts(ctx, s.db, acknowledgedAtOnce, nil, func(tx kv.Transaction, after tuple.Tuple, most int) (tuple.Tuple, bool, error) {
			return s.acknowledgeSome(tx, p, fdbjobs.EntryRange{Prefix: key, After: after, Limit: most}, ack, done)
		})
		if err != nil {
			return len(done), fmt.Errorf("acknowledging the jobs of a problem: %w", err)
		}
	}
	return len(done), nil
}

// acknowledgeSome acknowledges the jobs of some entries of a problem, without those of paused databases. It returns the end of the last
// entry's key, and whether there may be more.
func (s *Requests) acknowledgeSome(
	tx kv.Transaction, p *Problem, r fdbjobs.EntryRange, ack replicator.Acknowledgement, done map[string]bool,
) (last tuple.Tuple, more bool, err error) {
	q, err := s.readQuiet(tx.Snapshot())
	if err != nil {
		return nil, false, err
	}
	found, err := s.timed(tx.Snapshot(), indexNeeds, r).Await()
	if err != nil {
		return nil, false, err
	}
	for _, j := range found {
		last = j.key()
		if q.has(j.id) {
			continue
		}
		needs := p.Attention
		needs.Since = readTime(j.at)
		if err := s.setAcknowledged(tx, j.id, ack.Of(needs)); err != nil {
			return nil, false, err
		}
		done[j.id] = true
	}
	return last, len(found) == r.Limit, nil
}

// setAcknowledged writes the acknowledgement of a job, or removes it if ack is nil. Nothing else of the job changes. If its definition
// cannot be opened, only what lists show of it has the acknowledgement.
func (s *core) setAcknowledged(tx kv.Transaction, id string, ack *replicator.Acknowledgement) error {
	now := tx.Snapshot() // Amend conflicts with each write of the job
	reading := s.jobs.Read(now, id)
	raw, err := s.jobs.Get(now, id)
	if err != nil {
		return err
	}
	lists, err := reading.Await()
	if err != nil {
		return err
	}
	amended := func(text json.RawMessage, encode func(*replicator.JobArgs) ([]byte, error)) (json.RawMessage, error) {
		if text == nil {
			return nil, nil
		}
		var args replicator.JobArgs
		if err := json.Unmarshal(text, &args); err != nil {
			return nil, fmt.Errorf("reading the args of the replication job %q: %w", id, err)
		}
		if ack == nil && args.Acknowledged == nil {
			return nil, nil
		}
		args.Acknowledged = ack
		return encode(&args)
	}
	args, err := amended(raw.Args, (*replicator.JobArgs).Stored)
	if err != nil {
		return err
	}
	listed, err := amended(lists.Listed, func(a *replicator.JobArgs) ([]byte, error) { return json.Marshal(a) })
	if err != nil || args == nil && listed == nil {
		return err
	}
	return s.jobs.Amend(tx, id, args, listed)
}

// removeAcknowledgements removes the acknowledgements whose end has come.
func (s *Upkeep) removeAcknowledgements(ctx context.Context) error {
	_, err := parts(ctx, s.db, acknowledgedAtOnce, nil, func(tx kv.Transaction, after tuple.Tuple, most int) (tuple.Tuple, bool, error) {
		ended := fdbjobs.EntryRange{
			Prefix: tuple.Tuple{string(replicator.MarkAcknowledged)}, After: after, Until: tuple.Tuple{time.Now().Unix() + 1}, Limit: most,
		}
		found, err := s.timed(tx.Snapshot(), indexMarks, ended).Await()
		if err != nil {
			return nil, false, err
		}
		for _, j := range found {
			after = j.key()
			if err := s.setAcknowledged(tx, j.id, nil); err != nil {
				return nil, false, err
			}
		}
		return after, len(found) == most, nil
	})
	if err != nil {
		return fmt.Errorf("removing acknowledgements that have ended: %w", err)
	}
	return nil
}
