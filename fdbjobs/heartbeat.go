package fdbjobs

import (
	"context"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// A claimer that takes jobs writes a heartbeat from time to time. So the others know how many there are, and which of them it is.
const (
	// heartbeatEvery is the time between two heartbeats of a claimer that takes jobs.
	heartbeatEvery = 2 * time.Second
	// thereFor is how long a heartbeat counts. A clock that is far off causes conflicts, or a partition that no claimer
	// prefers.
	thereFor = 10 * time.Second
	// forgottenAfter is the age at which a monitor removes the heartbeat of a claimer that has died.
	forgottenAfter = time.Minute
	// claimersAtOnce limits the number of heartbeats that are read.
	claimersAtOnce = 10_000
	// partitionFor is how long a claimer uses the partition that it has read.
	partitionFor = heartbeatEvery
)

// readPartition starts reading the heartbeats of the other claimers, if the claimer does not know its partition. again says
// that an earlier run of the claim has taken jobs, and was perhaps refused with a conflict.
func (v *view) readPartition(again bool) kv.Future[partition] {
	if !again && v.began.Sub(v.by.partitionRead) < partitionFor {
		return kv.Known(v.by.partition)
	}
	v.partitionRead = true
	return kv.Map(v.queue.readHeartbeats(v.tx), func(all []heartbeat) (partition, error) {
		now := v.queue.layer.now()
		there := []string{v.by.id}
		for _, h := range all {
			if h.claimer != v.by.id && now.Sub(h.at).Abs() < thereFor {
				there = append(there, h.claimer)
			}
		}
		slices.Sort(there)
		return partitionOf(slices.Index(there, v.by.id), len(there)), nil
	})
}

// heartbeat is a row of claimers.
type heartbeat struct {
	claimer string
	at      time.Time
}

// readHeartbeats starts reading the heartbeats of all claimers, without conflicts.
func (q *Queue) readHeartbeats(tx kv.Transaction) kv.Future[[]heartbeat] {
	claimers := q.keys.claimers
	return readAll(tx.Snapshot(), rows.Range(claimers), kv.RangeOptions{Limit: claimersAtOnce}, func(pair kv.KeyValue) (h heartbeat, err error) {
		if h.claimer, err = rows.LastString(claimers, pair.Key); err == nil {
			h.at, err = parseHeartbeat(pair.Value)
		}
		return h, err
	})
}

// writeHeartbeat writes a heartbeat, if it is time. Only a claim that takes jobs writes one, so a claimer without jobs
// hinders no other.
func (v *view) writeHeartbeat() {
	if now := v.queue.layer.now(); now.Sub(v.by.heartbeatAt) >= heartbeatEvery {
		v.tx.Set(v.queue.keys.claimers.Pack(v.by.id), tuple.Tuple{now.Unix()}.Pack())
		v.heartbeat = true
	}
}

func parseHeartbeat(value []byte) (time.Time, error) {
	var at int64
	err := rows.Scan("when a claimer was there", value, &at)
	return unixTime(at), err
}

// leave removes the claimer's heartbeat when its process stops, so that the others share its partition at once. Otherwise
// the heartbeat no longer counts after thereFor, and a monitor removes it.
func (c *claimer) leave(ctx context.Context) error {
	if c.heartbeatAt.IsZero() {
		return nil
	}
	return c.queue.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Clear(c.queue.keys.claimers.Pack(c.id))
		return nil
	})
}

// dropClaimers removes old heartbeats.
func (q *Queue) dropClaimers(tx kv.Transaction, reading kv.Future[[]heartbeat]) error {
	all, err := reading.Await()
	for _, h := range all {
		if q.layer.now().Sub(h.at) > forgottenAfter {
			tx.Clear(q.keys.claimers.Pack(h.claimer))
		}
	}
	return err
}
