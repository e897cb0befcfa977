package rows

import (
	"context"

	"settee/pkg/kv"
)

// resealSize is the number of bytes after which a transaction of Reseal seals no further value.
const resealSize = 1_000_000

// Sealed is a stored value that Reseal checks.
type Sealed struct {
	// Begin is the first key of the value.
	Begin []byte
	// Stored is the value.
	Stored []byte
	// Reseal opens the value and writes it with the current key. It keeps a value that cannot be opened. It conflicts
	// with all other changes of the value.
	Reseal func()
}

// Reseal reads the values in r. It returns the number of values by the id of the key that sealed them. The empty id is
// for plain values. If keyID is not empty, it is the id of sealer's current key, and Reseal reseals with it all values
// that were sealed with another key or not at all.
//
// read returns the first values of a range in key order, and the key at which to continue, or nil at the end. It is
// called in a transaction, so it may run several times.
//
// Reseal may be interrupted, repeated, and run while values are written.
func Reseal(
	ctx context.Context, db kv.Database, sealer kv.Sealer, keyID string, r kv.KeyRange,
	read func(tx kv.Transaction, r kv.KeyRange) (values []Sealed, rest []byte, err error),
) (map[string]int64, error) {
	all := map[string]int64{}
	for r.Begin != nil {
		some, err := kv.TransactValue(ctx, db, func(tx kv.Transaction) (resealed, error) {
			values, rest, err := read(tx, r)
			if err != nil {
				return resealed{}, err
			}
			return resealSome(values, rest, sealer, keyID), nil
		})
		if err != nil {
			return nil, err
		}
		for id, n := range some.counts {
			all[id] += n
		}
		r.Begin = some.rest
	}
	return all, nil
}

// resealed is what one transaction has done.
type resealed struct {
	counts map[string]int64
	rest   []byte // where to continue; nil at the end
}

func resealSome(values []Sealed, rest []byte, sealer kv.Sealer, keyID string) resealed {
	out, size := resealed{counts: map[string]int64{}, rest: rest}, 0
	for i, v := range values {
		found := sealer.KeyID(v.Stored)
		if keyID != "" && found != keyID {
			if size += len(v.Stored); size > resealSize && i > 0 {
				out.rest = v.Begin
				return out
			}
			v.Reseal()
		}
		out.counts[found]++
	}
	return out
}
