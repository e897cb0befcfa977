package jobs

import (
	"errors"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// A mirror gets events from the watch of its source's server, and from requests:
//
//	("mirror_events", mirror, database) -> (type, token): the latest event of a database that the mirror has not followed
//	("mirror_events", mirror)           -> int64: changes with events
//
// They go in the transaction that ends the mirror. A transaction that writes events reads with a conflict that the mirror has not ended.
//
// The continuous mirrors of a server are in the index "mirrors", and the databases of a mirror in others (mirrored.go). The first
// run of a mirror adds the server's watch (watched.go).

// The types of events.
const (
	EventCreated = "created"
	EventDeleted = "deleted"
	// EventMissed, of the database "", says that the watch may have missed events: the mirror looks at all databases.
	EventMissed = "missed"
	// EventRunNow, of the database runNowName, says that somebody runs the mirror at once: it looks at all databases, and their jobs
	// compare everything.
	EventRunNow = "asked"
	// EventVerify, of the database verifyName, says that somebody asks to compare both servers.
	EventVerify = "verify"
)

// runNowName and verifyName are the names in the keys of EventRunNow and EventVerify, so that other events do not take their place. No
// mirrored database has them.
const (
	runNowName = "\x00"
	verifyName = "\x01"
)

// MirrorEvent says what happened to a database of a mirror's source, or what somebody asks of the mirror.
type MirrorEvent struct{ Database, Type string }

// eventCounterKey returns the key that changes with the events of a mirror.
func (s *mirrorRows) eventCounterKey(mirror string) []byte {
	return s.space.Pack("mirror_events", mirror)
}

// addEvents writes events of a mirror. The token differs from the token of earlier events.
func (s *mirrorRows) addEvents(tx kv.Transaction, mirror, token string, events ...MirrorEvent) {
	for _, e := range events {
		tx.Set(s.space.Pack("mirror_events", mirror, e.Database), tuple.Tuple{e.Type, token}.Pack())
	}
	tx.Add(s.eventCounterKey(mirror), 1)
}

// parseEvent returns the type of an event that is stored.
func parseEvent(value []byte) (kind string, err error) {
	return kind, rows.Scan("an event of a mirror", value, &kind, nil)
}

// clearEventsOf clears the events of all mirrors of a replicator database whose jobs were removed.
func (s *mirrorRows) clearEventsOf(tx kv.Transaction, instance string) {
	key := s.space.Pack("mirror_events", instance+"|")
	tx.ClearRange(kv.PrefixRange(key[:len(key)-1])) // without the byte that ends the string
}

// liveMirror returns a job if it is a mirror that has not ended, and nil otherwise. A job whose args cannot be opened is
// live, and has none.
func (s *mirrorRows) liveMirror(tx kv.ReadTransaction, id string) (*Job, error) {
	job, err := s.read(tx, id)
	switch {
	case errors.Is(err, fdbjobs.ErrSealed):
		return job, nil
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case job.Status == fdbjobs.Finished || !job.IsMirror():
		return nil, nil
	}
	return job, nil
}

// endMirror clears the events of a mirror that has ended, or is no mirror any more. Upkeep drops its databases.
func (s *mirrorRows) endMirror(tx kv.Transaction, job *Job) error {
	tx.ClearRange(rows.Range(s.space.Sub("mirror_events", job.ID)))
	tx.Clear(s.eventCounterKey(job.ID))
	return s.wakeUpkeep(tx)
}

// wakeUpkeep makes upkeep bring the databases of mirrors in line, after this transaction.
func (s *mirrorRows) wakeUpkeep(tx kv.Transaction) error {
	err := s.upkeep.Add(tx, fdbjobs.Spec{ID: mirrorsTask})
	if errors.Is(err, kv.ErrUnreadable) {
		return nil // the transaction changes several mirrors
	}
	return err
}

const mirrorsTask = "databases of mirrors"

// mirrorsAtOnce is the maximum number of mirrors of a server that one transaction reads.
const mirrorsAtOnce = 50
