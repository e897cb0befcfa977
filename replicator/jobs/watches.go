package jobs

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Watches is what the watches of servers (package watch) do with the jobs whose sources are on their servers: they read the rows
// of parked jobs, ask for changes, wake jobs, and publish events to mirrors.
type Watches struct {
	*core
	// Queue is the job layer's queue of watches. Its jobs have no args, and begin with the state {}.
	Queue   *fdbjobs.Queue
	parking *parkedRows
	mirrors *mirrorRows
}

// ParkedOf returns up to limit rows of a server in the order of database and job id: those after a row, which need not
// exist, or from the first one if after is the zero value.
func (s *Watches) ParkedOf(ctx context.Context, server string, after ParkedRow, limit int) ([]ParkedRow, error) {
	all := rows.Range(s.space.Sub("parked", server))
	if after != (ParkedRow{}) {
		all.Begin = kv.KeyAfter(s.parking.parkedKey(source{server, after.Database}, after.JobID))
	}
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]ParkedRow, error) {
		pairs, err := tx.Snapshot().GetRange(all, kv.RangeOptions{Limit: max(limit, 1)}).Slice()
		if err != nil {
			return nil, err
		}
		found := make([]ParkedRow, len(pairs))
		for i, pair := range pairs {
			if found[i], err = s.parking.parseParked(pair); err != nil {
				return nil, err
			}
		}
		return found, nil
	})
}

// Asks returns up to limit rows of a server whose question is due by a time, the earliest first, and when the next one
// after them is due, which may be in the past. next is zero if there is no other. A row that [Run.Parking] wrote is due
// five seconds later. A row that is due later than any can be is due, too: it has a time of another clock, or of this one
// before it was put back.
func (s *Watches) Asks(ctx context.Context, server string, by time.Time, limit int) (found []ParkedRow, next time.Time, err error) {
	limit = max(limit, 1)
	err = s.db.Transact(ctx, func(tx kv.Transaction) error {
		found, next = nil, time.Time{}
		index := s.space.Sub("asks", server)
		asks, err := s.readAsks(tx.Snapshot(), server, rows.Range(index), limit+1)
		if err != nil {
			return err
		}
		for i, row := range asks {
			if i == limit || row.Ask.Unix() > by.Unix() {
				asks, next = asks[:i], row.Ask
				break
			}
		}
		if left := limit - len(asks); left > 0 && !next.IsZero() {
			late, err := s.readAsks(tx.Snapshot(), server, rows.From(index, index.Pack(by.Add(LastAsk+FirstAsk).Unix())), left)
			if err != nil {
				return err
			}
			asks = append(asks, late...)
		}
		some, err := s.parking.again(tx.Snapshot(), asks)
		for _, row := range some {
			if row != nil {
				found = append(found, *row)
			}
		}
		return err
	})
	return found, next, err
}

// AskedAfter returns up to limit rows of a server whose questions are due after the question of another row, and by a time,
// the earliest first. The rows lack UpdateSeq, Target and Lost. The questions of jobs that are parked now are due FirstAsk later.
func (s *Watches) AskedAfter(ctx context.Context, server string, after ParkedRow, by time.Time, limit int) ([]ParkedRow, error) {
	index := s.space.Sub("asks", server)
	some := kv.KeyRange{Begin: kv.KeyAfter(index.Pack(after.ask(), after.JobID)), End: index.Pack(by.Unix() + 1)}
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]ParkedRow, error) {
		return s.readAsks(tx.Snapshot(), server, some, max(limit, 1))
	})
}

// readAsks returns the first rows of a range of questions, as AskedAfter does.
func (s *Watches) readAsks(tx kv.ReadTransaction, server string, some kv.KeyRange, limit int) ([]ParkedRow, error) {
	index := s.space.Sub("asks", server)
	pairs, err := tx.GetRange(some, kv.RangeOptions{Limit: limit}).Slice()
	found := make([]ParkedRow, len(pairs))
	for i, pair := range pairs {
		row, seconds := ParkedRow{Server: server, Database: string(pair.Value)}, int64(0)
		if err := rows.ScanKey("the questions to a server", index, pair.Key, &seconds, &row.JobID); err != nil {
			return nil, err
		}
		row.Ask = time.Unix(seconds, 0)
		found[i] = row
	}
	return found, err
}

// asksAtOnce is the number of rows that one transaction of Ask writes.
const asksAtOnce = 200

// Ask sets when the sources of some rows are asked next. at is called with each row as it is now, and may be called
// again. It returns the zero time for a row that is not to be asked, because its server has a feed. Rows that are gone or
// woken stay as they are.
func (s *Watches) Ask(ctx context.Context, some []ParkedRow, at func(ParkedRow) time.Time) error {
	return inParts(some, asksAtOnce, func(part []ParkedRow) error {
		return s.db.Transact(ctx, func(tx kv.Transaction) error {
			found, err := s.parking.again(tx, part)
			if err != nil {
				return err
			}
			for _, old := range found {
				if old == nil || old.Woken {
					continue
				}
				next := *old
				if next.Ask = at(*old); next.ask() != old.ask() {
					s.parking.setParked(tx, old, next)
				}
			}
			return nil
		})
	})
}

// Unwatch ends the watch of a server if it has no parked jobs and no mirrors, and reports whether it did. The caller finishes the job of
// the watch in the same transaction if ended is true, and leaves it running otherwise.
func (s *Watches) Unwatch(tx kv.Transaction, server string) (ended bool, err error) {
	watched := tx.Get(s.parking.watchedKey(server))
	first := tx.GetRange(rows.Range(s.space.Sub("parked", server)), kv.RangeOptions{Limit: 1})
	mirrors := s.jobs.Entries(tx, indexMirrors, fdbjobs.EntryRange{Prefix: tuple.Tuple{server}, Limit: 1})
	if _, err := watched.Await(); err != nil {
		return false, err
	}
	if pairs, err := first.Slice(); err != nil || len(pairs) > 0 {
		return false, err
	}
	if found, err := mirrors.Await(); err != nil || len(found) > 0 {
		return false, err
	}
	tx.Clear(s.parking.watchedKey(server))
	tx.Clear(s.parking.parksKey(server))
	return true, nil
}

// ownerRows is the number of rows among whose owners Reown chooses.
const ownerRows = 20

// Reown gives a watch that waits to another owner: of some of its jobs, the owner with the fewest watches. So a watch that
// several users need does not wait behind the many watches of one of them.
func (s *Watches) Reown(ctx context.Context, server string) error {
	all := s.space.Sub("parked", server)
	some, most := rows.Range(all), rows.Range(all)
	some.Begin = all.Pack(string(rune('a' + mathrand.IntN(26)))) // by chance, or all jobs of one user may come first
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		now := tx.Snapshot()
		reading := tx.Get(s.parking.watchedKey(server))
		owners := map[string]bool{}
		for _, r := range []kv.KeyRange{some, most} {
			pairs, err := now.GetRange(r, kv.RangeOptions{Limit: ownerRows}).Slice()
			if err != nil {
				return err
			}
			if err := s.addOwners(now, pairs, owners); err != nil {
				return err
			}
		}
		if value, err := reading.Await(); err != nil || value == nil {
			return err
		}
		watch, err := s.watches.Read(tx, server).Await()
		if err != nil || watch == nil || watch.Status != fdbjobs.Pending || len(owners) == 0 {
			return err
		}
		owner, err := s.fewestWatches(now, owners, watch.Owner)
		if err != nil || owner == watch.Owner {
			return err
		}
		return s.watches.Add(tx, fdbjobs.Spec{ID: server, Owner: owner})
	})
}

// addOwners adds the owners of the jobs of some rows.
func (s *Watches) addOwners(tx kv.ReadTransaction, pairs []kv.KeyValue, owners map[string]bool) error {
	reads := make([]kv.Future[*fdbjobs.Job], 0, len(pairs))
	for _, pair := range pairs {
		row, err := s.parking.parseParked(pair)
		if err != nil {
			return err
		}
		reads = append(reads, s.jobs.Read(tx, row.JobID))
	}
	found, err := kv.All(reads)
	for _, job := range found {
		if job != nil {
			owners[job.Owner] = true
		}
	}
	return err
}

// fewestWatches returns the owner with the fewest watches beside the one that it is to have, which belongs to has. So the answer
// is the same after that watch was given to it.
func (s *Watches) fewestWatches(tx kv.ReadTransaction, owners map[string]bool, has string) (fewest string, err error) {
	least := int64(-1)
	for owner := range owners {
		counts, _, err := s.watches.Counts(tx, fdbjobs.Selection{Owner: &owner, Parts: []fdbjobs.Part{{Status: fdbjobs.Pending}, {Status: fdbjobs.Running}}})
		if err != nil {
			return "", err
		}
		n := int64(0)
		for _, count := range counts {
			n += count
		}
		if owner == has {
			n--
		}
		if least < 0 || n < least || n == least && owner < fewest {
			fewest, least = owner, n
		}
	}
	return fewest, nil
}

// OldestDue returns since when the watch that is due for the longest time waits for a node, or the zero time if none waits.
func (s *Watches) OldestDue(ctx context.Context) (since time.Time, err error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (time.Time, error) {
		return s.watches.OldestDue(tx.Snapshot())
	})
}

// AwaitParked returns a watch that ends when a job whose source is on a server is about to be parked. Read the rows after
// AwaitParked has returned, and then wait with kv.AwaitChange: so no row is missed. The caller cancels the watch.
func (s *Watches) AwaitParked(ctx context.Context, server string) (kv.Watch, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (kv.Watch, error) {
		return tx.Watch(s.parking.parksKey(server)), nil
	})
}

// Mirrors returns up to limit continuous mirrors whose sources are a server, in the order of their job ids: those after one.
func (s *Watches) Mirrors(ctx context.Context, server, after string, limit int) (found []*Job, more bool, err error) {
	r := fdbjobs.EntryRange{Prefix: tuple.Tuple{server}, Limit: min(max(limit, 1), mirrorsAtOnce)}
	if after != "" {
		r.After = tuple.Tuple{after}
	}
	err = s.db.Transact(ctx, func(tx kv.Transaction) error {
		found = nil
		entries, err := s.jobs.Entries(tx.Snapshot(), indexMirrors, r).Await()
		if err != nil {
			return err
		}
		more = len(entries) == r.Limit
		for _, e := range entries {
			job, err := s.mirrors.liveMirror(tx.Snapshot(), e.ID)
			if err != nil {
				return err
			}
			if job != nil && job.IsMirror() {
				found = append(found, job)
			}
		}
		return nil
	})
	return found, more, err
}

// Publish publishes events to the mirrors of a server. A mirror that may not get names looks at all databases instead. The
// databases must differ. More than eventsAtOnce events are published in several transactions. Publish may be repeated.
func (s *Watches) Publish(ctx context.Context, server string, events []MirrorEvent) error {
	for after := ""; ; {
		mirrors, more, err := s.Mirrors(ctx, server, after, mirrorsAtOnce)
		if err != nil {
			return err
		}
		for _, mirror := range mirrors {
			if err := s.publishTo(ctx, mirror, events); err != nil {
				return err
			}
			after = mirror.ID
		}
		if !more || len(mirrors) == 0 {
			return nil
		}
	}
}

// eventsAtOnce is the maximum number of events that one transaction writes.
const eventsAtOnce = 500

// listedFor is for how long after its last look at the list of databases a mirror gets their names.
const listedFor = 25 * time.Hour

// mayGetNames reports whether a mirror may get the names of databases that another login has seen: it runs, and its own
// login has listed the databases lately.
func mayGetNames(mirror *Job, now time.Time) bool {
	progress := mirror.State.Mirror
	return mirror.Status == fdbjobs.Running && progress != nil && now.Sub(progress.LastLook) < listedFor
}

func (s *Watches) publishTo(ctx context.Context, mirror *Job, events []MirrorEvent) error {
	if !mayGetNames(mirror, time.Now()) {
		events = []MirrorEvent{{Type: EventMissed}} // it looks with its own login
	}
	selected := make([]MirrorEvent, 0, len(events))
	for _, e := range events {
		if e.Type == EventMissed || len(e.Database) <= maxDatabaseSize && mirror.Args.Replication.Selects(e.Database) {
			selected = append(selected, e)
		}
	}
	token := rand.Text()
	return inParts(selected, eventsAtOnce, func(part []MirrorEvent) error {
		return s.db.Transact(ctx, func(tx kv.Transaction) error {
			live, err := s.mirrors.liveMirror(tx, mirror.ID)
			if err == nil && live != nil {
				s.mirrors.addEvents(tx, mirror.ID, token, part...)
			}
			return err
		})
	})
}
