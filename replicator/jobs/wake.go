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
	// wakeTime is the longest time for one transaction that wakes several jobs. Its commit must come before
	// kv.MaxTransactionAge.
	wakeTime = kv.MaxTransactionAge / 2
)

// Wake makes the parked jobs of some databases of a server due, because these databases have changed. It also marks the
// rows of jobs whose runs are about to park, so that [Run.Park] queues them at once. Rows that are marked already cost
// their reading. n is the number of jobs that became due, also if Wake fails. Wake may be repeated.
func (s *Watches) Wake(ctx context.Context, server string, databases []string) (n int, err error) {
	w := waking{store: s, server: server, limit: wakeAtOnce, earlier: map[string]bool{}}
	databases = slices.Clone(databases)
	slices.Sort(databases)
	for _, database := range slices.Compact(databases) {
		if database != "" && len(database) <= maxDatabaseSize {
			w.left = append(w.left, wakePlace{database: database})
		}
	}
	for len(w.left) > 0 && len(server) <= maxServerSize {
		woken, err := w.some(ctx)
		n += woken
		if kv.TooMuch(err) && w.limit > 1 {
			w.limit /= 2
			continue
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// waking is a call of Wake.
type waking struct {
	store  *Watches
	server string
	limit  int         // of jobs in one transaction
	left   []wakePlace // databases that have not been read to the end
	// earlier has the jobs that a run of a transaction has made due, also of one that failed after a commit whose result
	// was unknown.
	earlier map[string]bool
}

// wakePlace is where the rows of a database are read next: after the row of a job.
type wakePlace struct{ database, after string }

// some wakes some jobs in one transaction. It returns how many became due.
func (w *waking) some(ctx context.Context) (int, error) {
	places := w.left[:min(len(w.left), wakeDatabases, w.limit)]
	each := w.limit / len(places)
	var until time.Time
	if w.limit > 1 {
		until = time.Now().Add(wakeTime)
	}
	var unread []wakePlace // databases that may have more rows
	n, err := kv.TransactValue(ctx, w.store.db, func(tx kv.Transaction) (int, error) {
		unread = nil
		n, err := w.wake(tx, places, each, &unread)
		return n, kv.InTime(until, err)
	})
	if err == nil {
		w.left = append(w.left[len(places):], unread...)
	}
	return n, err
}

func (w *waking) wake(tx kv.Transaction, places []wakePlace, each int, unread *[]wakePlace) (n int, err error) {
	s := w.store
	reads := make([]kv.RangeResult, len(places))
	for i, place := range places {
		all := s.space.Sub("parked", w.server, place.database)
		r := rows.Range(all)
		if place.after != "" {
			r.Begin = kv.KeyAfter(all.Pack(place.after))
		}
		reads[i] = tx.GetRange(r, kv.RangeOptions{Limit: each})
	}
	var ids []string
	for i, place := range places {
		pairs, err := reads[i].Slice()
		if err != nil {
			return 0, err
		}
		for _, pair := range pairs {
			row, err := s.parking.parseParked(pair)
			if err != nil {
				return 0, err
			}
			place.after = row.JobID
			if row.Woken {
				if w.earlier[row.JobID] {
					n++ // that run was committed
				}
				continue
			}
			next := row
			next.Woken, next.Ask = true, time.Time{}
			s.parking.setParked(tx, &row, next)
			ids = append(ids, row.JobID)
		}
		if len(pairs) == each {
			*unread = append(*unread, place)
		}
	}
	due, err := s.jobs.MakeDue(tx, ids, tagParked, "", 0)
	if err != nil {
		return 0, err
	}
	for i, made := range due {
		if made {
			w.earlier[ids[i]] = true
			n++
		}
	}
	return n, nil
}
