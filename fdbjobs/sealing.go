package fdbjobs

import (
	"context"
	"encoding/json"
	"fmt"

	"settee/pkg/kv"
)

// OpenSealed is [Open] with args that are stored as sealer says. What their jobs are found and
// listed by is stored as it is, and so is their state.
func OpenSealed(db kv.Database, prefix []byte, sealer kv.Sealer) *Layer {
	l := Open(db, prefix)
	l.sealer = sealer
	return l
}

func (t *Type) sealArgs(id string, args json.RawMessage) []byte {
	if len(args) == 0 {
		return nil
	}
	return t.layer.sealer.Seal(args, "args", t.name, id)
}

// openArgs returns the args of a job, or why they cannot be had.
func (t *Type) openArgs(id string, stored []byte) (json.RawMessage, error) {
	args, err := t.layer.sealer.Open(stored, "args", t.name, id)
	if err != nil {
		return nil, fmt.Errorf("%w of the job %q: %w", ErrSealed, id, err)
	}
	return args, nil
}

const (
	// resealAtOnce is how many jobs one transaction of Reseal reads, and resealSize how many bytes
	// it writes, if it is of several jobs.
	resealAtOnce = 50
	resealSize   = 1_000_000
)

// Reseal goes through all jobs. It returns with which keys their args were sealed, and how many
// with each; the empty id is that of plain ones. If keyID is not empty it is that of the key that
// is sealed with now, and args with any other are sealed anew, but for those that cannot be opened.
// It may be broken off at any time, and repeated, while jobs are added and run.
func (t *Type) Reseal(ctx context.Context, keyID string) (map[string]int64, error) {
	all := map[string]int64{}
	r := keyRange(t.keys.data)
	for {
		some, err := kv.TransactValue(ctx, t.layer.db, func(tx kv.Transaction) (resealed, error) {
			return t.resealSome(tx, r, keyID)
		})
		if err != nil {
			return nil, fmt.Errorf("sealing the args of jobs: %w", err)
		}
		for id, n := range some.counts {
			all[id] += n
		}
		if some.last == nil {
			return all, nil
		}
		r.Begin = kv.KeyAfter(some.last)
	}
}

// resealed is what one transaction has done.
type resealed struct {
	counts map[string]int64
	last   []byte // the key of the last job, nil if there may be no more
}

func (t *Type) resealSome(tx kv.Transaction, r kv.KeyRange, keyID string) (resealed, error) {
	out := resealed{counts: map[string]int64{}}
	pairs, err := tx.Snapshot().GetRange(r, kv.RangeOptions{Limit: resealAtOnce, Mode: kv.StreamWantAll}).Slice()
	if err != nil {
		return out, err
	}
	reads := make([]jobRead, len(pairs))
	for i, pair := range pairs {
		id, err := lastString(t.keys.data, pair.Key)
		if err != nil {
			return out, err
		}
		reads[i] = jobRead{id: id, typ: t, tx: tx.Snapshot(), args: tx.Snapshot().Get(t.keys.args.Pack(id, 0))}
	}
	size := 0
	for i, pair := range pairs {
		row, err := parseRow(pair.Value)
		if err != nil {
			return out, err
		}
		if row.chunks == 0 {
			continue
		}
		stored, err := reads[i].storedArgs(row.chunks)
		if err != nil {
			return out, err
		}
		found := t.layer.sealer.KeyID(stored)
		if keyID != "" && found != keyID {
			if size += len(stored); size > resealSize && i > 0 {
				out.last = pairs[i-1].Key
				return out, nil
			}
			t.resealOne(tx, pair.Key, reads[i].id, row, stored)
		}
		out.counts[found]++
	}
	if len(pairs) == resealAtOnce {
		out.last = pairs[len(pairs)-1].Key
	}
	return out, nil
}

// resealOne seals the args of a job anew, unless they cannot be opened. Whoever adds or removes
// the job writes its row, with which this conflicts; its holder, who does so too, does not read the
// args again.
func (t *Type) resealOne(tx kv.Transaction, key []byte, id string, row *row, stored []byte) {
	args, err := t.openArgs(id, stored)
	if err != nil {
		return
	}
	tx.AddReadConflictKey(key)
	if chunks := t.setArgs(tx, id, args, row.chunks); chunks != row.chunks {
		row.chunks = chunks
		tx.Set(key, row.tuple().Pack())
	}
}
