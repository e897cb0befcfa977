package docstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// secret reports whether the bodies of this database are sealed.
func (db *Database) secret() bool { return db.store.sealed(db.name) }

// sealBody returns the stored form of a body. Its revision and its size are computed from the plain body.
func (db *Database) sealBody(body []byte, p place) []byte {
	if !db.secret() {
		return body
	}
	return db.store.sealer.Seal(body, p.names(db)...)
}

// openBody returns the plain body of a stored one, sealed or not.
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

// place is what a body belongs to: a revision, or a local document.
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

// joinLocal returns the value of a local document. splitLocal returns its revision and stored body.
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

// resealRows is the number of rows that one transaction of Reseal reads, without the rest of its last document.
const resealRows = 20

// Reseal reads all documents, local ones included, of the databases that are sealed. It returns the number of bodies by
// the id of the key that sealed them. The empty id is for plain bodies. If keyID is not empty, it is the id of the
// store's current key, and Reseal reseals with it all bodies that were sealed with another key or not at all, except
// those that cannot be opened. It may be interrupted, repeated, and run while documents are written.
func (s *Store) Reseal(ctx context.Context, keyID string) (map[string]int64, error) {
	all := map[string]int64{}
	for name, err := range s.Databases(ctx, ListOptions{}) {
		if err == nil && s.sealed(name) {
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
		read := func(tx kv.Transaction, r kv.KeyRange) ([]rows.Sealed, []byte, error) {
			return db.sealedBodies(tx, space, r)
		}
		counts, err := rows.Reseal(ctx, s.kv, s.sealer, keyID, rows.Range(space), read)
		if errors.Is(err, ErrDatabaseNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("database %s: %w", quote(name), err)
		}
		for id, n := range counts {
			all[id] += n
		}
	}
	return nil
}

// sealedBodies reads the first bodies of a range of space.
func (db *Database) sealedBodies(tx kv.Transaction, space tuple.Subspace, r kv.KeyRange) (bodies []rows.Sealed, rest []byte, err error) {
	if err := db.exists(tx).await(); err != nil {
		return nil, nil, err
	}
	values, rest, err := readValues(tx.Snapshot(), space, r)
	if err != nil {
		return nil, nil, err
	}
	for _, v := range values {
		e, err := db.envelope(space, v)
		if err != nil {
			return nil, nil, err
		}
		bodies = append(bodies, rows.Sealed{
			Begin: rows.Range(v.chunks).Begin, Stored: e.stored,
			Reseal: func() { db.reseal(tx, v.chunks, e) },
		})
	}
	return bodies, rest, nil
}

// value is the stored value of one body, which is in chunks.
type value struct {
	chunks tuple.Subspace
	key    tuple.Tuple // of the chunks, without their numbers
	stored []byte
}

// readValues reads the first values of a range, and returns the key at which the next one begins.
func readValues(tx kv.ReadTransaction, space tuple.Subspace, r kv.KeyRange) (values []value, rest []byte, err error) {
	pairs, err := tx.GetRange(r, kv.RangeOptions{Limit: resealRows}).Slice()
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
	// The last value may have more chunks.
	last := &values[len(values)-1]
	if last.stored, err = rows.JoinChunks(readAll(tx, last.chunks)); err != nil {
		return nil, nil, err
	}
	return values, rows.Range(last.chunks).End, nil
}

// envelope is the stored form of a body.
type envelope struct {
	place  place
	stored []byte
	value  func(stored []byte) []byte // returns the value that contains it
}

func (db *Database) envelope(space tuple.Subspace, v value) (e envelope, err error) {
	var id string
	if !rows.As(v.key[0], &id) {
		return e, corrupt("the key of a body: %v", v.key)
	}
	if len(v.key) == 1 { // a local document's key
		rev, stored, err := splitLocal(id, v.stored)
		return envelope{place{id: id}, stored, func(stored []byte) []byte { return joinLocal(rev, stored) }}, err
	}
	var rev Rev
	var raw []byte
	var isHex bool
	if len(v.key) != 4 || !rows.As(v.key[1], &rev.Pos) || !rows.As(v.key[2], &raw) || !rows.As(v.key[3], &isHex) {
		return e, corrupt("the key of a body: %v", v.key)
	}
	rev.ID = revtree.FromRaw(raw, isHex)
	return envelope{place{id, rev}, v.stored, func(stored []byte) []byte { return stored }}, nil
}

// reseal seals a body again, unless it cannot be opened. It conflicts with any change of the body.
func (db *Database) reseal(tx kv.Transaction, chunks tuple.Subspace, e envelope) {
	body, err := db.openBody(e.stored, e.place)
	if err != nil {
		return
	}
	tx.AddReadConflictRange(rows.Range(chunks))
	tx.ClearRange(rows.Range(chunks))
	rows.SetChunks(tx, chunks, e.value(db.sealBody(body, e.place)))
}
