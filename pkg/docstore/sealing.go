package docstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// secret reports whether bodies are to be read by nobody who has the store.
func (db *Database) secret() bool { return db.store.sealed != nil && db.store.sealed(db.name) }

// sealBody returns what is stored of a body in a place. Its revision and its size, wherever they
// are told, are those of the body itself.
func (db *Database) sealBody(body []byte, p place) []byte {
	if !db.secret() {
		return body
	}
	return db.store.sealer.Seal(body, p.names(db)...)
}

// openBody returns a body, whatever is sealed now.
func (db *Database) openBody(stored []byte, p place) ([]byte, error) {
	if db.store.sealer.KeyID(stored) == "" {
		return stored, nil
	}
	body, err := db.store.sealer.Open(stored, p.names(db)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return body, nil
}

// place is whose body something is: a revision's, or a local document's.
type place struct {
	id  string
	rev Rev // zero for a local document
}

func (p place) names(db *Database) []string {
	if p.rev == (Rev{}) {
		return []string{"local document", db.Instance(), p.id}
	}
	return []string{"document", db.Instance(), p.id, p.rev.String()}
}

// joinLocal returns the value of a local document, splitLocal its revision, and its body as it is
// stored.
func joinLocal(rev uint64, stored []byte) []byte {
	value := binary.AppendUvarint(make([]byte, 0, len(stored)+binary.MaxVarintLen64), rev)
	return append(value, stored...)
}

func splitLocal(id string, value []byte) (rev uint64, stored []byte, err error) {
	rev, size := binary.Uvarint(value)
	if size <= 0 {
		return 0, nil, corrupt("local document %s: it has no revision", quote(id))
	}
	return rev, value[size:], nil
}

const (
	// resealRows is how many rows one transaction of Reseal reads, but for those of the last
	// document, and resealSize how many bytes it writes, if it is of several documents.
	resealRows = 20
	resealSize = 1_000_000
)

// Reseal goes through all documents, local ones too, of the databases that are sealed. It returns
// with which keys their bodies were sealed, and how many with each; the empty id is that of plain
// ones. If keyID is not empty it is that of the key that is sealed with now, and bodies with any
// other are sealed anew, but for those that cannot be opened. It may be broken off at any time, and
// repeated, while documents are written.
func (s *Store) Reseal(ctx context.Context, keyID string) (map[string]int64, error) {
	all := map[string]int64{}
	for name, err := range s.Databases(ctx, ListOptions{}) {
		if err == nil && s.sealed != nil && s.sealed(name) {
			err = s.resealDatabase(ctx, name, keyID, all)
		}
		if err != nil {
			return nil, fmt.Errorf("sealing the documents of databases: %w", err)
		}
	}
	return all, nil
}

func (s *Store) resealDatabase(ctx context.Context, name, keyID string, all map[string]int64) error {
	db, err := s.Database(ctx, name)
	if errors.Is(err, ErrDatabaseNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, space := range []tuple.Subspace{db.keys.bodies, db.keys.local} {
		for r := keyRange(space); ; {
			some, err := kv.TransactValue(ctx, s.kv, func(tx kv.Transaction) (resealed, error) {
				return db.resealSome(tx, space, r, keyID)
			})
			if errors.Is(err, ErrDatabaseNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("database %s: %w", quote(name), err)
			}
			for id, n := range some.counts {
				all[id] += n
			}
			if some.rest == nil {
				break
			}
			r.Begin = some.rest
		}
	}
	return nil
}

// resealed is what one transaction has done.
type resealed struct {
	counts map[string]int64
	rest   []byte // where to go on, nil if there is no more
}

// value is what is stored of one body, in chunks.
type value struct {
	chunks tuple.Subspace
	key    tuple.Tuple // that of the chunks, but for their numbers
	stored []byte
}

func (db *Database) resealSome(tx kv.Transaction, space tuple.Subspace, r kv.KeyRange, keyID string) (resealed, error) {
	out := resealed{counts: map[string]int64{}}
	if err := db.exists(tx).await(); err != nil {
		return out, err
	}
	values, rest, err := readValues(tx.Snapshot(), space, r)
	if err != nil {
		return out, err
	}
	out.rest = rest
	size := 0
	for i, v := range values {
		e, err := db.envelope(space, v)
		if err != nil {
			return out, err
		}
		found := db.store.sealer.KeyID(e.stored)
		if keyID != "" && found != keyID {
			if size += len(v.stored); size > resealSize && i > 0 {
				out.rest = keyRange(v.chunks).Begin
				return out, nil
			}
			db.reseal(tx, v.chunks, e)
		}
		out.counts[found]++
	}
	return out, nil
}

// readValues reads the first values of a range, and where the next one is.
func readValues(tx kv.ReadTransaction, space tuple.Subspace, r kv.KeyRange) (values []value, rest []byte, err error) {
	pairs, err := tx.GetRange(r, kv.RangeOptions{Limit: resealRows, Mode: kv.StreamWantAll}).Slice()
	if err != nil {
		return nil, nil, err
	}
	for _, pair := range pairs {
		key, err := space.Unpack(pair.Key)
		if err != nil || len(key) < 2 {
			return nil, nil, corrupt("the key of a body: %v (%w)", key, err)
		}
		if n := len(values); n > 0 && key[len(key)-1] != int64(0) {
			values[n-1].stored = append(values[n-1].stored, pair.Value...)
			continue
		}
		key = key[:len(key)-1]
		values = append(values, value{space.Sub(key...), key, pair.Value})
	}
	if len(pairs) < resealRows {
		return values, nil, nil
	}
	// Of the last one there may be more.
	last := &values[len(values)-1]
	if last.stored, err = joinChunks(readAll(tx, last.chunks)); err != nil {
		return nil, nil, err
	}
	return values, keyRange(last.chunks).End, nil
}

// envelope is a body as it is stored.
type envelope struct {
	place  place
	stored []byte
	value  func(stored []byte) []byte // what holds it
}

func (db *Database) envelope(space tuple.Subspace, v value) (e envelope, err error) {
	var id string
	if !as(v.key[0], &id) {
		return e, corrupt("the key of a body: %v", v.key)
	}
	if len(v.key) == 1 { // as those of local documents are
		rev, stored, err := splitLocal(id, v.stored)
		return envelope{place{id: id}, stored, func(stored []byte) []byte { return joinLocal(rev, stored) }}, err
	}
	var rev Rev
	var raw []byte
	var isHex bool
	if len(v.key) != 4 || !as(v.key[1], &rev.Pos) || !as(v.key[2], &raw) || !as(v.key[3], &isHex) {
		return e, corrupt("the key of a body: %v", v.key)
	}
	rev.ID = revtree.FromRaw(raw, isHex)
	return envelope{place{id, rev}, v.stored, func(stored []byte) []byte { return stored }}, nil
}

// reseal seals a body anew, unless it cannot be opened. It conflicts with whatever becomes of it
// meanwhile.
func (db *Database) reseal(tx kv.Transaction, chunks tuple.Subspace, e envelope) {
	body, err := db.openBody(e.stored, e.place)
	if err != nil {
		return
	}
	tx.AddReadConflictRange(keyRange(chunks))
	tx.ClearRange(keyRange(chunks))
	setChunks(tx, chunks, e.value(db.sealBody(body, e.place)))
}
