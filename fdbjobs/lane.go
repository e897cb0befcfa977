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
// except one would have to try again. So each regularly writes a beat, and prefers the jobs in its lane. If claimers
// disagree about the lanes, they conflict more often, but nothing breaks.
//
// All claimers share the first owners in line. Of the owners behind them, each is shared by fewer claimers: of n owners
// up to the same rank, by about ownersShared/n of all. A claimer takes a job of the first owner that has one in its
// lane. So claimers take different jobs, also if each owner has few, and read little of the owners that others serve.
//
// Each claimer serves its lane in order, but some lanes have fewer jobs than others. So an owner may be served before
// owners with a lower usage, as long as these have so few ready jobs that some claimers find none in their lanes.
const (
	// ownersShared is the number of owners that all claimers share, or a little more.
	ownersShared = 8
	// beatEvery is the time between two beats of a claimer that takes jobs.
	beatEvery = 2 * time.Second
	// thereFor is how long a beat counts. A clock that is far off causes conflicts, or a lane that no claimer prefers.
	thereFor = 10 * time.Second
	// forgottenAfter is the age at which a monitor removes the beat of a claimer that has died.
	forgottenAfter = time.Minute
	// claimersAtOnce limits the number of beats that are read.
	claimersAtOnce = 10_000
	// laneFor is how long a claimer uses the lane that it has read.
	laneFor = beatEvery
	// maxLanes limits the lanes of a claimer that guesses their number.
	maxLanes = 64
)

// lane is the place of a claimer among all: number mine of of.
type lane struct{ mine, of int }

// wholeQueue is the lane of the only claimer of a queue.
var wholeQueue = lane{0, 1}

// ownerLane is the place of a claimer among those that share an owner: number mine of shared. If mine is not below
// shared, it is none of them.
type ownerLane struct {
	mine, shared int
	of           int // the number of all claimers
	// tidies is set for the claimer that writes the owner's rank and head, and takes it out of the line. If it stops,
	// another does so when its beat no longer counts.
	tidies bool
}

// among returns the claimer's lane at an owner with n owners up to its rank. Which of the claimers share an owner changes
// with time, so that all owners have as many on average.
func (l lane) among(n int, owner string, at time.Time) ownerLane {
	shared := max(l.of>>(bits.Len(uint(max(n/ownersShared, 1)))-1), 1)
	first := int(offset(owner, at.Unix()) * float64(l.of))
	place := (l.mine - first + l.of) % l.of
	out := ownerLane{mine: place, shared: shared, of: l.of, tidies: place == 0}
	if shared == l.of {
		out.mine = l.mine // so that rows read earlier stay in the lane
	}
	return out
}

// whole returns the claimer's lane of rows that all claimers share.
func (l lane) whole() ownerLane { return ownerLane{mine: l.mine, shared: l.of, of: l.of} }

// prefers reports whether rows of the owner can be in the lane.
func (l ownerLane) prefers() bool { return l.mine < l.shared }

// readLane starts reading the beats of the other claimers, if the claimer does not know its lane.
func (c *claim) readLane(tx kv.Transaction) kv.Future[lane] {
	if known := c.memory.lane; !c.again && c.began.Sub(c.memory.laneRead) < laneFor {
		return kv.Known(known)
	}
	claimers := tx.Snapshot().GetRange(rows.Range(c.queue.keys.claimers), kv.RangeOptions{Limit: claimersAtOnce})
	c.lane = lane{}
	return kv.Func[lane](func() (lane, error) {
		if c.lane.of != 0 {
			return c.lane, nil
		}
		now := c.queue.layer.now()
		there := []string{c.claimer}
		for pair, err := range claimers.All() {
			if err != nil {
				return lane{}, err
			}
			id, err := rows.LastString(c.queue.keys.claimers, pair.Key)
			if err != nil {
				return lane{}, err
			}
			at, err := parseBeat(pair.Value)
			if err != nil {
				return lane{}, err
			}
			if id != c.claimer && now.Sub(at).Abs() < thereFor {
				there = append(there, id)
			}
		}
		slices.Sort(there)
		c.lane = lane{mine: slices.Index(there, c.claimer), of: len(there)}
		return c.lane, nil
	})
}

// beat writes a beat, if it is time. Only a claim that takes jobs writes one, so a claimer without jobs hinders no
// other.
func (c *claim) beat(tx kv.Transaction) {
	if now := c.queue.layer.now(); now.Sub(c.memory.beat) >= beatEvery {
		tx.Set(c.queue.keys.claimers.Pack(c.claimer), tuple.Tuple{now.Unix()}.Pack())
		c.beats = true
	}
}

func parseBeat(value []byte) (time.Time, error) {
	var at int64
	err := scan("when a claimer was there", value, &at)
	return unixTime(at), err
}

// sort returns the rows in the claimer's lane and those of the others, in their order.
func (l ownerLane) sort(rows []kv.KeyValue) (own, others []kv.KeyValue) {
	for _, row := range rows {
		if l.has(row.Key) {
			own = append(own, row)
		} else {
			others = append(others, row)
		}
	}
	return own, others
}

// has reports whether a row is in the lane. Keys of ready and of delayed end with a job's id.
func (l ownerLane) has(key []byte) bool {
	h := fnv.New32a()
	_, _ = h.Write(key) // never fails
	return int(h.Sum32()%uint32(l.of))*l.shared/l.of == l.mine
}

// leave removes the claimer's beat when its process stops, so that the others share its lane at once. Otherwise the
// beat no longer counts after thereFor, and a monitor removes it.
func (c *claimer) leave(ctx context.Context) error {
	if c.memory.beat.IsZero() {
		return nil
	}
	return c.queue.layer.db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Clear(c.queue.keys.claimers.Pack(c.id))
		return nil
	})
}

// dropClaimers removes old beats.
func (q *Queue) dropClaimers(tx kv.Transaction, claimers kv.RangeResult) error {
	for pair, err := range claimers.All() {
		if err != nil {
			return err
		}
		at, err := parseBeat(pair.Value)
		if err != nil {
			return err
		}
		if q.layer.now().Sub(at) > forgottenAfter {
			tx.Clear(pair.Key)
		}
	}
	return nil
}
