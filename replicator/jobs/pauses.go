package jobs

import (
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
	"settee/replicator"
)

// Pauses, on one page. A database or a document can be paused, and a job does not run while either is.
//
// A database is paused while [replicator.shares] gives it 0. Its owner then has the weight 0, and claims do not meet it. Each
// node stops its runs when it sees the setting (shares.go of the scheduler), and a run that was taken before the weight was
// set is stopped as it begins. When the database was paused, and which weight it had before, is in
//
//	("paused", owner) -> (seconds since the Unix epoch, weight before)
//
// which setWeight writes and clears in the transaction that changes the weight.
//
// A document is paused while it says `"paused": true`. Its job is pending with the tag "paused", and scheduled for a time
// that does not come. Its args say since when, and when it would have run. Its definition is the same one, so its state
// stays: a job that is resumed goes on with its errors, its wait and its progress.
//
// A mirror is paused as other documents are, and its run adds and starts no jobs from that commit on. The jobs of its databases follow
// in the next transactions: there may be 100,000 of them. Upkeep brings each in line with the mirror, some at a time
// (mirrorpauses.go). Then they are paused like other jobs, so that what is listed and counted of them follows from their rows.
//
// A run whose document is paused has lost its job, as if the definition had changed: it writes what it has read and its last
// checkpoint, and [Run.Release] writes its end into the state.

// pause says whether an owner is paused. since and before are zero if they are not known.
type pause struct {
	paused bool
	since  time.Time
	before float64
}

func (s *usageRows) pauseKey(owner string) []byte { return s.space.Pack("paused", owner) }

// setWeight sets the weight of an owner.
func (s *usageRows) setWeight(tx kv.Transaction, owner string, weight float64) error {
	weights, err := s.jobs.Weights(tx, owner)
	before := weights[owner]
	if err != nil || before == weight {
		return err
	}
	switch {
	case weight == 0:
		tx.Set(s.pauseKey(owner), tuple.Tuple{time.Now().Unix(), before}.Pack())
	case before == 0:
		tx.Clear(s.pauseKey(owner))
	}
	return s.jobs.SetWeight(tx, owner, weight)
}

// readPause returns whether an owner is paused.
func (s *usageRows) readPause(tx kv.ReadTransaction, owner string) (pause, error) {
	if _, _, ok := ownerDatabase(owner); !ok {
		return pause{}, nil
	}
	row := tx.Get(s.pauseKey(owner))
	weights, err := s.jobs.Weights(tx, owner)
	if err != nil || weights[owner] > 0 {
		return pause{}, err
	}
	value, err := row.Await()
	if err != nil || value == nil {
		return pause{paused: true}, err
	}
	return parsePause(value)
}

// pausedOwners returns the owners that are paused. It reads one row for each owner whose weight is not the default one.
func (s *core) pausedOwners(tx kv.ReadTransaction) (paused []string, err error) {
	weights, err := s.jobs.Weights(tx)
	for owner, weight := range weights {
		if _, _, ok := ownerDatabase(owner); ok && weight == 0 {
			paused = append(paused, owner)
		}
	}
	return paused, err
}

func parsePause(value []byte) (pause, error) {
	var since int64
	p := pause{paused: true}
	if err := rows.Scan("when a database was paused", value, &since, &p.before); err != nil {
		return pause{}, err
	}
	p.since = time.Unix(since, 0)
	return p, nil
}

func (j *Job) setPause(p pause) {
	if j.Status != fdbjobs.Finished {
		j.Paused, j.PausedSince = p.paused, p.since
	}
}

// IsPaused reports whether the job has not ended and its document, its mirror or its database is paused. The pause of its
// database must have been read. Such a job needs no attention.
func (j *Job) IsPaused() bool {
	return j.Status != fdbjobs.Finished && (j.Args.Paused != nil || j.Paused)
}

// pausedFor is how long a job waits that is paused.
const pausedFor = 100 * 365 * 24 * time.Hour

// setPaused pauses or resumes a job whose definition stays.
func (s *writer) setPaused(tx kv.Transaction, existing *Job, paused bool, order uint16) error {
	job, args, now := *existing, *existing.Args, time.Now()
	job.Args = &args
	spec := fdbjobs.Spec{Order: order}
	if paused {
		args.Paused = existing.pausedAt(now)
		spec.Scheduled, spec.Tag = now.Add(pausedFor), tagPaused
	} else {
		var err error
		if spec.Scheduled, spec.Tag, err = existing.resumedAt(now); err != nil {
			return err
		}
		args.Paused, job.State = nil, existing.resumedState()
	}
	return s.put(tx, existing, &job, spec) // the next run looks for changes
}

// resumedState returns the state of a job that is resumed. Of a mirror's database nothing is known since the pause, so its target may
// lack changes since then.
func (j *Job) resumedState() *replicator.JobState {
	if j.State.Mirrored == nil || j.Status != fdbjobs.Pending || j.State.Behind != nil {
		return j.State
	}
	next := *j.State
	next.Behind = &replicator.Behind{Since: j.Args.Paused.Since}
	return &next
}

// pausedAt returns the pause of a job that is paused now.
func (j *Job) pausedAt(now time.Time) *replicator.Pause {
	p := &replicator.Pause{Since: now, Crashing: j.Condition() == replicator.StateCrashing, Turn: j.tag == tagTurn}
	if next := j.nextRun(); next.After(now) {
		p.Next = next
	}
	return p
}

// resumedAt returns when a paused job runs that is resumed now, and its tag until then.
func (j *Job) resumedAt(now time.Time) (at time.Time, tag string, err error) {
	p := j.Args.Paused
	switch {
	case p.Crashing:
		return p.Next, tagCrashing, nil
	case p.Turn:
		return now.Add(pausedFor), tagTurn, nil
	case p.Next.IsZero() && j.State.StartTime.IsZero() && j.Args.Replication.Periodic(): // it was paused when it was added
		at, err = j.Args.Replication.NextRun(time.Time{}, now)
	default:
		at = p.Next
	}
	return at, waitingTag(at, now), err
}
