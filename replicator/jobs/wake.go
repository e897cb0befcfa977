package jobs

import (
	"context"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

const (
	// wakeAtOnce is the number of jobs that one transaction of Wake makes due.
	wakeAtOnce = 100
	// wakeDatabases is the number of databases whose rows it reads.
	wakeDatabases = 50
)

// Wake makes the parked jobs of some databases of a server due, because these databases have changed. It also marks the
// rows of jobs whose runs are about to park, so that [Run.Park] queues them at once. Rows that are marked already cost
// their reading. n is the number of jobs that became due, also if Wake fails. Wake may be repeated.
func (s *Watches) Wake(ctx context.Context, server string, databases []string) (n int, err error) {
	var begin waking
	databases = slices.Clone(databases)
	slices.Sort(databases)
	for _, database := range slices.Compact(databases) {
		if database != "" && len(database) <= maxDatabaseSize {
			begin.left = append(begin.left, wakePlace{source{server, database}, ""})
		}
	}
	if len(begin.left) == 0 || len(server) > maxServerSize {
		return 0, nil
	}
	earlier := map[string]bool{}
	end, err := parts(ctx, s.db, wakeAtOnce, begin, func(tx kv.Transaction, from waking, most int) (waking, bool, error) {
		places := from.left[:min(len(from.left), wakeDatabases, most)]
		woken, unread, err := s.wake(tx, places, most/len(places), earlier)
		next := waking{append(from.left[len(places):], unread...), from.woken + woken}
		return next, len(next.left) > 0, err
	})
	return end.woken, err
}

// waking is how far a call of Wake is: the databases whose rows are not read to the end, and the number of jobs that became due.
type waking struct {
	left  []wakePlace
	woken int
}

// wakePlace is where the rows of a database are read next: after the row of a job.
type wakePlace struct {
	source
	after string
}

// wake wakes up to each jobs of some databases. It returns how many became due, and the databases that may have more rows. earlier has
// the jobs that a run of a transaction has made due, also of one that failed after a commit whose result was unknown.
func (s *Watches) wake(tx kv.Transaction, places []wakePlace, each int, earlier map[string]bool) (n int, unread []wakePlace, err error) {
	reads := make([]kv.RangeResult, len(places))
	for i, place := range places {
		all := s.space.Sub("parked", place.server, place.database)
		r := rows.Range(all)
		if place.after != "" {
			r.Begin = kv.KeyAfter(all.Pack(place.after))
		}
		reads[i] = tx.GetRange(r, kv.RangeOptions{Limit: each})
	}
	var found []ParkedRow
	for i, place := range places {
		pairs, err := reads[i].Slice()
		if err != nil {
			return 0, nil, err
		}
		for _, pair := range pairs {
			row, err := s.parking.parseParked(pair)
			if err != nil {
				return 0, nil, err
			}
			place.after = row.JobID
			switch {
			case !row.Woken:
				found = append(found, row)
			case earlier[row.JobID]:
				n++ // that run was committed
			}
		}
		if len(pairs) == each {
			unread = append(unread, place)
		}
	}
	due, err := s.wakeRows(tx, found, earlier)
	return n + due, unread, err
}

// wakeRows marks rows, and makes their jobs due that are parked. It returns how many became due, and notes them in made.
func (s *Watches) wakeRows(tx kv.Transaction, found []ParkedRow, made map[string]bool) (n int, err error) {
	ids := make([]string, len(found))
	for i, row := range found {
		next := row
		next.Woken, next.Ask = true, time.Time{}
		s.parking.setParked(tx, &row, next)
		ids[i] = row.JobID
	}
	due, err := s.jobs.MakeDue(tx, ids, tagParked, "")
	for i, is := range due {
		if is {
			made[ids[i]] = true
			n++
		}
	}
	return n, err
}
