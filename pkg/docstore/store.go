package docstore

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/google/uuid"

	"settee/pkg/kv"
)

// The limits of documents, which follow from those of a transaction.
const (
	// DefaultMaxDocumentSize is the most bytes of JSON that a document's body has, and the
	// most that [Options] may say.
	DefaultMaxDocumentSize = 8_000_000
	// MaxIDSize is that of a document's id, in bytes. Keys hold it, and have at most 10,000.
	MaxIDSize = 2_000
	// MaxLeaves is how many leaf revisions a document may have, deleted ones included.
	MaxLeaves = 1_000
	// MaxLeafSize is that of what is stored of a revision besides its body, in bytes: the
	// ids of its ancestors, and the names and types of its attachments.
	MaxLeafSize = 500_000
	// MaxSecuritySize is that of a security object, in bytes of JSON.
	MaxSecuritySize = 90_000
)

// Options of a store. The zero value works.
type Options struct {
	// MaxDocumentSize is the most bytes that a document's body may have, as JSON text.
	// Default: DefaultMaxDocumentSize; more than that is DefaultMaxDocumentSize too.
	MaxDocumentSize int
	// Hooks run inside the transactions of writes.
	Hooks Hooks
	// Security is the security object of databases that were given none, a JSON object.
	// Default: {}.
	Security json.RawMessage
	// Sealer seals the bodies of documents of the databases whose names Sealed takes, local documents
	// included, but not their attachments; what was sealed is opened in any database. Whether there is a
	// Sealer or not, who knows all of such a document but a password cannot find that by the revision.
	// Default: none, and no database.
	Sealer kv.Sealer
	Sealed func(database string) bool
}

// Hooks let other code take part in writes, in their transaction: what they write is
// committed if the document is. As any function of a transaction they may run several
// times, though not for a revision that an earlier run has committed. A hook waits for nothing
// but the store, and not for long. Each may be nil.
type Hooks struct {
	// Before is asked before a revision is added: an error refuses the revision and is the
	// error of its [Result]; other documents are written all the same, and so is what the
	// hook itself wrote before it refused. It is not asked about a revision that is there
	// already. An error of the store's (kv.Error) or of a context, wrapped or not, is the
	// transaction's, which is made again if the error is retryable.
	Before func(tx kv.Transaction, db *Database, change *Change) error
	// After is told when a document has another winning revision. An error fails the
	// transaction, and all documents in it.
	After func(tx kv.Transaction, db *Database, change *Change) error
	// Deleted is told when a database is deleted. An error keeps it.
	Deleted func(tx kv.Transaction, db *Database) error
}

// Change is what a hook is told: of a revision that is to be added, or of a document's
// winning revision. Nothing in it may be changed.
type Change struct {
	ID      string
	Rev     Rev
	Deleted bool
	// Body is the revision's JSON object, as it is kept.
	Body []byte `json:"-"`
	// Attachments are sorted by name.
	Attachments []Attachment
	// Winner is the winning revision as it was before; zero: the document did not exist.
	Winner Rev
	// WinnerDeleted reports whether that was deleted.
	WinnerDeleted bool
	// Order is the place of the document among those of the transaction, from 0. No two have
	// the same, so it can tell stamped writes of a hook apart.
	Order uint16
}

// Store is the databases below one prefix of a store. It is safe for concurrent use.
type Store struct {
	kv              kv.Database
	keys            storeKeys
	maxDocumentSize int
	hooks           Hooks
	security        json.RawMessage
	sealer          kv.Sealer
	sealed          func(database string) bool // nil: none

	ctx   context.Context // of waiting feeds; Close ends it
	close context.CancelFunc
	wg    sync.WaitGroup

	mu      sync.Mutex // guards what follows; never held during I/O
	closed  bool
	tickers map[uuid.UUID]*ticker // of databases that somebody waits for
}

// Open returns the databases of db below prefix. It reads nothing and starts nothing yet.
// Whoever uses it calls Close before the store's.
func Open(db kv.Database, prefix []byte, opts Options) *Store {
	s := &Store{
		kv: db, keys: newStoreKeys(prefix),
		maxDocumentSize: opts.MaxDocumentSize, hooks: opts.Hooks, security: opts.Security,
		sealer: opts.Sealer, sealed: opts.Sealed,
		tickers: map[uuid.UUID]*ticker{},
	}
	if s.maxDocumentSize <= 0 || s.maxDocumentSize > DefaultMaxDocumentSize {
		s.maxDocumentSize = DefaultMaxDocumentSize
	}
	if s.security == nil {
		s.security = emptyBody
	}
	if s.sealer == nil {
		s.sealer = kv.Plain{}
	}
	s.ctx, s.close = context.WithCancel(context.Background())
	return s
}

// Close ends all waiting, with ErrClosed, and returns when the store's goroutines have
// ended. Other calls are not held up by it.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.wg.Wait()
}
