package docstore

import (
	"context"
	"iter"
	"slices"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
	"settee/pkg/kv/rows"
)

// Document is one leaf revision of a document.
type Document struct {
	ID      string
	Rev     Rev
	Deleted bool
	// Body is the JSON object as it was written. It is nil if it is larger
	// than the options of the read allow; then [Database.ReadBody] reads it.
	Body []byte `json:"-"`
	// Size is the size of the body in bytes.
	Size int64
	// Path is the ids of the revision, its parent and so on, as far as they are kept. Only the id is kept of all
	// revisions except the first.
	Path []string
	// Attachments are in the order of the edit.
	Attachments []Attachment
	// Conflicts are the other leaves that are not deleted, DeletedConflicts the deleted ones, each in winning order.
	// They are read only if [GetOptions] ask for them.
	Conflicts, DeletedConflicts []Rev
	// Sequence is the sequence of the document's last change. It is read only if [GetOptions] ask for it.
	Sequence Sequence
}

// Attachment returns the attachment of a name.
func (d *Document) Attachment(name string) (Attachment, bool) {
	return (&leafRow{attachments: d.Attachments}).attachment(name)
}

// GetOptions says what [Database.Get] reads. The zero value reads the winning revision.
type GetOptions struct {
	// Rev is the revision to read. Zero is the winning one.
	Rev Rev
	// Latest reads the winner among the leaves that descend from Rev, if Rev is not a leaf.
	Latest bool
	// Conflicts and Sequence fill the fields of that name.
	Conflicts, Sequence bool
	// LargeBody, if it is not 0, is the size in bytes from which on a body is not read. The bodies of databases that are
	// sealed are always read.
	LargeBody int64
}

// Get reads a document. The errors are [ErrNotFound], [ErrDeleted] if the winning revision is deleted and opts name no
// revision, and [ErrDocumentID].
func (db *Database) Get(ctx context.Context, id string, opts GetOptions) (*Document, error) {
	return kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) (*Document, error) {
		return db.GetIn(tx.Snapshot(), id, opts)
	})
}

// GetIn is [Database.Get] in the caller's transaction.
func (db *Database) GetIn(tx kv.ReadTransaction, id string, opts GetOptions) (*Document, error) {
	if err := checkID(id); err != nil {
		return nil, inDocument(id, err)
	}
	exists, leaves := db.exists(tx), db.readLeaves(tx, id, opts.Conflicts || opts.Rev != (Rev{}))
	var header kv.Future[[]byte]
	if opts.Sequence {
		header = tx.Get(db.keys.docs.Pack(id))
	}
	if err := exists.await(); err != nil {
		return nil, err
	}
	doc, err := db.awaitDocument(tx, id, opts, leaves)
	if err == nil && opts.Sequence {
		doc.Sequence, err = awaitSequence(header)
	}
	if err == nil && doc.Deleted && opts.Rev == (Rev{}) {
		err = ErrDeleted
	}
	if err != nil {
		return nil, inDocument(id, err)
	}
	return doc, nil
}

// awaitDocument returns the leaf that opts ask for, deleted or not. The error is ErrNotFound if there is none.
func (db *Database) awaitDocument(tx kv.ReadTransaction, id string, opts GetOptions, leaves leavesRead) (*Document, error) {
	l, tree, err := leaves.await()
	if err != nil {
		return nil, err
	}
	if opts.Rev != (Rev{}) {
		l = nil
		if named := named(tree, opts.Rev, opts.Latest); len(named) > 0 {
			l = named[0]
		}
	}
	if l == nil {
		return nil, ErrNotFound
	}
	doc, err := db.document(tx, id, l, opts.LargeBody)
	if err == nil && opts.Conflicts {
		doc.conflicts(tree)
	}
	return doc, err
}

// awaitSequence returns the sequence that a document's header has.
func awaitSequence(header kv.Future[[]byte]) (Sequence, error) {
	value, err := header.Await()
	if err != nil {
		return Sequence{}, err
	}
	return parseHeader(value)
}

// named returns the leaf that is rev. If there is none and latest is set, it returns the leaves that descend from rev,
// the winner first.
func named(t leafTree, rev Rev, latest bool) (leaves []*leaf) {
	if l := t.Leaf(revtree.Rev(rev)); l != nil {
		return []*leaf{l}
	}
	for i := range slices.Backward(t) {
		if latest && t[i].Contains(revtree.Rev(rev)) {
			leaves = append(leaves, &t[i])
		}
	}
	return leaves
}

func (db *Database) document(tx kv.ReadTransaction, id string, l *leaf, large int64) (*Document, error) {
	return db.documentOf(id, l, db.startBody(tx, id, Rev(l.Rev()), l.Value.size, large))
}

// startBody starts reading a body. It returns nil if the body is so large that it is not read.
func (db *Database) startBody(tx kv.ReadTransaction, id string, rev Rev, size, large int64) kv.RangeResult {
	if db.isLarge(size, large) {
		return nil
	}
	return readAll(tx, db.keys.body(id, rev))
}

// isLarge reports whether a body is so large that it is not read. A sealed body can only be opened as a whole.
func (db *Database) isLarge(size, large int64) bool {
	return large > 0 && size >= large && !db.secret()
}

// documentOf returns a leaf and its body as a document. chunks is what startBody has returned.
func (db *Database) documentOf(id string, l *leaf, chunks kv.RangeResult) (*Document, error) {
	rev := Rev(l.Rev())
	doc := &Document{
		ID: id, Rev: rev, Deleted: l.Deleted, Path: l.IDs, Attachments: l.Value.attachments, Size: l.Value.size,
	}
	if chunks == nil {
		return doc, nil
	}
	stored, err := rows.JoinChunks(chunks)
	if err != nil {
		return nil, err
	}
	body, err := db.openBody(stored, place{id, rev})
	if err != nil {
		return nil, err
	}
	if int64(len(body)) != l.Value.size {
		return nil, corrupt("the body of the revision %s: %d bytes, and not %d", rev, len(body), l.Value.size)
	}
	doc.Body = body
	return doc, nil
}

// conflicts fills in the leaves other than the document's.
func (d *Document) conflicts(t leafTree) {
	for _, l := range slices.Backward(t) {
		switch rev := Rev(l.Rev()); {
		case rev == d.Rev:
		case l.Deleted:
			d.DeletedConflicts = append(d.DeletedConflicts, rev)
		default:
			d.Conflicts = append(d.Conflicts, rev)
		}
	}
}

// OpenRevsOptions says what [Database.OpenRevs] reads.
type OpenRevsOptions struct {
	// Revs are the revisions to read. nil means all leaves.
	Revs []Rev
	// Latest reads all leaves that descend from a revision, if it is not a leaf.
	Latest bool
	// LargeBody is as in [GetOptions].
	LargeBody int64
}

// OpenRev is a result of [Database.OpenRevs].
type OpenRev struct {
	// Rev is the requested revision, or a leaf.
	Rev Rev
	// Document is nil if Rev is not a leaf.
	Document *Document
}

// bodiesAtOnce is how many bytes of bodies one transaction reads, except that it always reads one body.
const bodiesAtOnce = 1_000_000

// OpenRevs yields leaf revisions of a document: all of them, the winner first, or the requested ones in their order,
// each once. If the document does not exist, all requested revisions are missing. One transaction reads up to 1 MB of
// bodies, or one larger body, and these are consistent with each other. If a leaf is replaced between two transactions,
// its successors are yielded instead, if all leaves or the latest were requested.
func (db *Database) OpenRevs(ctx context.Context, id string, opts OpenRevsOptions) iter.Seq2[OpenRev, error] {
	return func(yield func(OpenRev, error) bool) {
		if err := checkID(id); err != nil {
			yield(OpenRev{}, inDocument(id, err))
			return
		}
		o := opening{db: db, id: id, rest: opts.Revs, all: opts.Revs == nil, begin: opts.Revs == nil, latest: opts.Latest || opts.Revs == nil, large: opts.LargeBody, seen: map[Rev]bool{}}
		for !o.done {
			next, err := kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) (opened, error) {
				return o.next(tx.Snapshot())
			})
			if err != nil {
				yield(OpenRev{}, inDocument(id, err))
				return
			}
			for _, rev := range next.revs {
				o.seen[rev.Rev] = true
				if !yield(rev, nil) {
					return
				}
			}
			o.rest, o.done, o.begin = next.rest, len(next.rest) == 0, false
		}
	}
}

// opening is the state of a call of OpenRevs.
type opening struct {
	db     *Database
	id     string
	rest   []Rev
	all    bool
	begin  bool // rest is not known yet
	latest bool
	large  int64        // see OpenRevsOptions.LargeBody
	seen   map[Rev]bool // already yielded
	done   bool
}

// opened is what one transaction has read, and what remains to be read.
type opened struct {
	revs []OpenRev
	rest []Rev
}

// next reads as many revisions as fit into memory.
func (o *opening) next(tx kv.ReadTransaction) (out opened, err error) {
	exists, read := o.db.exists(tx), o.db.readTree(tx, o.id)
	if err := exists.await(); err != nil {
		return out, err
	}
	tree, err := read.await()
	if err != nil {
		return out, err
	}
	rest := o.rest
	if o.begin {
		for _, l := range slices.Backward(tree) {
			rest = append(rest, Rev(l.Rev()))
		}
	}
	var size int64
	here := map[Rev]bool{}
	for i, rev := range rest {
		leaves := named(tree, rev, o.latest)
		if len(leaves) == 0 && !o.all && !o.seen[rev] && !here[rev] {
			here[rev] = true
			out.revs = append(out.revs, OpenRev{Rev: rev})
		}
		for _, l := range leaves {
			found := Rev(l.Rev())
			if o.seen[found] || here[found] {
				continue
			}
			if !o.db.isLarge(l.Value.size, o.large) {
				size += l.Value.size
			}
			if size > bodiesAtOnce && len(out.revs) > 0 {
				out.rest = rest[i:]
				return out, nil
			}
			doc, err := o.db.document(tx, o.id, l, o.large)
			if err != nil {
				return out, err
			}
			here[found] = true
			out.revs = append(out.revs, OpenRev{Rev: found, Document: doc})
		}
	}
	return out, nil
}
