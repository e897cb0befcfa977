package jobs

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"settee/fdbjobs"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/tuple"
)

// Type is the job type of replications.
const Type = "replication"

// ErrNotFound says that there is no such replication job.
var ErrNotFound = errors.New("no such replication")

// Options are the options of [Open].
type Options struct {
	// UUID is the server uuid that replication ids cover ([couchdb] uuid). Default: the
	// store's own.
	UUID string
	// MaxHistory is how many events a job remembers. Default: 10.
	MaxHistory int
	// TransientMaxAge is how long a transient job is kept that has ended, in whole seconds.
	// Default: a day.
	TransientMaxAge time.Duration
	// UpdateDocs has documents say also that their job runs, and why it crashes ([replicator]
	// update_docs).
	UpdateDocs bool
	// Settings, where they may change while the store is used, are asked for each time they
	// count, in place of MaxHistory, TransientMaxAge and UpdateDocs.
	Settings func() Settings
	// Documents is the prefix below which the store's databases are (docstore.Open), and Sealer is
	// that of theirs which have jobs: see [SealedDatabase]. That of the jobs is the layer's.
	Documents []byte
	Sealer    kv.Sealer
}

// SealedDatabase reports whether the documents of a database of that name are to be sealed:
// those that make jobs, which hold credentials as the jobs do.
func SealedDatabase(name string) bool { return IsReplicatorDatabase(name) }

// Settings are what may change while a store is used: see the [Options] of these names. They
// have no defaults.
type Settings struct {
	MaxHistory      int
	TransientMaxAge time.Duration
	UpdateDocs      bool
}

// Store is the replication jobs of a store. It is safe for concurrent use.
type Store struct {
	db           kv.Database
	jobs, upkeep *fdbjobs.Type
	space        tuple.Subspace
	uuid         string
	settings     func() Settings
	// docs has no hooks: what a job writes into its document is no change of a user's. Nothing waits in it, so it needs not be closed.
	docs   *docstore.Store
	sealer kv.Sealer
}

// Open returns the replication jobs of a store. It reads the server uuid, or makes
// it if there is none yet.
func Open(ctx context.Context, db kv.Database, layer *fdbjobs.Layer, opts Options) (*Store, error) {
	s := &Store{
		db: db, jobs: layer.Type(Type), upkeep: layer.Type(fdbjobs.UpkeepType), space: tuple.NewSubspace("replicator"),
		uuid: opts.UUID, settings: opts.Settings,
		sealer: opts.Sealer, docs: docstore.Open(db, opts.Documents, docstore.Options{Sealer: opts.Sealer, Sealed: SealedDatabase}),
	}
	if s.settings == nil {
		fixed := Settings{cmp.Or(opts.MaxHistory, 10), cmp.Or(opts.TransientMaxAge, 24*time.Hour), opts.UpdateDocs}
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

// Sealer returns that of the options: whoever opens the databases seals as this store does.
func (s *Store) Sealer() kv.Sealer { return s.sealer }

// ServerUUID returns the uuid that replication ids cover.
func (s *Store) ServerUUID() string { return s.uuid }

// Jobs returns the job layer's view of these jobs: for activity monitors and
// timeouts.
func (s *Store) Jobs() *fdbjobs.Type { return s.jobs }

// SetTimeout sets how long a running job may go without a sign of life before it
// is queued again.
func (s *Store) SetTimeout(ctx context.Context, timeout time.Duration) error {
	return s.db.Transact(ctx, func(tx kv.Transaction) error {
		return s.jobs.SetTimeout(tx, timeout)
	})
}

// read reads a job. The error is ErrNotFound if there is none.
func (s *Store) read(tx kv.ReadTransaction, id string) (*Job, error) {
	raw, err := s.jobs.Get(tx, id)
	if errors.Is(err, fdbjobs.ErrNotFound) {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if err != nil {
		return nil, err
	}
	alive, err := s.alive(tx, raw.Owner)
	if err != nil {
		return nil, err
	}
	if !alive {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	return s.parse(raw)
}

// alive reports whether the jobs of an owner are jobs at all: those of a database that was
// deleted are not, whether they have been removed yet or not. It conflicts with the deletion,
// unless tx is a snapshot.
func (s *Store) alive(tx kv.ReadTransaction, owner string) (bool, error) {
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

// resolve returns the job that has an id, as its job id or its replication id.
func (s *Store) resolve(tx kv.ReadTransaction, id string) (*Job, error) {
	if len(id) > fdbjobs.MaxNameSize {
		return nil, ErrNotFound // no key can be made of it
	}
	claimed := tx.Get(s.claimKey(id))
	job, err := s.read(tx, id)
	if !errors.Is(err, ErrNotFound) {
		return job, err
	}
	jobID, err := claimed.Await()
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
