package docstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"settee/pkg/jsontext"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

const (
	// DefaultRevsLimit is the number of revisions of a path that are kept by default.
	DefaultRevsLimit = 1_000
	// MaxRevsLimit is the maximum of [Database.SetRevsLimit]. A path is stored in the row of its leaf.
	MaxRevsLimit = 10_000
	// MaxDatabaseNameSize is CouchDB's maximum length of a name, in bytes.
	MaxDatabaseNameSize = 238
)

// databaseName is CouchDB's rule for names (couch_db.erl, DBNAME_REGEX).
var databaseName = regexp.MustCompile(`^[a-z][a-z0-9_$()+/-]*$`)

// systemNames are the names that may begin with an underscore. With a prefix (x/_users) the rule allows them anyway.
var systemNames = []string{"_users", "_replicator", "_global_changes"}

// CheckDatabaseName returns [ErrDatabaseName] if CouchDB does not allow the name for a database.
func CheckDatabaseName(name string) error {
	if len(name) > MaxDatabaseNameSize || !databaseName.MatchString(name) && !slices.Contains(systemNames, name) {
		return fmt.Errorf("%w: %s", ErrDatabaseName, quote(name))
	}
	return nil
}

// Database is one instance of a database. A database that is created under the name of a deleted one is another
// instance. Every call of a deleted instance returns [ErrDatabaseNotFound]. A Database holds no state, and any number
// of goroutines may use it.
type Database struct {
	store    *Store
	name     string
	instance uuid.UUID
	keys     databaseKeys
}

func (s *Store) database(name string, instance uuid.UUID) *Database {
	return &Database{store: s, name: name, instance: instance, keys: newDatabaseKeys(&s.keys, name, instance)}
}

// Name returns the name of the database.
func (db *Database) Name() string { return db.name }

// Instance returns the 32 hexadecimal digits that identify the instance among all databases, including earlier ones of
// the same name.
func (db *Database) Instance() string { return hex.EncodeToString(db.instance[:]) }

// Instance returns the database with a name and an instance that [Database.Instance] returned. It reads nothing: the
// first call of the database reports whether it still exists. The error is [ErrInvalid].
func (s *Store) Instance(name, instance string) (*Database, error) {
	b, err := hex.DecodeString(instance)
	if err != nil || len(b) != len(uuid.UUID{}) {
		return nil, fmt.Errorf("%w: %s is no instance of a database", ErrInvalid, quote(instance))
	}
	return s.database(name, uuid.UUID(b)), nil
}

// databaseRow is the value of a database's key.
type databaseRow struct {
	instance uuid.UUID
	created  int64 // seconds since the epoch
}

func awaitDatabaseRow(f kv.Future[[]byte]) (row databaseRow, err error) {
	value, err := f.Await()
	if err != nil {
		return row, err
	}
	if value == nil {
		return row, ErrDatabaseNotFound
	}
	t, err := tuple.Unpack(value)
	if err != nil || len(t) != 2 || !rows.As(t[0], &row.instance) || !rows.As(t[1], &row.created) {
		return row, corrupt("a database of %d elements (%w)", len(t), err)
	}
	return row, nil
}

// exists is a pending check that the database exists.
type exists struct {
	db  *Database
	row kv.Future[[]byte]
}

func (db *Database) exists(tx kv.ReadTransaction) exists { return exists{db, tx.Get(db.keys.row)} }

func (e exists) await() error {
	_, err := e.created()
	return err
}

func (e exists) created() (int64, error) {
	row, err := awaitDatabaseRow(e.row)
	if err == nil && row.instance != e.db.instance {
		err = ErrDatabaseNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("database %s: %w", quote(e.db.name), err)
	}
	return row.created, nil
}

// read reads in one transaction, without conflicts, if the database exists. begin starts the read.
func read[T any](ctx context.Context, db *Database, begin func(tx kv.ReadTransaction) kv.Future[T]) (T, error) {
	return kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) (value T, err error) {
		exists, reading := db.exists(tx.Snapshot()), begin(tx.Snapshot())
		if err := exists.await(); err != nil {
			return value, err
		}
		return reading.Await()
	})
}

// Create creates a database. The errors are [ErrDatabaseExists] and [ErrDatabaseName].
func (s *Store) Create(ctx context.Context, name string) (*Database, error) {
	return s.CreateWith(ctx, name, nil)
}

// CreateWith is [Store.Create] for a database that has a security object from the beginning, unless security is nil.
func (s *Store) CreateWith(ctx context.Context, name string, security json.RawMessage) (*Database, error) {
	if err := CheckDatabaseName(name); err != nil {
		return nil, err
	}
	db := s.database(name, uuid.New())
	created := time.Now().Unix()
	err := s.kv.Transact(ctx, func(tx kv.Transaction) error {
		row, trash, life := tx.Get(db.keys.row), tx.Get(s.keys.trash.Pack(db.instance)), s.readLife(tx, name)
		value, err := row.Await()
		if err != nil {
			return err
		}
		if value != nil {
			// The row may be from an earlier run of this call, whose result was unknown.
			return db.orExists(value)
		}
		if buried, err := trash.Await(); err != nil || buried != nil {
			return err // created by an earlier run and deleted since: it must not come back
		}
		tx.Set(db.keys.row, tuple.Tuple{db.instance, created}.Pack())
		if security != nil {
			tx.Set(db.keys.security, security)
		}
		return life.begin(created)
	})
	if err != nil {
		return nil, fmt.Errorf("creating the database %s: %w", quote(name), err)
	}
	return db, nil
}

// orExists returns ErrDatabaseExists unless value is the row of db.
func (db *Database) orExists(value []byte) error {
	row, err := awaitDatabaseRow(kv.Known(value))
	if err == nil && row.instance != db.instance {
		err = ErrDatabaseExists
	}
	return err
}

// Database returns the database with a name. The error is [ErrDatabaseNotFound].
func (s *Store) Database(ctx context.Context, name string) (*Database, error) {
	return kv.TransactValue(ctx, s.kv, func(tx kv.Transaction) (*Database, error) {
		return s.DatabaseIn(tx, name)
	})
}

// DatabaseIn is [Store.Database] in the caller's transaction.
func (s *Store) DatabaseIn(tx kv.ReadTransaction, name string) (*Database, error) {
	if len(name) > MaxDatabaseNameSize { // may be too long for a key
		return nil, fmt.Errorf("database %s: %w", quote(name), ErrDatabaseNotFound)
	}
	row, err := awaitDatabaseRow(tx.Get(s.keys.databases.Pack(name)))
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", quote(name), err)
	}
	return s.database(name, row.instance), nil
}

// CreatedIn starts reading when the database with a name was created, as Info.InstanceStartTime. It is empty if there is none.
func (s *Store) CreatedIn(tx kv.ReadTransaction, name string) func() (string, error) {
	if len(name) > MaxDatabaseNameSize { // may be too long for a key
		return func() (string, error) { return "", nil }
	}
	reading := tx.Get(s.keys.databases.Pack(name))
	return func() (string, error) {
		row, err := awaitDatabaseRow(reading)
		switch {
		case errors.Is(err, ErrDatabaseNotFound):
			return "", nil
		case err != nil:
			return "", err
		}
		return strconv.FormatInt(row.created, 10), nil
	}
}

// Delete deletes the database. When it returns, nothing of the database is visible, each write in progress has either
// been committed before or is refused, and waiting feeds have been woken. [Store.RemoveDatabases] removes the rows
// later.
func (db *Database) Delete(ctx context.Context) error {
	began := false
	err := db.store.kv.Transact(ctx, func(tx kv.Transaction) error {
		exists, life := db.exists(tx), db.store.readLife(tx, db.name)
		if err := exists.await(); err != nil {
			if began && errors.Is(err, ErrDatabaseNotFound) {
				return nil // deleted by an earlier run whose result was unknown, or by another call
			}
			return err
		}
		began = true
		if deleted := db.store.hooks.Deleted; deleted != nil {
			if err := deleted(ctx, tx, db); err != nil {
				return err
			}
		}
		now := time.Now().Unix()
		tx.Clear(db.keys.row)
		tx.Set(db.store.keys.trash.Pack(db.instance), tuple.Tuple{now}.Pack())
		add(tx, db.keys.watch, 1)
		return life.end(db, now)
	})
	if err != nil {
		return fmt.Errorf("deleting: %w", err)
	}
	return nil
}

// ListOptions says which databases [Store.Databases] yields.
type ListOptions struct {
	// Start and End are the first and the last name, both included. Empty is no bound. With Descending the names go
	// down from Start to End.
	Start, End string
	Descending bool
}

// Databases yields the names of the databases in byte order. It reads some hundred names per transaction.
func (s *Store) Databases(ctx context.Context, opts ListOptions) iter.Seq2[string, error] {
	r := nameRange(s.keys.databases, opts.Start, opts.End, opts.Descending, false)
	return func(yield func(string, error) bool) {
		for {
			pairs, err := kv.TransactValue(ctx, s.kv, func(tx kv.Transaction) ([]kv.KeyValue, error) {
				return tx.Snapshot().GetRange(r, kv.RangeOptions{
					Limit: rowsAtOnce, Reverse: opts.Descending,
				}).Slice()
			})
			if err != nil {
				yield("", fmt.Errorf("listing the databases: %w", err))
				return
			}
			for _, pair := range pairs {
				name, err := rows.LastString(s.keys.databases, pair.Key)
				if !yield(name, err) || err != nil {
					return
				}
			}
			if len(pairs) < rowsAtOnce {
				return
			}
			r = rest(r, pairs[len(pairs)-1].Key, opts.Descending)
		}
	}
}

// rowsAtOnce is how many rows of a range one transaction reads.
const rowsAtOnce = 500

// nameRange returns the range of the keys (name) below s from start to end. Either may be empty.
func nameRange(s tuple.Subspace, start, end string, descending, exclusive bool) kv.KeyRange {
	r := rows.Range(s)
	low, high := start, end
	if descending {
		low, high = end, start
	}
	if low != "" {
		r.Begin = nameKey(s, low, descending && exclusive)
	}
	if high != "" {
		r.End = nameKey(s, high, descending || !exclusive)
	}
	if string(r.Begin) > string(r.End) {
		r.End = r.Begin
	}
	return r
}

// nameKey returns the key of a name, or the key after it. A bound that is too long for a key is cut, and the key after
// the cut is returned.
func nameKey(s tuple.Subspace, name string, behind bool) []byte {
	if len(name) > MaxIDSize {
		name, behind = name[:MaxIDSize], true
	}
	key := s.Pack(name)
	if behind {
		key = kv.KeyAfter(key)
	}
	return key
}

// rest returns the part of a range after key.
func rest(r kv.KeyRange, key []byte, descending bool) kv.KeyRange {
	if descending {
		r.End = key
	} else {
		r.Begin = kv.KeyAfter(key)
	}
	return r
}

// Info describes a database.
type Info struct {
	Name string
	// InstanceStartTime is the time of creation in seconds since the epoch, as text, as in CouchDB 3.
	InstanceStartTime string
	// UpdateSeq is the sequence of the last change.
	UpdateSeq Sequence
	// DocCount is the number of documents that are not deleted, DeletedCount the number of deleted ones.
	DocCount, DeletedCount int64
	// BodyBytes is the size of the bodies of all leaf revisions. AttachmentBytes is the stored size of their
	// attachments, each counted once.
	BodyBytes, AttachmentBytes int64
	// Security is the security object, see [Database.Security].
	Security json.RawMessage
}

// Info reads a few counters, and the security object. Its cost does not depend on the size of the database.
func (db *Database) Info(ctx context.Context) (Info, error) {
	return kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) (Info, error) {
		snap := tx.Snapshot()
		exists, last, security := db.exists(snap), db.lastChange(snap), db.readSecurity(snap)
		info := Info{Name: db.name}
		counters := []struct {
			read kv.Future[[]byte]
			into *int64
		}{
			{snap.Get(db.keys.docCount), &info.DocCount},
			{snap.Get(db.keys.delCount), &info.DeletedCount},
			{snap.Get(db.keys.bodyBytes), &info.BodyBytes},
			{snap.Get(db.keys.attachmentBytes), &info.AttachmentBytes},
		}
		created, err := exists.created()
		if err != nil {
			return info, err
		}
		info.InstanceStartTime = strconv.FormatInt(created, 10)
		for _, c := range counters {
			if *c.into, err = rows.AwaitInt(c.read); err != nil {
				return info, err
			}
		}
		if info.UpdateSeq, err = last.Await(); err != nil {
			return info, err
		}
		info.Security, err = security.Await()
		return info, err
	})
}

// Security returns the database's security object, a JSON object, or the object of [Options] if none was set. The caller must
// not modify it.
func (db *Database) Security(ctx context.Context) (json.RawMessage, error) {
	return read(ctx, db, db.readSecurity)
}

func (db *Database) readSecurity(tx kv.ReadTransaction) kv.Future[json.RawMessage] {
	return kv.Map(tx.Get(db.keys.security), func(security []byte) (json.RawMessage, error) {
		if security == nil {
			return db.store.security, nil
		}
		return security, nil
	})
}

// DatabaseSecurity is [Store.Database] and [Database.Security] in one transaction.
func (s *Store) DatabaseSecurity(ctx context.Context, name string) (*Database, json.RawMessage, error) {
	var db *Database
	security, err := kv.TransactValue(ctx, s.kv, func(tx kv.Transaction) (json.RawMessage, error) {
		var err error
		if db, err = s.DatabaseIn(tx.Snapshot(), name); err != nil {
			return nil, err
		}
		return db.readSecurity(tx.Snapshot()).Await()
	})
	return db, security, err
}

// SetSecurity sets the security object: a JSON object of at most [MaxSecuritySize] bytes. The package does not
// interpret it. The errors are [ErrInvalid] and [ErrTooLarge].
func (db *Database) SetSecurity(ctx context.Context, object json.RawMessage) error {
	if len(object) > MaxSecuritySize {
		return fmt.Errorf("%w: a security object of %d bytes; the most is %d", ErrTooLarge, len(object), MaxSecuritySize)
	}
	if err := jsontext.CheckObject(object, jsontext.PairedSurrogates); err != nil {
		return fmt.Errorf("%w security object: %w", ErrInvalid, err)
	}
	return db.configure(ctx, db.keys.security, object)
}

// RevsLimit returns the number of revisions of a path that are kept.
func (db *Database) RevsLimit(ctx context.Context) (int, error) {
	return read(ctx, db, db.readRevsLimit)
}

func (db *Database) readRevsLimit(tx kv.ReadTransaction) kv.Future[int] {
	return kv.Map(tx.Get(db.keys.revsLimit), func(value []byte) (int, error) {
		if value == nil {
			return DefaultRevsLimit, nil
		}
		n, err := rows.ParseInt(value)
		return int(n), err
	})
}

// SetRevsLimit sets the number of revisions of a path that are kept, from 1 to [MaxRevsLimit]. It takes effect with the
// next write of each document. The error is [ErrInvalid].
func (db *Database) SetRevsLimit(ctx context.Context, limit int) error {
	if limit < 1 || limit > MaxRevsLimit {
		return fmt.Errorf("%w: a revs_limit of %d; it is from 1 to %d", ErrInvalid, limit, MaxRevsLimit)
	}
	return db.configure(ctx, db.keys.revsLimit, rows.Int(int64(limit)))
}

func (db *Database) configure(ctx context.Context, key, value []byte) error {
	return db.store.kv.Transact(ctx, func(tx kv.Transaction) error {
		if err := db.exists(tx).await(); err != nil {
			return err
		}
		tx.Set(key, value)
		return nil
	})
}
