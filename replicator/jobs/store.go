package jobs

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/pkg/docstore"
	"settee/pkg/kv"
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

// Store keeps the replication jobs of a store. It has a part for each kind of caller. It is safe for concurrent use.
type Store struct {
	*tables
	// Documents makes jobs of documents. It is for nodes with an HTTP interface.
	Documents *Documents
	// Requests adds, awaits and cancels jobs for HTTP requests.
	Requests *Requests
	// Lists reads jobs for the HTTP interface, metrics and watches.
	Lists *Lists
	// Runs takes jobs. It is for the scheduler.
	Runs *Runs
	// Watches is for the watches of servers, which make parked jobs due and tell mirrors of databases.
	Watches *Watches
	// Shares sets, decays and lists the shares of owners, for the scheduler and the HTTP interface.
	Shares *Shares
	// Rates keeps what the nodes did in the last day, for the scheduler and the HTTP interface.
	Rates *Rates
	// Upkeep is for the program: the tasks of upkeep, and what it does when it opens a store.
	Upkeep *Upkeep
}

// core is what all parts of a store use.
type core struct {
	db                    kv.Database
	jobs, watches, upkeep *fdbjobs.Queue
	space                 tuple.Subspace
	uuid                  string
	settings              func() Settings
	// docs has no hooks, because a job's write to its document is not a user's. It starts no
	// goroutines, so it need not be closed.
	docs *docstore.Store
}

// tables are the rows of a store besides its jobs. Each type of rows reads and writes its own in the transactions of others.
type tables struct {
	*core
	reservations *reservations
	parking      *parkedRows
	records      *jobRecords
	mirrors      *mirrorRows
	usage        *usageRows
}

func newTables(c *core) *tables {
	return &tables{
		core: c, reservations: &reservations{c}, parking: &parkedRows{c}, records: &jobRecords{c}, mirrors: &mirrorRows{c}, usage: &usageRows{c},
	}
}

// newStore returns the parts of a store.
func newStore(all *tables) *Store {
	writer, pages := &writer{all}, &pages{all}
	return &Store{
		tables: all, Documents: &Documents{all, writer}, Requests: &Requests{all, writer}, Lists: &Lists{all, pages},
		Runs: &Runs{all, writer}, Watches: &Watches{all}, Shares: &Shares{all}, Rates: &Rates{all.core}, Upkeep: &Upkeep{all, writer},
	}
}

// Open returns the replication jobs of a store. It reads the server uuid from the store, and
// makes one first if there is none.
func Open(ctx context.Context, db kv.Database, layer *fdbjobs.Layer, opts Options) (*Store, error) {
	c := &core{
		db: db, jobs: layer.Queue(QueueName), watches: layer.Queue(WatchQueue), upkeep: layer.Queue(upkeep.Queue),
		space: tuple.NewSubspace("replicator"), uuid: opts.UUID, settings: opts.Settings,
		docs: docstore.Open(db, opts.Documents, docstore.Options{
			Sealer: opts.Sealer, Sealed: SealedDatabase, Salted: SealedDatabase,
		}),
	}
	if c.settings == nil {
		fixed := Settings{
			cmp.Or(opts.MaxHistory, 10), cmp.Or(opts.TransientMaxAge, 24*time.Hour), cmp.Or(opts.StuckAfter, 2*time.Minute), opts.UpdateDocs,
		}
		c.settings = func() Settings { return fixed }
	}
	if c.uuid == "" {
		var err error
		if c.uuid, err = serverUUID(ctx, c); err != nil {
			return nil, err
		}
	}
	return newStore(newTables(c)), nil
}

// serverUUID reads the server uuid of a store, and makes one first if there is none.
func serverUUID(ctx context.Context, c *core) (string, error) {
	fresh, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("making a server uuid: %w", err)
	}
	kept, err := kv.TransactValue(ctx, c.db, func(tx kv.Transaction) (string, error) {
		value, err := tx.Get(c.space.Pack("uuid")).Await()
		if err != nil || value != nil {
			return string(value), err
		}
		made := hex.EncodeToString(fresh[:])
		tx.Set(c.space.Pack("uuid"), []byte(made))
		return made, nil
	})
	if err != nil {
		return "", fmt.Errorf("reading the server uuid: %w", err)
	}
	return kept, nil
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
func (s *core) read(tx kv.ReadTransaction, id string) (*Job, error) {
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
func (s *core) ownerExists(tx kv.ReadTransaction, owner string) (bool, error) {
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

// computeID sets the replication id of a definition, if that does not depend on a filter
// function.
func (s *core) computeID(args *replicator.JobArgs) (err error) {
	args.ReplicationID, err = s.replicationID(args.Replication)
	return err
}

func (s *core) replicationID(r *replicator.Replication) (string, error) {
	if r.NeedsFilterCode() {
		return "", nil
	}
	id, err := r.ID(s.uuid, "")
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

// parse parses a job. If the job has a new definition that it has not run with, its state is the
// initial one. If the args cannot be opened, the error wraps fdbjobs.ErrSealed, and the job has
// all the rest.
func (s *core) parse(raw *fdbjobs.Job) (*Job, error) {
	job := &Job{
		ID: raw.ID, Status: raw.Status, Args: new(replicator.JobArgs), State: new(replicator.JobState),
		scheduled: raw.Scheduled, tag: raw.Tag,
	}
	if err := json.Unmarshal(raw.State, job.State); err != nil {
		return nil, fmt.Errorf("reading the state of the replication job %q: %w", raw.ID, err)
	}
	job.parkedAt, job.held = sourceOf(job.State.Parked), holding{raw.Lock, job.State.ReplicationID}
	if raw.ArgsErr != nil {
		return job, fmt.Errorf("reading the replication job: %w", raw.ArgsErr)
	}
	if err := json.Unmarshal(raw.Args, job.Args); err != nil {
		return nil, fmt.Errorf("reading the args of the replication job %q: %w", raw.ID, err)
	}
	if job.Args.Replication == nil {
		return nil, fmt.Errorf("reading the args of the replication job %q: no replication", raw.ID)
	}
	if raw.Status == fdbjobs.Pending && raw.Tag != tagCrashing {
		// Listings find and count the job by its tag. A job that is accepted after a crash, by a
		// node that dies before the run starts, is queued again with the state of the crash and
		// without the tag.
		job.State.State = replicator.StatePending
	}
	if job.Args.Definition != job.State.Definition {
		job.redefined = true
		s.renew(job)
	}
	return job, nil
}

// renew sets the initial state for a new definition. A transient job keeps its progress, because
// its new definition is of the same replication with other options.
func (s *core) renew(job *Job) {
	if !job.Transient() {
		job.State = s.initialState(job.Args, nil)
		return
	}
	old := job.State
	job.State = s.initialState(job.Args, old.History)
	job.State.Runs, job.State.Target, job.State.RefusedAt = old.Runs, old.Target, old.RefusedAt
	job.State.ReplicationID, job.State.Stats, job.State.ChangesPending = old.ReplicationID, old.Stats, old.ChangesPending
	job.State.SourceSeq, job.State.ThroughSeq, job.State.CheckpointedSourceSeq = old.SourceSeq, old.ThroughSeq, old.CheckpointedSourceSeq
}

// initialState returns the state of a job that was just added.
func (s *core) initialState(args *replicator.JobArgs, history replicator.History) *replicator.JobState {
	state := &replicator.JobState{
		State: replicator.StatePending, Definition: args.Definition, ReplicationID: args.ReplicationID,
		LastUpdated: args.Added, History: slices.Clone(history),
	}
	state.History.Push(replicator.Event{Timestamp: args.Added, Type: replicator.EventAdded}, s.settings().MaxHistory)
	return state
}

// deletedDatabase is a deleted database that may still have jobs.
type deletedDatabase struct{ instance, owner string }

// deletedDatabases returns up to deletedAtOnce deleted databases with instances greater than
// after.
func (s *core) deletedDatabases(tx kv.ReadTransaction, after string) ([]deletedDatabase, error) {
	begin, end := s.space.Sub("deleted").Range()
	if after != "" {
		begin = kv.KeyAfter(s.space.Pack("deleted", after))
	}
	all := kv.KeyRange{Begin: begin, End: end}
	pairs, err := tx.GetRange(all, kv.RangeOptions{Limit: deletedAtOnce}).Slice()
	if err != nil {
		return nil, err
	}
	deleted := make([]deletedDatabase, len(pairs))
	for i, pair := range pairs {
		_, instance, ok := ownerDatabase(string(pair.Value))
		if !ok {
			return nil, fmt.Errorf("reading a deleted replicator database: malformed owner %q", pair.Value)
		}
		deleted[i] = deletedDatabase{instance: instance, owner: string(pair.Value)}
	}
	return deleted, nil
}

// stuckSince returns since when a running job makes no progress, or zero if it has not been so for long.
func (s *core) stuckSince(state *replicator.JobState) time.Time {
	since := state.WithoutProgress()
	if time.Since(since) < s.settings().StuckAfter {
		return time.Time{}
	}
	return since
}
