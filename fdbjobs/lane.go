package fdbjobs

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// Claimers of several processes that look at the head of one queue would pick the same
// jobs, and all but one of them would have to try again. So each of them says now and
// then that it is there, and among the jobs it sees prefers those whose ids are its
// share. Nothing depends on their agreement but how often they conflict.
const (
	// beatEvery is how often a claimer says that it is there, if it takes jobs.
	beatEvery = 2 * time.Second
	// thereFor is how long that is believed. Clocks may differ: one that is far ahead
	// or behind makes for conflicts, or for a share that nobody prefers.
	thereFor = 10 * time.Second
	// forgottenAfter is when a monitor removes what a claimer said.
	forgottenAfter = time.Hour
	// claimersAtOnce is how many claimers are read: as many as can share a window.
	claimersAtOnce = maxWindow / window
)

// share is which of the jobs are a claimer's: those whose hash is mine, modulo of.
type share struct{ mine, of int }

// whole is the share of a claimer that minds no others.
var whole = share{0, 1}

// lane begins to read which other claimers there are.
func (c *claimTx) lane(tx kv.Transaction) func() (share, error) {
	rows := tx.Snapshot().GetRange(keyRange(c.typ.keys.claimers), kv.RangeOptions{Limit: claimersAtOnce, Mode: kv.StreamWantAll})
	var found *share
	return func() (share, error) {
		if found != nil {
			return *found, nil
		}
		now := time.Now()
		there := []string{c.claimer}
		for pair, err := range rows.All() {
			if err != nil {
				return share{}, err
			}
			id, err := lastString(c.typ.keys.claimers, pair.Key)
			if err != nil {
				return share{}, err
			}
			at, err := parseBeat(pair.Value)
			if err != nil {
				return share{}, err
			}
			if id != c.claimer && now.Sub(at).Abs() < thereFor {
				there = append(there, id)
			}
		}
		slices.Sort(there)
		found = &share{mine: slices.Index(there, c.claimer), of: len(there)}
		return *found, nil
	}
}

// beat says that the claimer is there, if it is time to. It is part of a claim that
// takes something: a claimer with nothing to take is in nobody's way.
func (c *claimTx) beat(tx kv.Transaction) {
	if now := time.Now(); now.Sub(c.queue.beat) >= beatEvery {
		tx.Set(c.typ.keys.claimers.Pack(c.claimer), tuple.Tuple{now.Unix()}.Pack())
		c.beats = true
	}
}

func parseBeat(value []byte) (time.Time, error) {
	var at int64
	e, err := tuple.Unpack(value)
	if err == nil && (len(e) != 1 || !as(e[0], &at)) {
		err = tuple.ErrMalformed
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading when a claimer was there: %w", err)
	}
	return unixTime(at), nil
}

// sort returns the keys of rows in ready that are to be taken, in which order, and whether
// they are the claimer's own, the longest waiting first. If there are none it helps the
// others, and takes theirs at random.
func (s share) sort(rows []kv.KeyValue, random *rand.Rand) (queue [][]byte, mine bool) {
	var own, others [][]byte
	for _, row := range rows {
		if s.has(row.Key) {
			own = append(own, row.Key)
		} else {
			others = append(others, row.Key)
		}
	}
	if len(own) > 0 {
		return own, true
	}
	random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others, false
}

// has reports whether a job is the claimer's. A key of ready ends with the job's stamp
// and id, which tell it from all others.
func (s share) has(key []byte) bool {
	h := fnv.New32a()
	_, _ = h.Write(key) // never fails
	return int(h.Sum32()%uint32(s.of)) == s.mine
}

// dropClaimers removes what claimers said long ago.
func (t *Type) dropClaimers(tx kv.Transaction, claimers kv.RangeResult) error {
	for pair, err := range claimers.All() {
		if err != nil {
			return err
		}
		at, err := parseBeat(pair.Value)
		if err != nil {
			return err
		}
		if time.Since(at) > forgottenAfter {
			tx.Clear(pair.Key)
		}
	}
	return nil
}
