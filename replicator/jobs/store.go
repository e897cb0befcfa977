package jobs

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"

	"settee/fdbjobs"
	"settee/fdbjobs/upkeep"
	"settee/pkg/docstore"
	"settee/pkg/kv"
	"settee/pkg/tuple"
	"settee/replicator"
	"settee/replicator/rates"
	"settee/replicator/shares"
)

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
	// Documents is the key prefix of the store's databases (docstore.Open). Sealer seals the replicator databases, because
	// their documents contain credentials; jobs are sealed by the job layer.
	Documents []byte
	Sealer    kv.Sealer
}

// Store keeps the replication jobs of a store. It has a part for each kind of caller. It is safe for concurrent use.
type Store struct {
	*core
	// ServerUUID is the uuid that replication ids cover.
	ServerUUID string
	// Jobs is the job layer's view of the jobs, for activity monitors and timeouts.
	Jobs *fdbjobs.Queue
	// Documents makes jobs of documents. It is for nodes with an HTTP interface.
	Documents *Documents
	// Requests adds, awaits and cancels jobs for HTTP requests.
	Requests *Requests
	// Lists reads jobs for the HTTP interface, metrics and watches.
	Lists *Lists
	// Runs takes jobs. It is for the scheduler.
	Runs *Runs
	// Watches is for the watches of servers, which make parked jobs due and publish events of databases to mirrors.
	Watches *Watches
	// Verifications compares both ends of single jobs, for the scheduler.
	Verifications *Verifications
	// Shares sets, decays and lists the shares of owners, for the scheduler and the HTTP interface.
	Shares *shares.Shares
	// Rates keeps what the nodes did in the last day, for the scheduler and the HTTP interface.
	Rates *rates.Rates
	// Upkeep is for the program: the tasks of upkeep, and what it does when it opens a store.
	Upkeep *Upkeep
}

// newStore returns the parts of a store. Each has the types of rows that it uses.
func newStore(c *core) *Store {
	reservations, parking, records := &reservations{c}, &parkedRows{c}, &jobRecords{c}
	mirrors := &mirrorRows{c}
	writer, pages := &writer{c, reservations, parking, records, mirrors}, &pages{c, mirrors}
	return &Store{
		core: c, ServerUUID: c.uuid, Jobs: c.jobs,

		Documents: &Documents{c, writer},
		Requests:  &Requests{c, reservations, parking, records, mirrors, writer, pages},
		Lists:     &Lists{c, reservations, parking, records, mirrors, pages},
		Runs:      &Runs{c, reservations, parking, records, mirrors, writer},
		Watches:   &Watches{c, c.watches, parking, mirrors},
		Shares:    c.shares,

		Verifications: &Verifications{c, c.verifications, records},
		Rates:         rates.Open(c.db),
		Upkeep:        &Upkeep{c, reservations, mirrors, writer},
	}
}

// Open returns the replication jobs of a store. It reads the server uuid from the store, and
// makes one first if there is none.
func Open(ctx context.Context, db kv.Database, layer *fdbjobs.Layer, opts Options) (*Store, error) {
	c := &core{
		db: db, jobs: layer.Queue(QueueName), watches: layer.Queue(watchQueue), upkeep: layer.Queue(upkeep.Queue),
		verifications: layer.Queue(verifyQueue),
		space:         tuple.NewSubspace("replicator"), uuid: opts.UUID, settings: opts.Settings,
		docs: docstore.Open(db, opts.Documents, docstore.Options{
			Sealer: opts.Sealer, Sealed: replicator.IsReplicatorDatabase, Salted: replicator.IsReplicatorDatabase,
		}),
	}
	c.shares = shares.Open(db, c.jobs, c.docs, pendingStates())
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
	return newStore(c), nil
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
