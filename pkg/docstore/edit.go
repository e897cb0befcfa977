package docstore

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"settee/pkg/docjson"
)

// Edit is a revision to write.
type Edit struct {
	// ID is the document's id. It is not empty and not the id of a _local document. If it begins with an underscore, it
	// is _design/ and a name.
	ID string
	// Rev is the leaf that the revision replaces. It is zero if the document does not exist or is deleted, and for a
	// replicated revision.
	Rev Rev
	// Path, for a replicated revision ([WriteOptions]), is its id, its parent's id and so on, as far as they are known.
	// Pos is the revision's position.
	Path []string
	Pos  int64

	Deleted bool
	Body    docjson.Body `json:"-"`
	// Attachments are all attachments of the revision, in the order in which it shows them.
	Attachments []EditAttachment
}

// EditAttachment is an attachment of a revision to write. It is either an upload or a stub, which stands for an
// attachment that the document already has.
type EditAttachment struct {
	Name string
	// Upload is the content, or nil for a stub.
	Upload *Upload
	// Type is the content type of an upload.
	Type string
	// Digest, for a stub, is md5- and the MD5 of the stored bytes in base64. Empty means that it is not known.
	Digest string
	// Length, for a stub, is the length of the content in bytes, as in [Attachment]. nil means that it is not known.
	Length *int64
	// RevPos is the position of the revision that added the attachment. It counts for stubs and for replicated uploads. nil
	// means that it is not known: an upload then gets the edit's own position.
	RevPos *int64
}

// WriteOptions are the options of [Database.Write].
type WriteOptions struct {
	// Replicated is CouchDB's new_edits=false: the revisions already have their ids and are merged into the tree.
	// Otherwise each edit replaces a leaf and gets the id that CouchDB 3.5 gives to the same edit, which is a hash over
	// the content and the parent. In the databases that [Options].Salted selects the hash is also over a random value.
	Replicated bool
	// Check, if not nil, is called before each revision is added, and before the hook Before. An error refuses the
	// revision and becomes the error of its [Result]. edit is the index of the edit, change.Parent is set, and designs are
	// the design documents of the database, by id. A change of one that is committed meanwhile repeats the write. Check
	// runs in a transaction, as hooks do: it may be called several times, must not wait, and does not change what it gets.
	Check func(edit int, change *Change, designs []Design) error
	// By is passed on to hooks: who writes the documents.
	By string

	// The other fields are for [Database.WriteIn] only.

	// Token is a random text, drawn outside the transaction's function. With a token, a repeated run of the function
	// reports what an earlier run wrote as written. Without one, it reports a conflict.
	Token string
}

// Result is the result of an edit.
type Result struct {
	ID string
	// Rev is the revision that was written, or that existed already.
	Rev Rev
	// Err says why the edit was not made. It is a [DocumentError].
	Err error
}

// checkID returns ErrDocumentID if CouchDB does not allow the id for a document.
func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: it must not be empty", ErrDocumentID)
	case len(id) > MaxIDSize:
		return fmt.Errorf("%w: it has %d bytes; the most is %d", ErrDocumentID, len(id), MaxIDSize)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: it is not UTF-8", ErrDocumentID)
	case id == "_design/":
		return fmt.Errorf("%w: a design document has a name", ErrDocumentID)
	case id[0] == '_' && !strings.HasPrefix(id, "_design/"):
		return fmt.Errorf("%w: only reserved document ids may start with underscore", ErrDocumentID)
	}
	return nil
}

// check returns the errors of an edit that do not depend on the stored document.
func (e *Edit) check(db *Database, opts WriteOptions) error {
	if err := checkID(e.ID); err != nil {
		return err
	}
	if err := e.checkRevisions(opts); err != nil {
		return err
	}
	if err := checkSize(e.Body); err != nil {
		return err
	}
	return e.checkAttachments(db)
}

func checkSize(body docjson.Body) error {
	if n := body.Len(); n > MaxDocumentSize {
		return fmt.Errorf("%w: a document of %d bytes; the most is %d", ErrTooLarge, n, MaxDocumentSize)
	}
	return nil
}

func (e *Edit) checkRevisions(opts WriteOptions) error {
	if !opts.Replicated {
		return nil // one that no leaf can have is a conflict
	}
	if len(e.Path) == 0 || int64(len(e.Path)) > e.Pos {
		return fmt.Errorf("%w: a path of %d revisions that ends at position %d", ErrRevision, len(e.Path), e.Pos)
	}
	for i, id := range e.Path {
		if err := (Rev{e.Pos - int64(i), id}).check(); err != nil {
			return err
		}
	}
	return nil
}

func (e *Edit) checkAttachments(db *Database) error {
	if n := len(e.Attachments); n > MaxAttachments {
		return fmt.Errorf("%w: %d attachments; a document has at most %d", ErrTooLarge, n, MaxAttachments)
	}
	names := map[string]bool{}
	for _, a := range e.Attachments {
		switch {
		case a.Name == "" || a.Name[0] == '_' || !utf8.ValidString(a.Name):
			return fmt.Errorf("%w: an attachment of the name %s", ErrDocument, quote(a.Name))
		case names[a.Name]:
			return fmt.Errorf("%w: two attachments of the name %s", ErrDocument, quote(a.Name))
		case !utf8.ValidString(a.Type):
			return fmt.Errorf("%w: the type of the attachment %s is not UTF-8", ErrDocument, quote(a.Name))
		case a.Upload != nil && strings.ContainsFunc(a.Type, unicode.IsControl): // it becomes a header
			return fmt.Errorf("%w: the content_type of the attachment %s has a control character", ErrDocument, quote(a.Name))
		case a.RevPos != nil && *a.RevPos < 0:
			return fmt.Errorf("%w: the attachment %s has the revpos %d", ErrDocument, quote(a.Name), *a.RevPos)
		case a.Upload != nil && (a.Upload.db.instance != db.instance || a.Upload.id != e.ID):
			return fmt.Errorf("%w: the attachment %s was uploaded for another document", ErrInvalid, quote(a.Name))
		}
		names[a.Name] = true
	}
	return nil
}

// resolve returns the attachments of an edit's revision, in their order.
func (e *Edit) resolve(parent *leaf, t leafTree, pos int64, opts WriteOptions) ([]Attachment, error) {
	var attachments []Attachment
	for _, a := range e.Attachments {
		if a.Upload == nil {
			found, ok := findStub(a, parent, t, opts)
			if !ok {
				return nil, &MissingStubError{Name: a.Name}
			}
			attachments = append(attachments, found)
			continue
		}
		uploaded := a.Upload.attachment
		uploaded.Name, uploaded.Type, uploaded.RevPos = a.Name, a.Type, pos
		if opts.Replicated && a.RevPos != nil && *a.RevPos > 0 {
			uploaded.RevPos = min(*a.RevPos, pos)
		}
		attachments = append(attachments, uploaded)
	}
	return attachments, nil
}

// findStub returns the attachment that a stub stands for: the attachment of the leaf that the revision replaces. If no leaf
// is an ancestor of a replicated revision, the leaf that was has been replaced by another branch, which may have the same
// content.
func findStub(a EditAttachment, parent *leaf, t leafTree, opts WriteOptions) (Attachment, bool) {
	if parent != nil {
		found, ok := parent.Value.attachment(a.Name)
		return found, ok && a.isStubOf(found) && a.isAt(found.RevPos)
	}
	if opts.Replicated && a.Digest != "" {
		for _, l := range t {
			if found, ok := l.Value.attachment(a.Name); ok && a.isStubOf(found) {
				return found, true
			}
		}
	}
	return Attachment{}, false
}

// isStubOf reports whether a stored attachment of the stub's name has the content that the stub stands for, as far as the
// stub says. Other servers may have the stored length where this store has the decoded one, and the reverse.
func (a EditAttachment) isStubOf(found Attachment) bool {
	if a.Digest != "" && a.Digest != found.Digest() {
		return false
	}
	return a.Length == nil || !found.HasLength() || *a.Length == found.Length ||
		found.Encoding != "" && *a.Length == found.StoredLength
}

// isAt reports whether a stub says the position of a stored attachment, or none. CouchDB has position 0 where this store has
// that of the revision, so 0 is accepted from a stub that has a digest.
func (a EditAttachment) isAt(pos int64) bool {
	return a.RevPos == nil || *a.RevPos == pos || *a.RevPos == 0 && a.Digest != ""
}
