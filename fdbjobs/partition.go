package fdbjobs

import (
	"hash/fnv"
	"math/bits"
	"slices"
	"time"

	"settee/pkg/kv"
)

// Claimers of several processes that look at the same owners and their ready rows would pick the same jobs, and all
// except one would have to try again. So each knows the others by their heartbeats (heartbeat.go), and prefers the jobs in its
// partition. If claimers disagree about the partitions, they conflict more often, but nothing breaks.
//
// All claimers share the first waiting owners. Of the owners behind them, each is shared by fewer claimers: of n owners
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
	// maxPartitions limits the partitions of a claimer that guesses their number.
	maxPartitions = 64
)

// partition is the part of the ready jobs of an owner, or of the whole queue, that a claimer prefers: part number index,
// from 0, of as many as there are claimers that share the owner. If index is not below shared, the claimer is none of
// them.
type partition struct {
	index, shared int
	claimers      int // the number of all claimers
	// tidies is set for the claimer that writes the owner's rank, and ends its waiting. If it stops, another does
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

// prefer sets the partitions of the last n waiting owners. It returns the owners that can have jobs in them.
func (v *view) prefer(n int) (mine []*contender) {
	partition := v.partition
	if v.evictable != nil {
		partition = wholeQueue // such claims are rare: take the longest waiting job
	}
	upTo := len(v.waiting)
	for i := len(v.waiting) - 1; i >= len(v.waiting)-n; i-- {
		p := v.waiting[i]
		if i < len(v.waiting)-1 && p.rank != v.waiting[i+1].rank {
			upTo = i + 1
		}
		if p.partition = partition.among(upTo, p.owner, v.began); p.partition.prefers() {
			mine = append(mine, p)
		}
	}
	slices.Reverse(mine)
	return mine
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
