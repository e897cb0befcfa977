package docstore

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"settee/pkg/docjson"
	"settee/pkg/kv"
)

// The limits of documents, derived from the limits of a transaction.
const (
	// MaxDocumentSize is the maximum size of a document's body, in bytes of JSON.
	MaxDocumentSize = 8_000_000
	// MaxAttachments is the maximum number of attachments of a document. Each is written in a transaction of its own before
	// the document, and all are listed in each of its revisions.
	MaxAttachments = 4_000
	// MaxIDSize is the maximum length of a document's id, in bytes. Keys contain it, and have at most 10,000 bytes.
	MaxIDSize = 2_000
	// MaxLeaves is the maximum number of leaf revisions of a document, deleted ones included.
	MaxLeaves = 1_000
	// MaxLeafSize is the maximum size of what is stored of a revision without its body, in bytes: the ids of its
	// ancestors, and the names and types of its attachments.
	MaxLeafSize = 500_000
	// MaxSecuritySize is the maximum size of a security object, in bytes of JSON.
	MaxSecuritySize = 90_000
)

// Options of a store. The zero value works.
type Options struct {
	// Hooks run inside the transactions of writes.
	Hooks Hooks
	// Security is the security object, a JSON object, of databases that have not been given one. Default: {}.
	Security json.RawMessage
	// Sealer seals the bodies of documents, local ones included, in the databases for whose names Sealed returns true.
	// It does not seal attachments. A sealed body is opened in any database. Default: no Sealer, and no database.
	Sealer kv.Sealer
	Sealed func(database string) bool
	// Salted selects the databases in which the ids of revisions are also hashes over a random value, so that a password
	// cannot be guessed from the revision and the rest of the document. The same edit at two servers makes two
	// revisions there, and so a conflict when they are replicated. Default: no database.
	Salted func(database string) bool
}

// Hooks let other code take part in the transactions of writes: what a hook writes is committed with the document. Like
// any function of a transaction, a hook may run several times, but not for a revision that an earlier run has
// committed. A hook must only wait for the store, and not for long. Each may be nil.
type Hooks struct {
	// Before is called before a revision is added. An error refuses the revision and becomes the error of its [Result].
	// Other documents are still written, and so is what the hook wrote before it refused. It is not called for a
	// revision that exists already. An error of the store (kv.Error) or of a context, wrapped or not, fails the
	// transaction, which is repeated if the error is retryable. The draft is passed to After, if the revision wins.
	Before func(tx kv.Transaction, db *Database, change *Change) (draft any, err error)
	// After is called when a document has a new winning revision. An error fails the transaction, and all documents in
	// it.
	After func(tx kv.Transaction, db *Database, change *Change) error
	// Deleted is called when a database is deleted, with the context of [Database.Delete]. An error keeps the database.
	Deleted func(ctx context.Context, tx kv.Transaction, db *Database) error
}

// Change describes a revision that is to be added, or a document's new winning revision. Hooks must not modify it.
type Change struct {
	ID      string
	Rev     Rev
	Deleted bool
	Body    docjson.Body `json:"-"`
	// Attachments are in the order of the edit.
	Attachments []Attachment
	// Parent is the leaf that the revision replaces: the one that the edit names, or for a replicated revision the newest
	// in its path. It is zero if there is none. Only [WriteOptions].Check gets it.
	Parent Rev
	// Winner is the previous winning revision, or zero if the document did not exist.
	Winner Rev
	// WinnerDeleted reports whether Winner was deleted.
	WinnerDeleted bool
	// By is [WriteOptions].By.
	By string
	// Draft is what Before returned for this revision. In After it is nil if the revision was not added in this
	// transaction.
	Draft any
}

// Store is the databases below one prefix of a store. It is safe for concurrent use.
type Store struct {
	kv       kv.Database
	keys     storeKeys
	hooks    Hooks
	security json.RawMessage
	sealer   kv.Sealer
	sealed   func(database string) bool // never nil
	salted   func(database string) bool // never nil

	ctx   context.Context // of waiting feeds; Close ends it
	close context.CancelFunc
	wg    sync.WaitGroup

	writes atomic.Uint32     // transactions that have written a row of updates, see tidying
	tidied [stripes]tidyMark // of updates
	fresh  freshWrites
	silent bool // no rows of updates are written, to measure what they cost

	mu      sync.Mutex // guards the fields below; never held during I/O
	closed  bool
	tickers map[uuid.UUID]*ticker // of databases with waiting feeds, by instance, and of updates, by uuid.Nil
}

// Open returns the databases of db below prefix. It reads nothing and starts nothing. The caller calls Close before it
// closes db.
func Open(db kv.Database, prefix []byte, opts Options) *Store {
	s := &Store{
		kv: db, keys: newStoreKeys(prefix),
		hooks: opts.Hooks, security: opts.Security, sealer: opts.Sealer, sealed: opts.Sealed, salted: opts.Salted,
		tickers: map[uuid.UUID]*ticker{},
	}
	if s.security == nil {
		s.security = json.RawMessage("{}")
	}
	if s.sealer == nil {
		s.sealer = kv.Plain{}
	}
	if s.sealed == nil {
		s.sealed = noDatabase
	}
	if s.salted == nil {
		s.salted = noDatabase
	}
	s.ctx, s.close = context.WithCancel(context.Background())
	return s
}

func noDatabase(string) bool { return false }

// Close ends all waiting feeds with ErrClosed, and returns when the store's goroutines have ended. Other calls are not
// affected.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.wg.Wait()
}
