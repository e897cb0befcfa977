package docstore

import (
	"context"
	"iter"
	"slices"

	"settee/pkg/docstore/internal/revtree"
	"settee/pkg/kv"
)

// Document is one leaf revision of a document.
type Document struct {
	ID      string
	Rev     Rev
	Deleted bool
	// Body is the JSON object as it was written, with no other members than those of
	// [BodyMember].
	Body []byte `json:"-"`
	// Path is the ids of the revision, its parent and so on, as far as they are kept. Of
	// those behind the first nothing is available but the id.
	Path []string
	// Attachments are sorted by name.
	Attachments []Attachment
	// Conflicts are the other leaves that are not deleted, DeletedConflicts those that are,
	// in the order in which they would win. Only if [GetOptions] ask for them.
	Conflicts, DeletedConflicts []Rev
	// Sequence is that of the document's last change. Only if [GetOptions] ask for it.
	Sequence Sequence
}

// Attachment returns the attachment of a name.
func (d *Document) Attachment(name string) (Attachment, bool) {
	return (&leafRow{attachments: d.Attachments}).attachment(name)
}

// GetOptions says what [Database.Get] reads. The zero value is the winning revision.
type GetOptions struct {
	// Rev is the revision to read; zero is the winning one.
	Rev Rev
	// Latest reads, if Rev is no leaf, the winner among the leaves that descend from it.
	Latest bool
	// Conflicts and Sequence fill the fields of the document.
	Conflicts, Sequence bool
}

// Get reads a document. The error is [ErrNotFound]; [ErrDeleted], which is one too, if its
// winning revision is deleted and no revision was asked for; [ErrDocumentID].
func (db *Database) Get(ctx context.Context, id string, opts GetOptions) (*Document, error) {
	return kv.TransactValue(ctx, db.store.kv, func(tx kv.Transaction) (*Document, error) {
		return db.GetIn(tx.Snapshot(), id, opts)
	})
}

// GetIn is [Database.Get] in a transaction of the caller's.
func (db *Database) GetIn(tx kv.ReadTransaction, id string, opts GetOptions) (*Document, error) {
	if err := checkID(id); err != nil {
		return nil, inDocument(id, err)
	}
	read := db.get(tx, id, opts)
	if err := read.exists.await(); err != nil {
		return nil, err
	}
	doc, err := read.await()
	if err == nil && doc.Deleted && opts.Rev == (Rev{}) {
		err = ErrDeleted
	}
	if err != nil {
		return nil, inDocument(id, err)
	}
	return doc, nil
}

// documentRead is a document that is being read.
type documentRead struct {
	db     *Database
	tx     kv.ReadTransaction
	id     string
	opts   GetOptions
	exists exists
	winner *winnerRead // if no more is needed
	tree   *treeRead   // otherwise
	header kv.Future[[]byte]
}

func (db *Database) get(tx kv.ReadTransaction, id string, opts GetOptions) documentRead {
	r := documentRead{db: db, tx: tx, id: id, opts: opts, exists: db.exists(tx)}
	if opts.Rev == (Rev{}) && !opts.Conflicts {
		winner := db.readWinner(tx, id)
		r.winner = &winner
	} else {
		tree := db.readTree(tx, id)
		r.tree = &tree
	}
	if opts.Sequence {
		r.header = tx.Get(db.keys.docs.Pack(id))
	}
	return r
}

// await returns the document, deleted or not; ErrNotFound if there is none.
func (r documentRead) await() (*Document, error) {
	l, tree, err := r.leaf()
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, ErrNotFound
	}
	doc, err := r.db.document(r.tx, r.id, l)
	if err != nil {
		return nil, err
	}
	if r.opts.Conflicts {
		doc.conflicts(tree)
	}
	if r.header != nil {
		header, err := r.header.Await()
		if err != nil {
			return nil, err
		}
		stamp, err := parseHeader(header)
		if err != nil {
			return nil, err
		}
		doc.Sequence = sequenceOf(*stamp)
	}
	return doc, nil
}

// leaf returns the leaf that was asked for, nil if there is none.
func (r documentRead) leaf() (*leaf, leafTree, error) {
	if r.winner != nil {
		l, err := r.winner.await()
		return l, nil, err
	}
	tree, err := r.tree.await()
	if err != nil || r.opts.Rev == (Rev{}) {
		return tree.Winner(), tree, err
	}
	rev := revtree.Rev(r.opts.Rev)
	l := tree.Leaf(rev)
	if l == nil && r.opts.Latest {
		if descendants := descendants(tree, rev); len(descendants) > 0 {
			l = descendants[0]
		}
	}
	return l, tree, nil
}

// descendants returns the leaves that descend from a revision, or are it; the winner first.
func descendants(t leafTree, rev revtree.Rev) (leaves []*leaf) {
	for i := range slices.Backward(t) {
		if t[i].Contains(rev) {
			leaves = append(leaves, &t[i])
		}
	}
	return leaves
}

// document reads the body of a leaf.
func (db *Database) document(tx kv.ReadTransaction, id string, l *leaf) (*Document, error) {
	return db.documentOf(id, l, readAll(tx, db.keys.body(id, Rev(l.Rev()))))
}

// documentOf makes a document of a leaf and its body.
func (db *Database) documentOf(id string, l *leaf, chunks kv.RangeResult) (*Document, error) {
	rev := Rev(l.Rev())
	stored, err := joinChunks(chunks)
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
	return &Document{
		ID: id, Rev: rev, Deleted: l.Deleted, Body: body, Path: l.IDs, Attachments: l.Value.attachments,
	}, nil
}

// conflicts fills in the leaves that the document is not.
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
	// Revs are the revisions to read; nil is all leaves.
	Revs []Rev
	// Latest reads, for a revision that is no leaf, all leaves that descend from it.
	Latest bool
}

// OpenRev is a revision that was asked for.
type OpenRev struct {
	// Rev is the revision that was asked for, or a leaf.
	Rev Rev
	// Document is nil if it is no leaf.
	Document *Document
}

// bodiesAtOnce is how many bytes of bodies a transaction reads that could read more.
const bodiesAtOnce = 4_000_000

// OpenRevs yields leaf revisions of a document: all of them, the winner first, or some, in
// their order, none twice. A document that does not exist has none; revisions that are asked
// for are missing then. The bodies in memory are one, or some of 4 MB together, which are of
// one moment; of the later ones a leaf that was replaced meanwhile is yielded as its
// successors are, if all were asked for, or the latest.
func (db *Database) OpenRevs(ctx context.Context, id string, opts OpenRevsOptions) iter.Seq2[OpenRev, error] {
	return func(yield func(OpenRev, error) bool) {
		if err := checkID(id); err != nil {
			yield(OpenRev{}, inDocument(id, err))
			return
		}
		o := opening{db: db, id: id, rest: opts.Revs, all: opts.Revs == nil, begin: opts.Revs == nil, latest: opts.Latest || opts.Revs == nil, seen: map[Rev]bool{}}
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

// opening is a call of OpenRevs.
type opening struct {
	db     *Database
	id     string
	rest   []Rev
	all    bool
	begin  bool // what remains is not known yet
	latest bool
	seen   map[Rev]bool // what was yielded
	done   bool
}

// opened is what one transaction has read, and what remains.
type opened struct {
	revs []OpenRev
	rest []Rev
}

// next reads as many as fit into memory.
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
		leaves := o.wanted(tree, rev)
		if len(leaves) == 0 && !o.all && !o.seen[rev] && !here[rev] {
			here[rev] = true
			out.revs = append(out.revs, OpenRev{Rev: rev})
		}
		for _, l := range leaves {
			found := Rev(l.Rev())
			if o.seen[found] || here[found] {
				continue
			}
			if size += l.Value.size; size > bodiesAtOnce && len(out.revs) > 0 {
				out.rest = rest[i:]
				return out, nil
			}
			doc, err := o.db.document(tx, o.id, l)
			if err != nil {
				return out, err
			}
			here[found] = true
			out.revs = append(out.revs, OpenRev{Rev: found, Document: doc})
		}
	}
	return out, nil
}

func (o *opening) wanted(t leafTree, rev Rev) []*leaf {
	if l := t.Leaf(revtree.Rev(rev)); l != nil {
		return []*leaf{l}
	}
	if o.latest {
		return descendants(t, revtree.Rev(rev))
	}
	return nil
}
