package shares

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/replicator"
)

// The sums of times of an owner, in slices of the last hour: how long its jobs ran, and how long they were entitled to run. A slice is
// numbered from the Unix epoch. RollUp removes slices that are older than an hour. Both sums are only shown.
const (
	timesRan      = "ran"
	timesEntitled = "entitled"

	// sliceLength is the length of a slice, and slices1h is how many slices are shown.
	sliceLength = 5 * time.Minute
	slices1h    = int64(time.Hour / sliceLength)
	// entitledAtOnce is the most owners whose entitlements one transaction writes.
	entitledAtOnce = 500
)

func sliceOf(t time.Time) int64 { return t.Unix() / int64(sliceLength/time.Second) }

// Charge charges an owner for the time that a job ran until a time. It belongs in the transaction that writes the job's state, and
// conflicts with nothing.
func (s *Shares) Charge(tx kv.Transaction, owner string, until time.Time, ran time.Duration) {
	if ran > 0 {
		s.queue.Charge(tx, owner, ran.Milliseconds())
		s.addTime(tx, timesRan, until, owner, ran)
	}
}

func (s *Shares) addTime(tx kv.Transaction, sum string, at time.Time, owner string, d time.Duration) {
	if ms := d.Milliseconds(); ms > 0 {
		tx.Add(s.space.Pack("times", sum, sliceOf(at), owner), ms)
	}
}

// entitle adds the entitlements of an interval to the sums, and removes old slices.
func (s *Shares) entitle(ctx context.Context, interval time.Duration) error {
	owners, err := s.owners(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	entitled := entitlements(owners, s.pending)
	for some := range slices.Chunk(owners, entitledAtOnce) {
		err := s.db.Transact(ctx, func(tx kv.Transaction) error {
			for _, o := range some {
				s.addTime(tx, timesEntitled, now, o.Name, time.Duration(entitled[o.Name]*float64(interval)))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		for _, sum := range []string{timesRan, timesEntitled} {
			old := s.space.Sub("times", sum)
			begin, _ := old.Range()
			tx.ClearRange(kv.KeyRange{Begin: begin, End: old.Pack(sliceOf(now) - slices1h)})
		}
		return nil
	})
}

// entitlements divides the running jobs among their owners by weight. What an owner has no jobs
// for is divided among the others (max-min fairness). A paused owner has no entitlement.
func entitlements(all []fdbjobs.Owner, pending map[string]replicator.ShownState) map[string]float64 {
	left, weight := 0.0, 0.0
	for _, o := range all {
		left += float64(o.Running)
		weight += o.Weight
	}
	// demand is how many of an owner's jobs would run if there were room: its other pending jobs wait for something else, too.
	demand := func(o fdbjobs.Owner) float64 {
		jobs := liveJobs(o, pending, false)
		return float64(jobs[replicator.ShownRunning] + jobs[replicator.ShownPending])
	}
	owners := slices.DeleteFunc(slices.Clone(all), func(o fdbjobs.Owner) bool { return o.Weight == 0 })
	// The owners with the least demand per weight come first: each gets its demand, or its share
	// of what is left.
	order := slices.SortedFunc(slices.Values(owners), func(a, b fdbjobs.Owner) int {
		return cmp.Compare(demand(a)/a.Weight, demand(b)/b.Weight)
	})
	parts := make(map[string]float64, len(owners))
	for _, o := range order {
		parts[o.Name] = min(demand(o), left*o.Weight/weight)
		left -= parts[o.Name]
		weight -= o.Weight
	}
	return parts
}

// lastHour returns each owner's fraction of a sum over the last hour.
func (s *Shares) lastHour(ctx context.Context, sum string) (map[string]float64, error) {
	const atOnce = 2_000
	sums := s.space.Sub("times", sum)
	_, end := sums.Range()
	rest := kv.KeyRange{Begin: sums.Pack(sliceOf(time.Now()) - slices1h), End: end}
	parts, total := map[string]float64{}, 0.0
	for {
		pairs, err := kv.TransactValue(ctx, s.db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
			return tx.Snapshot().GetRange(rest, kv.RangeOptions{Limit: atOnce}).Slice()
		})
		if err != nil {
			return nil, err
		}
		for _, pair := range pairs {
			var owner string
			ms, err := rows.ParseInt(pair.Value)
			if err := errors.Join(err, rows.ScanKey("the times of owners", sums, pair.Key, nil, &owner)); err != nil {
				return nil, err
			}
			parts[owner] += float64(ms)
			total += float64(ms)
		}
		if len(pairs) < atOnce {
			break
		}
		rest.Begin = kv.KeyAfter(pairs[len(pairs)-1].Key)
	}
	for owner := range parts {
		parts[owner] /= total
	}
	return parts, nil
}
