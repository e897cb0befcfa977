package docbody

import (
	"encoding/json"
	"errors"
	"iter"

	"settee/pkg/jsontext"
)

// maxOther is the maximum size in bytes of the members of a bulk write other than its documents.
const maxOther = 100_000

// Bulk is a bulk write.
type Bulk struct {
	// NewEdits is false if the documents already have their revisions.
	NewEdits bool
	// AllOrNothing is true if either all documents must be written or none.
	AllOrNothing bool

	spool *Spool
	opts  Options
	// docs is the position of the list of documents.
	docs int64
	// kept has the documents, if all of them are kept: see [Options.KeptBytes]. Otherwise they are read again.
	kept []*Document
	keep bool
	// found is true if docs is a list, other if it is another value.
	found, other bool
	// unrevised is true if a document has no revision.
	unrevised bool
	// left is the number of bytes left for the other members.
	left int
}

// ReadBulk checks the body of a bulk write: an object with `docs`, a list of documents, and optionally `new_edits`, in
// any order.
func ReadBulk(s *Spool, opts Options) (*Bulk, error) {
	b := &Bulk{NewEdits: true, spool: s, opts: opts, left: maxOther}
	scan := newScanner(s, 0, s.Size())
	defer scan.Free()
	err := scan.object(refuse(BadRequest, "Request body must be a JSON object"))
	if err == nil {
		err = scan.members(func(name string) error { return b.member(scan, name) })
	}
	if err == nil {
		err = scan.end()
	}
	switch {
	case err != nil:
		return nil, wrong(err)
	case b.other:
		return nil, refuse(BadRequest, "`docs` parameter must be an array.")
	case !b.found:
		return nil, refuse(BadRequest, "POST body must include `docs` parameter.")
	case !b.NewEdits && b.unrevised:
		return nil, refuse(BadRequest, "When `new_edits: false`, the document needs `_rev` or `_revisions` specified")
	}
	return b, nil
}

func (b *Bulk) member(scan *scanner, name string) error {
	if name == "docs" {
		b.found, b.other, b.unrevised = true, !scan.begins('['), false
		b.docs = scan.at()
		b.kept, b.keep = nil, b.spool.Size() <= b.opts.KeptBytes
		if !b.other {
			return b.scan(scan, func(doc *Document) error {
				b.unrevised = b.unrevised || doc.Rev == ""
				b.add(doc)
				return doc.checkWhole()
			})
		}
	}
	value, err := scan.Value(b.left)
	if errors.Is(err, jsontext.ErrTooLarge) {
		return refuse(TooLarge, "the members of the body besides `docs` have more than %d bytes", maxOther)
	}
	if err != nil {
		return err
	}
	b.left -= len(value)
	switch name {
	case "new_edits":
		if json.Unmarshal(value, &b.NewEdits) != nil || string(value) == "null" {
			return refuse(BadRequest, "`new_edits` parameter must be a boolean.")
		}
	case "all_or_nothing":
		b.AllOrNothing = string(value) == "true"
	}
	return nil
}

// scan reads the list of documents at the scanner's position.
func (b *Bulk) scan(scan *scanner, each func(*Document) error) error {
	return scan.elements(func() error {
		doc, err := readDocument(scan, b.spool, b.opts)
		if err != nil {
			return err
		}
		return each(doc)
	})
}

// add keeps a document, or no documents if there are too many or if this one has attachments, which take many times the
// memory of their text.
func (b *Bulk) add(doc *Document) {
	if b.keep = b.keep && len(b.kept) < b.opts.KeptDocuments && len(doc.Attachments) == 0; !b.keep {
		b.kept = nil
		return
	}
	b.kept = append(b.kept, doc)
}

var errStop = errors.New("no more documents are wanted")

// Documents yields the documents in order, once. Unless all are kept, only the current one is in memory. The errors come
// from the file system.
func (b *Bulk) Documents() iter.Seq2[*Document, error] {
	return func(yield func(*Document, error) bool) {
		for _, doc := range b.kept {
			if !yield(doc, nil) {
				return
			}
		}
		if b.keep {
			return
		}
		scan := newScanner(b.spool, b.docs, b.spool.Size()-b.docs)
		defer scan.Free()
		err := b.scan(scan, func(doc *Document) error {
			if !yield(doc, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, wrong(err))
		}
	}
}
