package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// A server from which parked jobs wait for changes is watched by a job of the queue WatchQueue, whose id and owner are
// the URL of the server. Its keys are:
//
//	("watched", server) -> ""       the server has a watch
//	("parks", server)   -> int64    changes with each call of Run.Parking
//
// Who parks a job, and who ends the watch, reads the first key with a conflict. Who ends it also reads with a conflict
// that there are no rows. So no row is left without a watch. The same holds for the rows of mirrors (mirrors.go).

// WatchQueue is the name of the queue of watches. The id of a job is the URL of a server, see replicator.Endpoint.Server.
const WatchQueue = "watch"

// WatchStatus is the part of the state of a watch's job that people see: how the watch hears of changes, which a heartbeat
// of the job may not have told yet.
type WatchStatus struct {
	// By is ByFeed, ByQuestions, or empty while the watch begins.
	By string `json:"by,omitempty"`
	// Why says why the sources are asked. It may name what belongs to the job of another user.
	Why string `json:"why,omitempty"`
}

// The values of [WatchStatus].By: the watch follows the server's _db_updates, or asks the source of each job.
const (
	ByFeed      = "feed"
	ByQuestions = "questions"
)

// Waking is what wakes a parked job.
type Waking struct {
	// Server and Database are the job's source, see replicator.Endpoint.Server.
	Server, Database string
	WatchStatus
	// NextQuestion is when the source is asked next. It is zero if it is not asked.
	NextQuestion time.Time
}

// Waking returns what wakes a parked job, or nil if the job is not parked.
func (s *Store) Waking(ctx context.Context, job *Job) (*Waking, error) {
	if job.Parked().IsZero() {
		return nil, nil
	}
	of := sourceOf(job.State.Parked)
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (*Waking, error) {
		reading := s.readParked(tx.Snapshot(), of, job.ID)
		waking := &Waking{Server: of.server, Database: of.database}
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

// Watches returns the job layer's queue of watches. Its jobs have no args, and begin with the state {}.
func (s *Store) Watches() *fdbjobs.Queue { return s.watches }

func (s *Store) watchedKey(server string) []byte { return s.space.Pack("watched", server) }

func (s *Store) parksKey(server string) []byte { return s.space.Pack("parks", server) }

// watching starts reading whether a server is watched. The function that it returns adds the watch, if there is none, and
// tells it of a new row.
func (s *Store) watching(tx kv.Transaction, server string) func() error {
	reading := tx.Get(s.watchedKey(server))
	tx.Add(s.parksKey(server), 1)
	return func() error {
		value, err := reading.Await()
		if err != nil || value != nil {
			return err
		}
		return s.addWatch(tx, server)
	}
}

// addWatch adds the watch of a server that has none.
func (s *Store) addWatch(tx kv.Transaction, server string) error {
	tx.Set(s.watchedKey(server), nil)
	return s.watches.Add(tx, fdbjobs.Spec{ID: server, Owner: server})
}

// Unwatch ends the watch of a server if it has no parked jobs and no mirrors, and reports whether it did. The caller finishes the job of
// the watch in the same transaction if ended is true, and leaves it running otherwise.
func (s *Store) Unwatch(tx kv.Transaction, server string) (ended bool, err error) {
	watched := tx.Get(s.watchedKey(server))
	first := tx.GetRange(rows.Range(s.space.Sub("parked", server)), kv.RangeOptions{Limit: 1})
	mirrors := tx.GetRange(rows.Range(s.space.Sub("mirrors", server)), kv.RangeOptions{Limit: 1})
	if _, err := watched.Await(); err != nil {
		return false, err
	}
	for _, reading := range []kv.RangeResult{first, mirrors} {
		pairs, err := reading.Slice()
		if err != nil || len(pairs) > 0 {
			return false, err
		}
	}
	tx.Clear(s.watchedKey(server))
	tx.Clear(s.parksKey(server))
	return true, nil
}

// AwaitParked returns a watch that ends when a job whose source is on a server is about to be parked. Read the rows after
// AwaitParked has returned, and then wait with kv.AwaitChange: so no row is missed. The caller cancels the watch.
func (s *Store) AwaitParked(ctx context.Context, server string) (kv.Watch, error) {
	return kv.TransactValue(ctx, s.db, func(tx kv.Transaction) (kv.Watch, error) {
		return tx.Watch(s.parksKey(server)), nil
	})
}
