package jobs

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/kv/levels"
	"settee/pkg/tuple"
	"settee/replicator"
)

// QueueName is the name of the queue of replications.
const QueueName = "replication"

// ErrNotFound is returned if there is no such replication job.
var ErrNotFound = errors.New("no such replication")

// Options are the options of [Open].
type Options struct {
	// UUID is the server uuid that replication ids cover ([couchdb] uuid). Default: the uuid kept
	// in the store.
	UUID string
	// MaxHistory is the most events kept in a job's history. Default: 10.
	MaxHistory int
	// TransientMaxAge is how long a transient job is kept after its end, in whole seconds.
	// Default: a day.
	TransientMaxAge time.Duration
	// StuckAfter is how long a running job that has something to do makes no progress before it counts
	// as stuck. Default: two minutes.
	StuckAfter time.Duration
	// UpdateDocs makes documents record also that their job runs, and why it crashes
	// ([replicator] update_docs).
	UpdateDocs bool
	// Settings, if not nil, replaces MaxHistory, TransientMaxAge, StuckAfter and UpdateDocs. It is called
	// for each use, so that they may change while the store is used.
	Settings func() Settings
	// Levels, if not nil, has the level of the store, and is the db of [Open]. Jobs are indexed by name from NamesLevel on.
	// Nil means that they have always been.
	Levels *levels.Guard
	// Documents is the key prefix of the store's databases (docstore.Open). Sealer seals the
	// databases for which [SealedDatabase] is true; jobs are sealed by the job layer.
	Documents []byte
	Sealer    kv.Sealer
}

// SealedDatabase reports whether the documents of a database of that name are sealed. Documents
// that make jobs are, because they contain credentials.
func SealedDatabase(name string) bool { return replicator.IsReplicatorDatabase(name) }

// Settings are the [Options] of the same names that may change while a store is used. They have
// no defaults.
type Settings struct {
	MaxHistory      int
	TransientMaxAge time.Duration
	StuckAfter      time.Duration
	UpdateDocs      bool
}

// Store keeps the replication jobs of a store. It is safe for concurrent use.
type Store struct {
	db                    kv.Database
	jobs, watches, upkeep *fdbjobs.Queue
	space                 tuple.Subspace
	uuid                  string
	settings              func() Settings
	// docs has no hooks, because a job's write to its document is not a user's. It starts no
	// goroutines, so it need not be closed.
	docs   *docstore.Store
	sealer kv.Sealer
	levels *levels.Guard
	// allNamed is true once the index by name has had all jobs.
	allNamed atomic.Bool
}

// Open returns the replication jobs of a store. It reads the server uuid from the store, and
// makes one first if there is none.
func Open(ctx context.Context, db kv.Database, layer *fdbjobs.Layer, opts Options) (*Store, error) {
	s := &Store{
		db: db, jobs: layer.Queue(QueueName), watches: layer.Queue(WatchQueue), upkeep: layer.Queue(upkeep.Queue),
		space: tuple.NewSubspace("replicator"), uuid: opts.UUID, settings: opts.Settings,
		sealer: opts.Sealer, levels: opts.Levels, docs: docstore.Open(db, opts.Documents, docstore.Options{Sealer: opts.Sealer, Sealed: SealedDatabase}),
	}
	if s.settings == nil {
		fixed := Settings{
			cmp.Or(opts.MaxHistory, 10), cmp.Or(opts.TransientMaxAge, 24*time.Hour), cmp.Or(opts.StuckAfter, 2*time.Minute), opts.UpdateDocs,
		}
		s.settings = func() Settings { return fixed }
	}
	if s.uuid != "" {
		return s, nil
	}
	fresh, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("making a server uuid: %w", err)
	}
	s.uuid, err = kv.TransactValue(ctx, db, func(tx kv.Transaction) (string, error) {
		value, err := tx.Get(s.space.Pack("uuid")).Await()
		if err != nil || value != nil {
			return string(value), err
		}
		made := hex.EncodeToString(fresh[:])
		tx.Set(s.space.Pack("uuid"), []byte(made))
		return made, nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the server uuid: %w", err)
	}
	return s, nil
}

// ServerUUID returns the uuid that replication ids cover.
func (s *Store) ServerUUID() string { return s.uuid }

// Jobs returns the job layer's view of the jobs, for activity monitors and timeouts.
func (s *Store) Jobs() *fdbjobs.Queue { return s.jobs }

// SetTimeout sets the time after which a running job without an update is queued again.
func (s *Store) SetTimeout(ctx context.Context, timeout time.Duration) error {
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		return s.jobs.SetTimeout(tx, timeout)
	})
}

// read returns a job, or an error that wraps ErrNotFound.
func (s *Store) read(tx kv.ReadTransaction, id string) (*Job, error) {
	raw, err := s.jobs.Get(tx, id)
	if errors.Is(err, fdbjobs.ErrNotFound) {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if err != nil {
		return nil, err
	}
	exists, err := s.ownerExists(tx, raw.Owner)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	return s.parse(raw)
}

// ownerExists reports whether an owner is a user or a database that exists. It conflicts with the
// deletion of the database, unless tx is a snapshot.
func (s *Store) ownerExists(tx kv.ReadTransaction, owner string) (bool, error) {
	name, instance, ok := ownerDatabase(owner)
	if !ok {
		return true, nil
	}
	db, err := s.docs.DatabaseIn(tx, name)
	if errors.Is(err, docstore.ErrDatabaseNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return db.Instance() == instance, nil
}

// resolve returns the job with that job id or replication id.
func (s *Store) resolve(tx kv.ReadTransaction, id string) (*Job, error) {
	if len(id) > fdbjobs.MaxNameSize {
		return nil, ErrNotFound // too long for a key
	}
	reserved := tx.Get(s.reservationKey(id))
	job, err := s.read(tx, id)
	if !errors.Is(err, ErrNotFound) {
		return job, err
	}
	jobID, err := reserved.Await()
	if err != nil {
		return nil, err
	}
	if jobID == nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	job, err = s.read(tx, string(jobID))
	if err == nil && !job.has(id) {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	return job, err
}
