package jobs

import (
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/replicator"
)

// A server from which parked jobs wait for changes is watched by a job of the queue watchQueue, whose id is the key of who
// answers for the server (replicator.Endpoint.Route). Its owner is the owner of one of its jobs: a user or a replicator
// database, between which watches take turns (see Watches.Reown). Its keys are:
//
//	("watched", server)          -> ""       the server has a watch
//	("watched", server, "parks") -> int64    changes with each call of Run.Parking
//
// The transactions that park a job and that end the watch read the first key with a conflict. The latter also read with a
// conflict that there are no rows. So no row is left without a watch. The same holds for the rows of mirrors (mirrors.go).

// watchQueue is the name of the queue of watches. The id of a job is the key of who answers for a server, see
// replicator.Endpoint.Route.
const watchQueue = "watch"

// WatchStatus is the part of the state of a watch's job that people see: how the watch hears of changes, which a heartbeat
// of the job may not have told yet.
type WatchStatus struct {
	// By is replicator.ByFeed, replicator.ByQuestions, or empty while the watch begins.
	By string `json:"by,omitempty"`
	// Why says why the sources are asked. It may name what belongs to the job of another user.
	Why string `json:"why,omitempty"`
	// Pause is the longest time for which a parked job is not asked at the moment, rounded up; 0 unless the sources are asked.
	Pause time.Duration `json:"pause,omitempty"`
	// Late says that the questions are late. The zero value means that they are in time.
	Late Late `json:"late,omitzero"`
}

// Late is that a watch cannot ask each parked job in time, or that the server does not answer.
type Late struct {
	// Since is when the first question was late.
	Since time.Time `json:"since"`
	// Jobs is the number of parked jobs that the watch asks, and Code why it follows no feed. Both were so within the last ten
	// minutes.
	Jobs int                  `json:"jobs"`
	Code replicator.FaultCode `json:"code"`
}

func (s *parkedRows) watchedKey(server string) []byte { return s.space.Pack("watched", server) }

func (s *parkedRows) parksKey(server string) []byte { return s.space.Pack("watched", server, "parks") }

// watch tells the watch of a server of a new row, and adds the watch for an owner if there is none. watched is a read of watchedKey.
func (s *parkedRows) watch(tx kv.Transaction, server, owner string, watched kv.Future[[]byte]) error {
	tx.Add(s.parksKey(server), 1)
	value, err := watched.Await()
	if err != nil || value != nil {
		return err
	}
	return s.addWatch(tx, server, owner)
}

// addWatch adds the watch of a server that has none.
func (s *parkedRows) addWatch(tx kv.Transaction, server, owner string) error {
	tx.Set(s.watchedKey(server), nil)
	return s.watches.Add(tx, fdbjobs.Spec{ID: server, Owner: owner})
}
