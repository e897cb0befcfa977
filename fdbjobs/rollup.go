package fdbjobs

import (
	"context"
	"fmt"
	"time"

	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// rollup is the value of the key rollup.
type rollup struct {
	generation int64 // how many roll-ups there were
	at         int64 // when the last one was; seconds since the epoch
	coeff      float64
	running    int64 // Usage.Running
}

func awaitRollup(f kv.Future[[]byte]) (r rollup, err error) {
	value, err := f.Await()
	if err != nil || value == nil {
		return r, err
	}
	e, err := tuple.Unpack(value)
	if err == nil && (len(e) != 4 || !as(e[0], &r.generation) || !as(e[1], &r.at) || !as(e[2], &r.coeff) || !as(e[3], &r.running)) {
		err = fmt.Errorf("unknown form %v", e)
	}
	if err != nil {
		return r, fmt.Errorf("reading the last roll-up: %w", err)
	}
	return r, nil
}

// Usage says what counts as the usage of owners.
type Usage struct {
	// What was charged is multiplied by Coeff, from 0 to 1, each Interval.
	Interval time.Duration
	Coeff    float64
	// Running is what each running job of an owner counts beside what was charged to it, so
	// that what is not charged yet counts at once: one that has used little does not get all
	// that is free at a moment. What comes to the same is what a job is charged in the time
	// that usage counts.
	Running int64
}

// RollUp lets the usage of all owners decay, if the last time that any process did so is an
// interval ago, and reports whether it did. Each process that takes jobs may call it as often
// as it likes. An error leaves some owners for the next roll-up, which makes up for it. Until
// the first one nothing decays, and running jobs do not count.
func (t *Type) RollUp(ctx context.Context, u Usage) (bool, error) {
	if !(u.Coeff >= 0 && u.Coeff <= 1) {
		return false, fmt.Errorf("%w: the coefficient %v is not from 0 to 1", ErrInvalid, u.Coeff)
	}
	if u.Running < 0 {
		return false, fmt.Errorf("%w: a running job counts %d, which is negative", ErrInvalid, u.Running)
	}
	now := time.Now().Unix()
	var mine int64 // the generation that an earlier run of the function made
	due, err := kv.TransactValue(ctx, t.layer.db, func(tx kv.Transaction) (bool, error) {
		r, err := awaitRollup(tx.Get(t.keys.rollup))
		if err != nil {
			return false, err
		}
		if mine != 0 && r.generation == mine && r.at == now {
			return true, nil
		}
		// A time that lies far ahead is that of a clock that was wrong.
		if since := time.Duration(now-r.at) * time.Second; -u.Interval < since && since < u.Interval {
			return false, nil
		}
		mine = r.generation + 1
		tx.Set(t.keys.rollup, tuple.Tuple{mine, now, u.Coeff, u.Running}.Pack())
		return true, nil
	})
	if err != nil || !due {
		return false, err
	}
	return true, t.eachOwner(ctx, t.fold)
}

// eachOwner runs fn with all owners that have a row, a batch of them in a transaction.
func (t *Type) eachOwner(ctx context.Context, fn func(kv.Transaction, []string) error) error {
	rows := keyRange(t.keys.owners)
	for rows.Begin != nil {
		next, err := kv.TransactValue(ctx, t.layer.db, func(tx kv.Transaction) ([]byte, error) {
			pairs, err := tx.Snapshot().GetRange(rows, kv.RangeOptions{Limit: ownersAtATime, Mode: kv.StreamWantAll}).Slice()
			if err != nil {
				return nil, err
			}
			owners, err := lastStrings(t.keys.owners, pairs)
			if err != nil {
				return nil, err
			}
			if err := fn(tx, owners); err != nil || len(pairs) < ownersAtATime {
				return nil, err
			}
			return kv.KeyAfter(pairs[len(pairs)-1].Key), nil
		})
		if err != nil {
			return err
		}
		rows.Begin = next
	}
	return nil
}
