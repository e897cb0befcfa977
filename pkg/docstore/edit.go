package docstore

import (
	"cmp"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strings"
	"unicode/utf8"
)

// Edit is a revision to be written.
type Edit struct {
	// ID is the document's: not empty, no _local document, and if it begins with an
	// underscore, _design/ and a name.
	ID string
	// Rev is the leaf that the revision replaces; zero for a document that does not exist,
	// or is deleted. Not for a replicated revision.
	Rev Rev
	// Path is that of a replicated revision ([WriteOptions]): its id, that of its parent
	// and so on, as far as they are known. Its position is Pos.
	Path []string
	Pos  int64

	Deleted bool
	// Body is a JSON object, which is kept byte for byte. It has the members that
	// [BodyMember] allows. nil is {}. Edit keeps it until the write is over.
	Body []byte `json:"-"`
	// Attachments are all that the revision has.
	Attachments []EditAttachment
}

// EditAttachment is an attachment of a revision to be written: one that was uploaded, or a
// stub, which is one that the document has already.
type EditAttachment struct {
	Name string
	// Upload is the content; nil for a stub.
	Upload *Upload
	// Type is the content type of an upload.
	Type string
	// Digest, if not empty, is that of the stub: md5- and the digest in base64.
	Digest string
	// RevPos is the position of the revision that brought the attachment, of a replicated
	// upload; 0 is the edit's own.
	RevPos int64
}

// WriteOptions are the options of [Database.Write].
type WriteOptions struct {
	// Replicated edits are CouchDB's new_edits=false: the revisions have their ids already,
	// and become part of the tree wherever their paths belong. Otherwise each one replaces
	// a leaf, and gets an id that is an MD5 over its content and its parent; in databases that
	// [Options].Sealed takes over something random, too.
	Replicated bool

	// For [Database.WriteIn] alone:

	// Token is drawn at random, outside the transaction's function. With it the function
	// finds what an earlier run of it wrote, and says so; without it that is a conflict.
	Token string
	// Order is the place of the first document among those that the transaction writes in
	// this database. Each takes one place.
	Order uint16
}

// Result is what became of an edit.
type Result struct {
	ID string
	// Rev is the revision that was written, or was there already.
	Rev Rev
	// Err is why the edit was not made, a [DocumentError].
	Err error
}

// checkID returns ErrDocumentID if CouchDB has no documents of that id.
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

// check returns what is wrong with an edit whatever the document is.
func (e *Edit) check(db *Database, opts WriteOptions) error {
	if err := checkID(e.ID); err != nil {
		return err
	}
	if err := e.checkRevisions(opts); err != nil {
		return err
	}
	if err := db.checkContent(e.Body); err != nil {
		return err
	}
	return e.checkAttachments(db)
}

// checkContent checks the body of a document; nil stands for one.
func (db *Database) checkContent(body []byte) error {
	if most := db.store.maxDocumentSize; len(body) > most {
		return fmt.Errorf("%w: a document of %d bytes; the most is %d", ErrTooLarge, len(body), most)
	}
	if body == nil {
		return nil
	}
	if err := checkBody(body); err != nil {
		return fmt.Errorf("%w: %w", ErrDocument, err)
	}
	return nil
}

func (e *Edit) checkRevisions(opts WriteOptions) error {
	if !opts.Replicated {
		if e.Rev == (Rev{}) {
			return nil
		}
		return e.Rev.check()
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
	names := map[string]bool{}
	for _, a := range e.Attachments {
		switch {
		case a.Name == "" || a.Name[0] == '_' || !utf8.ValidString(a.Name):
			return fmt.Errorf("%w: an attachment of the name %s", ErrDocument, quote(a.Name))
		case names[a.Name]:
			return fmt.Errorf("%w: two attachments of the name %s", ErrDocument, quote(a.Name))
		case !utf8.ValidString(a.Type):
			return fmt.Errorf("%w: the type of the attachment %s is not UTF-8", ErrDocument, quote(a.Name))
		case a.RevPos < 0:
			return fmt.Errorf("%w: the attachment %s has the revpos %d", ErrDocument, quote(a.Name), a.RevPos)
		case a.Upload != nil && (a.Upload.db.instance != db.instance || a.Upload.id != e.ID):
			return fmt.Errorf("%w: the attachment %s was uploaded for another document", ErrInvalid, quote(a.Name))
		}
		names[a.Name] = true
	}
	return nil
}

// resolve returns the attachments of an edit's revision, sorted by name. Stubs are looked
// for in the leaf that the revision replaces, and in a replicated one, whose writer may
// know another, in all leaves for the same digest.
func (e *Edit) resolve(parent *leaf, t leafTree, pos int64, opts WriteOptions) ([]Attachment, error) {
	var attachments []Attachment
	for _, a := range e.Attachments {
		if a.Upload == nil {
			found, ok := findStub(a, parent, t, opts)
			if !ok {
				return nil, fmt.Errorf("%w: %s", ErrMissingStub, quote(a.Name))
			}
			attachments = append(attachments, found)
			continue
		}
		uploaded := a.Upload.attachment
		uploaded.Name, uploaded.Type, uploaded.RevPos = a.Name, a.Type, pos
		if opts.Replicated && a.RevPos > 0 {
			uploaded.RevPos = min(a.RevPos, pos)
		}
		attachments = append(attachments, uploaded)
	}
	slices.SortFunc(attachments, func(a, b Attachment) int { return cmp.Compare(a.Name, b.Name) })
	return attachments, nil
}

func findStub(a EditAttachment, parent *leaf, t leafTree, opts WriteOptions) (Attachment, bool) {
	if parent != nil {
		if found, ok := parent.Value.attachment(a.Name); ok && (a.Digest == "" || a.Digest == found.Digest()) {
			return found, true
		}
	}
	if opts.Replicated && a.Digest != "" {
		for _, l := range t {
			if found, ok := l.Value.attachment(a.Name); ok && a.Digest == found.Digest() {
				return found, true
			}
		}
	}
	return Attachment{}, false
}

// newRev returns the revision that replaces parent: its id is a hash over all that it is, and over salt, if
// there is one.
func newRev(parent Rev, deleted bool, body []byte, attachments []Attachment, salt []byte) Rev {
	h := md5.New()
	hashNumber(h, parent.Pos)
	hashBytes(h, []byte(parent.ID))
	if deleted {
		hashNumber(h, 1)
	} else {
		hashNumber(h, 0)
	}
	hashBytes(h, body)
	for _, a := range attachments {
		hashBytes(h, []byte(a.Name))
		hashBytes(h, []byte(a.Type))
		hashBytes(h, []byte(a.Encoding))
		hashBytes(h, a.MD5[:])
	}
	_, _ = h.Write(salt) // never fails
	return Rev{parent.Pos + 1, hex.EncodeToString(h.Sum(nil))}
}

func hashNumber(h hash.Hash, n int64) {
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) // never fails (hash.Hash)
}

// hashBytes hashes the length too, so that no two lists of byte strings are one input.
func hashBytes(h hash.Hash, b []byte) {
	hashNumber(h, int64(len(b)))
	_, _ = h.Write(b)
}
