package docbody

import (
	"encoding/json"
	"errors"
	"iter"
)

// maxOther is how many bytes the members of a bulk write besides its documents may have.
const maxOther = 100_000

// Bulk is a list of documents to be written.
type Bulk struct {
	// NewEdits is false if the documents have their revisions already.
	NewEdits bool
	// AllOrNothing is whether none of the documents is to be written if one cannot be.
	AllOrNothing bool

	spool *Spool
	opts  Options
	// docs is where the list of documents is.
	docs int64
	// found says that there is one; other whether there is something else by its name.
	found, other bool
	// unrevised says that there is a document without a revision.
	unrevised bool
	rest      capped
}

// ReadBulk checks the body of a bulk write: an object with `docs`, a list of documents, and
// maybe `new_edits`, in any order.
func ReadBulk(s *Spool, opts Options) (*Bulk, error) {
	b := &Bulk{NewEdits: true, spool: s, opts: opts, rest: capped{most: maxOther}}
	scan := newScanner(s, 0)
	if c := scan.space(); c != '{' && beginsValue(c) {
		return nil, refuse(BadRequest, "Request body must be a JSON object")
	}
	err := scan.members(func(name string) error { return b.member(scan, name) })
	if err == nil {
		err = scan.end()
	}
	switch {
	case err != nil:
		return nil, err
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
		b.found, b.other, b.docs, b.unrevised = true, scan.peek() != '[', scan.at(), false
		if !b.other {
			return b.scan(scan, func(doc *Document) error {
				b.unrevised = b.unrevised || doc.Rev == ""
				return doc.checkWhole()
			})
		}
	}
	value, err := b.capture(scan)
	if err != nil {
		return err
	}
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

// capture passes over a value and returns it.
func (b *Bulk) capture(scan *scanner) ([]byte, error) {
	before := len(b.rest.text)
	scan.into = &b.rest
	err := scan.value()
	scan.into = nil
	switch {
	case err != nil:
		return nil, err
	case b.rest.over:
		return nil, refuse(TooLarge, "the members of the body besides `docs` have more than %d bytes", maxOther)
	}
	value := b.rest.text[before:]
	if !valid(value) {
		return nil, errJSON
	}
	return value, nil
}

// scan reads the list of documents at which a scanner is.
func (b *Bulk) scan(scan *scanner, each func(*Document) error) error {
	return scan.elements(func() error {
		doc, err := readDocument(scan, b.spool, b.opts)
		if err != nil {
			return err
		}
		return each(doc)
	})
}

var errStop = errors.New("no more documents are wanted")

// Documents yields the documents, in their order. One has gone from memory when the next
// is read, but for what the caller keeps of it. The errors are those of the file system.
func (b *Bulk) Documents() iter.Seq2[*Document, error] {
	return func(yield func(*Document, error) bool) {
		err := b.scan(newScanner(b.spool, b.docs), func(doc *Document) error {
			if !yield(doc, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, err)
		}
	}
}
