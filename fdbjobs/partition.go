package fdbjobs

import (
	"context"
	"hash/fnv"
	"math/bits"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// Claimers of several processes that look at the same owners and their ready rows would pick the same jobs, and all
// except one would have to try again. So each regularly writes a heartbeat, and prefers the jobs in its partition. If
// claimers disagree about the partitions, they conflict more often, but nothing breaks.
//
// All claimers share the first owners in line. Of the owners behind them, each is shared by fewer claimers: of n owners
// up to the same rank, by about ownersShared/n of all. A claimer takes a job of the first owner that has one in its
// partition. So claimers take different jobs, also if each owner has few, and read little of the owners that others
// serve.
//
// Each claimer serves its partition in order, but some partitions have fewer jobs than others. So an owner may be served
// before owners with a lower usage, as long as these have so few ready jobs that some claimers find none in their
// partitions.
const (
	// ownersShared is the number of owners that all claimers share, or a little more.
	ownersShared = 8
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
	// maxPartitions limits the partitions of a claimer that guesses their number.
	maxPartitions = 64
)

// partition is the part of the ready jobs of an owner, or of the whole queue, that a claimer prefers: part number index,
// from 0, of as many as there are claimers that share the owner. If index is not below shared, the claimer is none of
// them.
type partition struct {
	index, shared int
	claimers      int // the number of all claimers
	// tidies is set for the claimer that writes the owner's rank, and takes it out of the line. If it stops, another does
	// so when its heartbeat no longer counts.
	tidies bool
}

// partitionOf returns the partition of the whole queue that a claimer prefers.
func partitionOf(index, claimers int) partition {
	return partition{index: index, shared: claimers, claimers: claimers}
}

// wholeQueue is the partition of the only claimer of a queue.
var wholeQueue = partitionOf(0, 1)

// among returns the claimer's partition at an owner with n owners up to its rank, if p is its partition of the queue. Which
// of the claimers share an owner changes with time, so that all owners have as many on average.
func (p partition) among(n int, owner string, at time.Time) partition {
	shared := max(p.claimers>>(bits.Len(uint(max(n/ownersShared, 1)))-1), 1)
	first := int(dither(owner, at.Unix()) * float64(p.claimers))
	place := (p.index - first + p.claimers) % p.claimers
	out := partition{index: place, shared: shared, claimers: p.claimers, tidies: place == 0}
	if shared == p.claimers {
		out.index = p.index // so that rows read earlier stay in the partition
	}
	return out
}

// prefers reports whether rows of the owner can be in the partition.
func (p partition) prefers() bool { return p.index < p.shared }

// prefer sets the partitions of the last n owners of the line. It returns the owners that can have jobs in them.
func (v *view) prefer(n int) (mine []*contender) {
	partition := v.partition
	if v.offered != nil {
		partition = wholeQueue // such claims are rare: take the longest waiting job
	}
	line, upTo := v.inLine, len(v.inLine)
	for i := len(line) - 1; i >= len(line)-n; i-- {
		p := line[i]
		if i < len(line)-1 && p.rank != line[i+1].rank {
			upTo = i + 1
		}
		if p.partition = partition.among(upTo, p.owner, v.began); p.partition.prefers() {
			mine = append(mine, p)
		}
	}
	slices.Reverse(mine)
	return mine
}

// readPartition starts reading the heartbeats of the other claimers, if the claimer does not know its partition. again says
// that an earlier run of the claim has taken jobs, and was perhaps refused with a conflict.
func (v *view) readPartition(again bool) kv.Future[partition] {
	if !again && v.began.Sub(v.by.partitionRead) < partitionFor {
		return kv.Known(v.by.partition)
	}
	v.partitionRead = true
	claimers := v.tx.Snapshot().GetRange(rows.Range(v.queue.keys.claimers), kv.RangeOptions{Limit: claimersAtOnce})
	return kv.Func[partition](func() (partition, error) {
		now := v.queue.layer.now()
		there := []string{v.by.id}
		for pair, err := range claimers.All() {
			if err != nil {
				return partition{}, err
			}
			id, err := rows.LastString(v.queue.keys.claimers, pair.Key)
			if err != nil {
				return partition{}, err
			}
			at, err := parseHeartbeat(pair.Value)
			if err != nil {
				return partition{}, err
			}
			if id != v.by.id && now.Sub(at).Abs() < thereFor {
				there = append(there, id)
			}
		}
		slices.Sort(there)
		return partitionOf(slices.Index(there, v.by.id), len(there)), nil
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

// split returns the keys of the rows in the claimer's partition and of the other rows, in their order.
func (p partition) split(rows []kv.KeyValue) (own, others [][]byte) {
	for _, row := range rows {
		if p.has(row.Key) {
			own = append(own, row.Key)
		} else {
			others = append(others, row.Key)
		}
	}
	return own, others
}

// has reports whether a row is in the partition. Keys of ready and of delayed end with a job's id.
func (p partition) has(key []byte) bool {
	h := fnv.New32a()
	_, _ = h.Write(key) // never fails
	return int(h.Sum32()%uint32(p.claimers))*p.shared/p.claimers == p.index
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
func (q *Queue) dropClaimers(tx kv.Transaction, claimers kv.RangeResult) error {
	for pair, err := range claimers.All() {
		if err != nil {
			return err
		}
		at, err := parseHeartbeat(pair.Value)
		if err != nil {
			return err
		}
		if q.layer.now().Sub(at) > forgottenAfter {
			tx.Clear(pair.Key)
		}
	}
	return nil
}
