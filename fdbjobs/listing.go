package fdbjobs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Position is a place in a list of jobs by owner and id: after this job, which need not exist.
type Position struct{ Owner, ID string }

// afterOwner returns the place after all jobs of an owner.
func afterOwner(owner string) Position { return Position{Owner: owner + "\x00"} }

// Selection selects jobs of a queue, for lists and counts.
type Selection struct {
	// Parts are the parts whose jobs are selected.
	Parts []Part
	// Owner is the owner whose jobs are selected. nil selects those of all owners.
	Owner *string
	// Instead has other parts of some owners, which are selected instead of Parts.
	Instead map[string][]Part
}

// place returns a position with the owner of the selection, if it has one.
func (s Selection) place(p Position) Position {
	if s.Owner != nil {
		p.Owner = *s.Owner
	}
	return p
}

// areListed returns an error if the queue's jobs are not listed.
func (q *Queue) areListed() error {
	if q.unlisted() {
		return fmt.Errorf("%w: the jobs of the queue %q are not listed", ErrInvalid, q.name)
	}
	return nil
}

// List reads selected jobs by owner and id: at most limit jobs, from the first after a position. If one owner's jobs are
// selected, only the ID of the position counts. List reads the counters of the owners from there that have jobs with the
// parts' statuses, and does not read args: see [Spec].Listed.
func (q *Queue) List(tx kv.ReadTransaction, s Selection, after Position, limit int) ([]*Job, error) {
	if err := q.areListed(); limit <= 0 || err != nil {
		return nil, err
	}
	after = s.place(after)
	var reads []kv.Future[[]string]
	left := limit // without the jobs of after.Owner, of which any number may come before after
	for t, err := range q.in(tx, after.Owner, s) {
		if err != nil {
			return nil, err
		}
		if t.owner == after.Owner {
			reads = append(reads, q.readIDs(tx, t.owner, after.ID, limit, t.parts))
			continue
		}
		reads = append(reads, q.readIDs(tx, t.owner, "", left, t.parts))
		if left -= int(min(t.n, int64(left))); left == 0 {
			break
		}
	}
	var found []kv.Future[*Job]
	for _, read := range reads {
		ids, err := read.Await()
		if err != nil {
			return nil, err
		}
		for _, id := range ids[:min(len(ids), limit-len(found))] {
			found = append(found, q.readListed(tx, tx, id))
		}
	}
	jobs, err := kv.All(found)
	if err != nil {
		return nil, fmt.Errorf("reading a list: %w", err)
	}
	return jobs, nil
}

// Read starts reading a job as List does. Its result is nil if the job does not exist.
func (q *Queue) Read(tx kv.ReadTransaction, id string) kv.Future[*Job] {
	read := q.readListed(tx, tx, id)
	return kv.Func[*Job](func() (*Job, error) {
		job, err := read.Await()
		if errors.Is(err, ErrNotFound) {
			return nil, nil
		}
		return job, err
	})
}

// Skip returns the position of the nth job, from 1, of those that List would list after a position. If there are fewer, it
// returns the end of the list: of the list of one owner, its last job, or after itself if there is none. It reads counters as
// List does, and at most n keys of the index of the last owner.
func (q *Queue) Skip(tx kv.ReadTransaction, s Selection, after Position, n int) (Position, error) {
	if err := q.areListed(); n <= 0 || err != nil {
		return after, err
	}
	after = s.place(after)
	for t, err := range q.in(tx, after.Owner, s) {
		if err != nil {
			return after, err
		}
		if t.owner != after.Owner && t.n <= int64(n) {
			after, n = afterOwner(t.owner), n-int(t.n)
		} else {
			if t.owner != after.Owner {
				after = Position{Owner: t.owner}
			}
			ids, err := q.readIDs(tx, t.owner, after.ID, n, t.parts).Await()
			if err != nil {
				return after, err
			}
			if n -= len(ids); len(ids) > 0 {
				after.ID = ids[len(ids)-1]
			}
		}
		if n == 0 {
			break
		}
	}
	return after, nil
}

// readIDs starts reading the ids of an owner's jobs in some parts that are greater than after, in order, at most limit.
func (q *Queue) readIDs(tx kv.ReadTransaction, owner, after string, limit int, parts []Part) kv.Future[[]string] {
	if limit <= 0 {
		return kv.Known[[]string](nil)
	}
	var reads []kv.Future[[]string]
	for _, part := range parts {
		ids := idRange{tx: tx, of: q.keys.jobsOf(owner, part), after: after}
		if part.Tag == "" && part.Status != Finished {
			// Pending and running jobs have the same entries. Those that run are in active, too.
			active := ids
			active.of = q.keys.activeOf(owner, part.Label)
			pending := slices.Contains(parts, Part{Status: Pending, Label: part.Label})
			switch {
			case part.Status == Pending && !slices.Contains(parts, Part{Status: Running, Label: part.Label}):
				reads = append(reads, ids.without(active, limit))
				continue
			case part.Status == Running && pending:
				continue // with the pending ones
			case part.Status == Running:
				ids = active
			}
		} else if part.Status == Running {
			continue // a job that runs has no tag
		}
		reads = append(reads, ids.read(limit))
	}
	return kv.Func[[]string](func() ([]string, error) {
		all, err := kv.All(reads)
		found := slices.Concat(all...)
		slices.Sort(found)
		return found[:min(limit, len(found))], err
	})
}

// idRange is the keys of a subspace that end with an id greater than after. An empty after is less than all ids.
type idRange struct {
	tx    kv.ReadTransaction
	of    tuple.Subspace
	after string
}

// read starts reading the first ids.
func (r idRange) read(limit int) kv.Future[[]string] {
	keys := rows.Range(r.of)
	if r.after != "" {
		keys.Begin = kv.KeyAfter(r.of.Pack(r.after))
	}
	return readAll(r.tx, keys, kv.RangeOptions{Limit: limit}, lastString(r.of))
}

// without starts reading the first ids that another range, whose ids are all in this one, does not have.
func (r idRange) without(other idRange, limit int) kv.Future[[]string] {
	page := limit
	ids, others := r.read(page), other.read(page)
	return kv.Func[[]string](func() (found []string, err error) {
		for {
			some, err := ids.Await()
			if err != nil {
				return nil, err
			}
			left, err := others.Await() // at least all that are among some
			if err != nil {
				return nil, err
			}
			there := make(map[string]bool, len(left))
			for _, id := range left {
				there[id] = true
			}
			for _, id := range some {
				if !there[id] {
					found = append(found, id)
				}
			}
			if len(some) < page || len(found) >= limit {
				return found[:min(limit, len(found))], nil
			}
			r.after, page = some[len(some)-1], min(2*page, mostIDs)
			other.after = r.after
			ids, others = r.read(page), other.read(page)
		}
	})
}

// mostIDs limits the number of ids in one read of idRange.without, which doubles with each read.
const mostIDs = 10_000

// OldestDue returns the time for which the due job that waits longest is scheduled, of all owners, or the zero time if no
// job is due. Of the jobs that are ready it reads the first one of each of the 100 owners that are served next. Jobs of
// paused owners do not count.
func (q *Queue) OldestDue(tx kv.ReadTransaction) (time.Time, error) {
	now := q.layer.now().Unix()
	reading := q.firstDelayed(tx, 0)
	ready, err := q.firstReady(tx)
	if err != nil {
		return time.Time{}, err
	}
	delayed, err := reading.Await()
	if err != nil {
		return time.Time{}, err
	}
	oldest := now + 1
	for _, d := range delayed {
		oldest = d.scheduled
	}
	for _, row := range ready {
		if row != nil {
			oldest = min(oldest, row.scheduled)
		}
	}
	if oldest > now {
		return time.Time{}, nil
	}
	return unixTime(oldest), nil
}

// firstReady returns the rows of the first ready jobs of the owners that are served next.
func (q *Queue) firstReady(tx kv.ReadTransaction) ([]*row, error) {
	owners, err := q.share.byRank(tx, "", 0, ownersAtATime).next(ownersAtATime)
	if err != nil {
		return nil, err
	}
	reads := make([]kv.Future[[]kv.KeyValue], len(owners))
	for i, o := range owners {
		reads[i] = q.readReady(tx, o.owner, 1)
	}
	firsts, err := kv.All(reads)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, pairs := range firsts {
		for _, pair := range pairs {
			id, err := q.keys.readyID(pair.Key)
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
	}
	return q.readRows(tx, ids)
}

// DueBefore counts the jobs of the same owner that became due before a job that waits to be taken, up to limit. more
// reports whether there are others. A job that no process has yet moved to the owner's rows comes after all of these.
// DueBefore returns zero and false for a job that does not exist, or does not wait to be taken.
func (q *Queue) DueBefore(tx kv.ReadTransaction, id string, limit int) (n int, more bool, err error) {
	row, err := q.readRow(tx, id).Await()
	if err != nil || row == nil || row.status != Pending || row.scheduled > q.layer.now().Unix() {
		return 0, false, err
	}
	ready := rows.Range(q.keys.ready.Sub(row.owner))
	if row.sequence != nil {
		ready.End = q.keys.ready.Pack(row.owner, *row.sequence, id)
	}
	pairs, err := tx.GetRange(ready, kv.RangeOptions{Limit: limit + 1}).Slice()
	return min(len(pairs), limit), len(pairs) > limit, err
}
