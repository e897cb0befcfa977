package docstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"settee/pkg/docjson"
	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

const (
	// batchSize is the largest total size in bytes of several documents in one transaction.
	batchSize = 1_000_000
	// batchDocuments is the largest number of documents in one transaction.
	batchDocuments = 500
	// editOverhead is the approximate size of an edit without its body, in bytes.
	editOverhead = 1_000
)

// Put writes one edit that is not replicated. The error is a [DocumentError].
func (db *Database) Put(ctx context.Context, edit Edit) (Rev, error) {
	results, err := db.Write(ctx, []Edit{edit}, WriteOptions{})
	if err != nil {
		return Rev{}, inDocument(edit.ID, err)
	}
	return results[0].Rev, results[0].Err
}

// Write makes edits, several in one transaction. results[i] is the result of edits[i]. A refused edit does not fail the
// others. An edit whose result has no error is committed.
//
// The errors of results wrap [ErrDocumentID], [ErrRevision], [ErrDocument], [ErrTooLarge], [ErrConflict],
// [ErrTooManyLeaves], [ErrMissingStub] or the error of a hook or of opts.Check. An edit of a commit whose result was
// unknown is reported as made if its leaf is found. If another write has replaced that leaf, the result is a conflict.
//
// The returned error is the store's, [ErrDatabaseNotFound] or ctx's. The results of all edits that it stopped have it
// too. If it is [kv.ErrCommitUnknown], some of these edits may have been made.
func (db *Database) Write(ctx context.Context, edits []Edit, opts WriteOptions) ([]Result, error) {
	opts.Token = rand.Text()
	results := make([]Result, len(edits))
	batches := []batch{{}}
	for _, p := range db.prepare(edits, opts, results) {
		if !batches[len(batches)-1].add(p, opts) {
			batches = append(batches, batch{})
			batches[len(batches)-1].add(p, opts)
		}
	}
	for i, b := range batches {
		if err := db.writeBatch(ctx, b.edits, opts, results); err != nil {
			for _, b := range batches[i:] {
				b.fail(results, err)
			}
			return results, err
		}
	}
	return results, nil
}

// prepared is an edit that passed the checks that need no read.
type prepared struct {
	*Edit
	index int // of its result
	token []byte
}

// prepare returns the edits that pass the checks, and writes the results of the others.
func (db *Database) prepare(edits []Edit, opts WriteOptions, results []Result) []*prepared {
	ready := make([]*prepared, 0, len(edits))
	for i := range edits {
		p := &prepared{Edit: &edits[i], index: i}
		results[i].ID = p.ID
		if opts.Token != "" && !opts.Replicated {
			p.token = binary.BigEndian.AppendUint32([]byte(opts.Token), uint32(i))
		}
		if err := p.check(db, opts); err != nil {
			results[i].Err = inDocument(p.ID, err)
			continue
		}
		ready = append(ready, p)
	}
	return ready
}

// batch is the edits of one transaction.
type batch struct {
	edits []*prepared
	size  int
	ids   map[string]bool
}

// add adds p, and reports whether there was room for it.
func (b *batch) add(p *prepared, opts WriteOptions) bool {
	size := p.Body.Len() + 2*len(p.ID) + 20*len(p.Path) + editOverhead*(1+len(p.Attachments))
	if len(b.edits) > 0 && (b.size+size > batchSize || len(b.edits) == batchDocuments) {
		return false
	}
	if b.ids[p.ID] && !opts.Replicated {
		return false // a repeated run would not find the first edit's revision among the leaves
	}
	if b.ids == nil {
		b.ids = map[string]bool{}
	}
	b.ids[p.ID] = true
	b.edits = append(b.edits, p)
	b.size += size
	return true
}

// fail sets err as the result of all edits that have none.
func (b *batch) fail(results []Result, err error) {
	for _, p := range b.edits {
		if r := &results[p.index]; r.Err == nil && r.Rev == (Rev{}) {
			r.Err = inDocument(p.ID, err)
		}
	}
}

// writeTime is the longest time for the documents of one transaction, if there are several. Hooks read for each
// document, and the commit has to come before kv.MaxTransactionAge.
const writeTime = kv.MaxTransactionAge / 3

// writeBatch makes edits in one transaction, or in several if hooks make it too large or too slow.
func (db *Database) writeBatch(ctx context.Context, edits []*prepared, opts WriteOptions, results []Result) error {
	if len(edits) == 0 {
		return nil
	}
	var began time.Time
	made, err := kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) (written, error) {
		began = time.Now()
		var until time.Time
		if len(edits) > 1 {
			until = began.Add(writeTime)
		}
		made, err := db.write(tx, edits, opts, writing{until: until, alone: true})
		return made, kv.InTime(until, err)
	})
	switch {
	case kv.TooMuch(err) && len(edits) > 1:
		half := len(edits) / 2
		if err := db.writeBatch(ctx, edits[:half], opts, results); err != nil {
			return err
		}
		return db.writeBatch(ctx, edits[half:], opts, results)
	case errors.Is(err, kv.ErrTransactionTooLarge):
		results[edits[0].index].Err = inDocument(edits[0].ID, fmt.Errorf("%w: %w", ErrTooLarge, err))
		return nil
	case err != nil:
		return err
	}
	if made.changed {
		db.store.fresh.note(db.instance, began, made.time)
	}
	for i, p := range edits {
		results[p.index] = made.results[i]
	}
	return nil
}

// WriteIn is [Database.Write] in the caller's transaction, which must stay within the store's limits. A transaction can call it
// several times, and write a document with one call only: a second call for a document returns kv.ErrUnreadable, and so does the
// commit.
func (db *Database) WriteIn(tx kv.Transaction, edits []Edit, opts WriteOptions) ([]Result, error) {
	results := make([]Result, len(edits))
	ready := db.prepare(edits, opts, results)
	made, err := db.write(tx, ready, opts, writing{})
	if err != nil {
		return nil, err
	}
	for i, p := range ready {
		results[p.index] = made.results[i]
	}
	return results, nil
}

// writer makes edits in one transaction.
type writer struct {
	db        *Database
	tx        kv.Transaction
	opts      WriteOptions
	revsLimit int
	changes   int64    // the number of changes in the database
	time      int64    // of the changes, in seconds since the epoch
	changed   bool     // a document has changed
	designs   []Design // if there is a check
	docs      map[string]*docWrite
	uploads   map[*Upload]kv.Future[[]byte] // their rows
	used      map[*Upload]*prepared         // the edit that uses it
}

// docWrite is a document whose edits are being made.
type docWrite struct {
	id     string
	order  uint16
	header kv.Future[[]byte]
	leaves treeRead

	sequence  Sequence // of its row in changes; zero if the document does not exist
	old, tree leafTree
	bodies    map[revtree.Rev]docjson.Body // of the leaves that were added
	drafts    map[revtree.Rev]any          // what the hook Before returned for them
	fresh     map[*Upload]bool             // used by this write
}

// writing is what write may do in a transaction.
type writing struct {
	until time.Time // the error is kv.ErrSlow if not all documents are written then; zero is no limit
	alone bool      // nothing else is written in the transaction, except by hooks
}

// written is what write has done.
type written struct {
	results []Result
	changed bool // a document has changed
	time    int64
}

// write starts all reads before it waits for the first.
func (db *Database) write(tx kv.Transaction, edits []*prepared, opts WriteOptions, within writing) (made written, err error) {
	w := writer{
		db: db, tx: tx, opts: opts,
		docs: map[string]*docWrite{}, uploads: map[*Upload]kv.Future[[]byte]{}, used: map[*Upload]*prepared{},
	}
	exists, limit, designs := db.exists(tx), db.readRevsLimit(tx), w.readDesigns()
	// Without a conflict: two writes at a time may take the same number.
	changes := tx.Snapshot().Get(db.keys.watch)
	numbering := w.readNumbered(within.alone)
	var docs []*docWrite
	for _, p := range edits {
		if w.docs[p.ID] == nil {
			d := w.read(p.ID)
			docs = append(docs, d)
			w.docs[p.ID] = d
		}
		for _, a := range p.Attachments {
			if a.Upload != nil {
				w.uploads[a.Upload] = tx.Get(a.Upload.row())
			}
		}
	}
	before, err := numbering.Await()
	if err != nil {
		return written{}, err
	}
	updating := w.readUpdates(within.alone, before.docs == 0)
	for i, d := range docs {
		d.order = before.docs + uint16(i)
	}
	if err := exists.await(); err != nil {
		return written{}, err
	}
	if w.revsLimit, err = limit.Await(); err != nil {
		return written{}, err
	}
	if w.changes, err = rows.AwaitInt(changes); err != nil {
		return written{}, err
	}
	if err := designs(); err != nil {
		return written{}, err
	}
	for _, d := range docs {
		if err := d.await(); err != nil {
			return written{}, inDocument(d.id, err)
		}
	}
	if err := updating.await(); err != nil {
		return written{}, err
	}
	w.time = changeTime(time.Now(), updating.last)
	results := make([]Result, len(edits))
	for i, p := range edits {
		rev, err := w.apply(w.docs[p.ID], p)
		if err != nil && ofTransaction(err) {
			return written{}, err
		}
		results[i] = Result{ID: p.ID, Rev: rev}
		if err != nil {
			results[i] = Result{ID: p.ID, Err: inDocument(p.ID, err)}
		}
	}
	for _, d := range docs {
		if err := kv.InTime(within.until, nil); err != nil {
			return written{}, err
		}
		if err := w.flush(d); err != nil {
			return written{}, err
		}
	}
	if w.changed {
		if err := updating.flush(); err != nil {
			return written{}, err
		}
		if !within.alone {
			before.docs += uint16(len(docs))
			tx.Set(db.keys.numbered, before.pack())
		}
	}
	return written{results, w.changed, w.time}, nil
}

// numbered is how many documents of a database a transaction has written in calls of WriteIn, at most. The transaction is known by
// its read version: a row that another transaction has committed has a lower one, because a commit has a higher version than the
// reads before it.
type numbered struct {
	version int64
	docs    uint16
}

func (n numbered) pack() []byte { return tuple.Tuple{n.version, int64(n.docs)}.Pack() }

// readNumbered starts reading how many documents this transaction has written before.
func (w *writer) readNumbered(alone bool) kv.Future[numbered] {
	if alone {
		return kv.Known(numbered{})
	}
	now := w.tx.Snapshot()
	version, value := now.ReadVersion(), now.Get(w.db.keys.numbered)
	return kv.Func[numbered](func() (n numbered, err error) {
		if n.version, err = version.Await(); err != nil {
			return n, err
		}
		stored, err := value.Await()
		var of, docs int64
		if err == nil && stored != nil && rows.Scan("the documents of a transaction", stored, &of, &docs) == nil && of == n.version {
			n.docs = uint16(docs)
		}
		return n, err
	})
}

// ofTransaction reports whether an error fails the transaction, not just one edit.
func ofTransaction(err error) bool {
	var store *kv.Error
	return errors.As(err, &store) || errors.Is(err, kv.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// read starts reading a document. Each write reads the header with a conflict and writes it, so two writes of one
// document are serial, and the other reads of the document need no conflicts.
func (w *writer) read(id string) *docWrite {
	return &docWrite{
		id: id, header: w.tx.Get(w.db.keys.docs.Pack(id)), leaves: w.db.readTree(w.tx.Snapshot(), id),
		bodies: map[revtree.Rev]docjson.Body{}, drafts: map[revtree.Rev]any{}, fresh: map[*Upload]bool{},
	}
}

func (d *docWrite) await() error {
	header, err := d.header.Await()
	if err != nil {
		return err
	}
	if header != nil {
		if d.sequence, err = parseHeader(header); err != nil {
			return err
		}
	}
	d.old, err = d.leaves.await()
	d.tree = d.old
	return err
}

// parseHeader returns the sequence of a document's last change.
func parseHeader(value []byte) (seq Sequence, err error) {
	t, err := tuple.Unpack(value)
	if err != nil || len(t) != 2 || !rows.As(t[0], &seq.stamp) || !rows.As(t[1], &seq.number) {
		return Sequence{}, corrupt("the header of a document: %v (%w)", t, err)
	}
	return seq, nil
}

// apply makes an edit of a document in memory and returns its revision. An error refuses the edit, except if it is the
// transaction's (ofTransaction).
func (w *writer) apply(d *docWrite, p *prepared) (Rev, error) {
	if rev, is := w.made(d, p); is {
		return rev, nil
	}
	l, err := w.place(d, p)
	if err != nil {
		return Rev{}, err
	}
	rev := l.Rev()
	merged, added := d.tree.Merge(l, w.revsLimit)
	if !added {
		d.tree = merged // the edit may know more of the history
		return Rev(rev), nil
	}
	if err := checkTree(merged); err != nil {
		return Rev{}, err
	}
	if size := len(packLeaf(merged.Leaf(rev))); size > MaxLeafSize {
		return Rev{}, fmt.Errorf("%w: its history and what it says of its attachments have %d bytes; the most is %d", ErrTooLarge, size, MaxLeafSize)
	}
	if err := w.checkUploads(p); err != nil {
		return Rev{}, err
	}
	if err := w.check(d, p, &l); err != nil {
		return Rev{}, err
	}
	if before := w.db.store.hooks.Before; before != nil {
		draft, err := before(w.tx, w.db, d.change(&l, p.Body, d.tree.Winner()))
		if err != nil {
			return Rev{}, err
		}
		d.drafts[rev] = draft
	}
	d.tree = merged
	d.bodies[rev] = p.Body
	for _, a := range p.Attachments {
		if a.Upload != nil {
			w.used[a.Upload] = p
			d.fresh[a.Upload] = true
		}
	}
	return Rev(rev), nil
}

// made returns the revision that an earlier run of this transaction made, and reports whether it is there. It compares tokens,
// not revisions: if another write has made the same revision, this one must get a conflict, because clients use documents as
// locks. In a salted database no other write makes the same revision, so it is found there also after another write has replaced
// it. That one is mostly the end of the replication that the document asks for. Attachments may depend on a parent that is no
// longer known, so a revision with some is only found while it is a leaf.
func (w *writer) made(d *docWrite, p *prepared) (Rev, bool) {
	if p.token == nil {
		return Rev{}, false
	}
	for i := range d.tree {
		if bytes.Equal(d.tree[i].Value.token, p.token) {
			return Rev(d.tree[i].Rev()), true
		}
	}
	if len(d.tree) == 0 || len(p.Attachments) > 0 || !w.db.store.salted(w.db.name) {
		return Rev{}, false
	}
	rev := newRev(p.Rev, false, p.Deleted, p.Body.Bytes(), nil, p.token)
	return rev, d.tree.Knows(revtree.Rev(rev))
}

// place returns the leaf that an edit makes.
func (w *writer) place(d *docWrite, p *prepared) (leaf, error) {
	if w.opts.Replicated {
		l := leaf{Pos: p.Pos, IDs: p.Path, Deleted: p.Deleted, Value: &leafRow{size: int64(p.Body.Len())}}
		if d.tree.Knows(l.Rev()) {
			return l, nil
		}
		var err error
		l.Value.attachments, err = p.resolve(replaced(d.tree, &l), d.tree, p.Pos, w.opts)
		return l, err
	}
	parent, err := d.parent(p.Rev)
	if err != nil {
		return leaf{}, err
	}
	var from Rev
	var path []string
	if parent != nil {
		from, path = Rev(parent.Rev()), parent.IDs
	}
	if from.Pos == math.MaxInt64 {
		return leaf{}, fmt.Errorf("%w: there is no position after that of %s", ErrRevision, from)
	}
	attachments, err := p.resolve(parent, d.tree, from.Pos+1, w.opts)
	if err != nil {
		return leaf{}, err
	}
	var salt []byte
	if w.db.store.salted(w.db.name) {
		salt = p.token // the same in all runs of the transaction
	}
	again := parent != nil && p.Rev == (Rev{})
	rev := newRev(from, again, p.Deleted, p.Body.Bytes(), attachments, salt)
	return leaf{
		Pos: rev.Pos, IDs: slices.Concat([]string{rev.ID}, path), Deleted: p.Deleted,
		Value: &leafRow{size: int64(p.Body.Len()), token: p.token, attachments: attachments},
	}, nil
}

// parent returns the leaf that an edit replaces: the one it names, or a deleted winner if it names none. It returns nil
// if there is no document.
func (d *docWrite) parent(rev Rev) (*leaf, error) {
	winner := d.tree.Winner()
	if rev == (Rev{}) {
		if winner != nil && !winner.Deleted {
			return nil, ErrConflict
		}
		return winner, nil
	}
	l := d.tree.Leaf(revtree.Rev(rev))
	if l == nil {
		return nil, ErrConflict
	}
	return l, nil
}

// replaced returns the newest leaf in the path of a replicated revision, or nil.
func replaced(t leafTree, l *leaf) (newest *leaf) {
	for i := range t {
		if l.Contains(t[i].Rev()) && (newest == nil || t[i].Pos > newest.Pos) {
			newest = &t[i]
		}
	}
	return newest
}

// checkUploads returns ErrMissingStub if an upload was removed or already belongs to a revision. Reading its row
// conflicts with its removal.
func (w *writer) checkUploads(p *prepared) error {
	for _, a := range p.Attachments {
		if a.Upload == nil {
			continue
		}
		row, err := w.uploads[a.Upload].Await()
		if err != nil {
			return err
		}
		if row == nil || w.used[a.Upload] != nil {
			return fmt.Errorf("%w: the upload of %s was given up, or used", ErrMissingStub, quote(a.Name))
		}
	}
	return nil
}
