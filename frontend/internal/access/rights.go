package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"settee/frontend/accounts"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
	"settee/replicator"
)

// Rights are what the user of a request may do in the database of the request.
type Rights struct {
	user     Identity
	address  string // of the client
	accounts *accounts.Accounts
	// db is nil if the database was not opened yet.
	db            *docstore.Database
	admin, member bool
}

type rightsKey struct{}

// RightsOf returns the rights of the user of a request that a guard admitted. The user of another request may do nothing.
func RightsOf(r *http.Request) *Rights {
	if a, ok := r.Context().Value(rightsKey{}).(*Rights); ok {
		return a
	}
	return new(Rights)
}

// Reads returns a document as the user sees it. A replication document of another user has no credentials, and its
// revision is one that does not exist, so that the document cannot be written back without them.
func (a *Rights) Reads(db *docstore.Database, doc *docstore.Document) (*docstore.Document, error) {
	if err := a.readsUser(db, doc.ID); err != nil {
		return nil, err
	}
	if a.mayRead(db, doc) {
		return doc, nil
	}
	body, err := replicator.StripDocument(doc.Body)
	if err != nil {
		return nil, web.NotFound("missing")
	}
	stripped := *doc
	stripped.Body, stripped.Attachments, stripped.Conflicts, stripped.DeletedConflicts = body, nil, nil, nil
	// The revision is made of what is shown. The real one is made of the whole document: a user who knows it, or that
	// of an ancestor, could try passwords until one gives the same revision.
	sum := sha256.Sum256(fmt.Appendf(nil, "stripped\n%d\n%s", doc.Rev.Pos, body))
	stripped.Rev.ID = hex.EncodeToString(sum[:16])
	stripped.Path = []string{stripped.Rev.ID}
	return &stripped, nil
}

var (
	errReadOthers  = web.Forbidden("You may only read your own replication documents as a whole.")
	errWriteOthers = web.Forbidden("Can't update replication documents from other users.")
)

// ReadsWhole refuses a request that would show or copy a whole document, if the user does not see all of it.
func (a *Rights) ReadsWhole(db *docstore.Database, doc *docstore.Document) error {
	if err := a.readsUser(db, doc.ID); err != nil {
		return err
	}
	if a.mayRead(db, doc) {
		return nil
	}
	return errReadOthers
}

// ReadsAttachments refuses a request for an attachment of a document, if the user does not see all of the document. The
// winning revision decides, before anything else is read, so the answer does not tell which revisions and attachments
// there are.
func (a *Rights) ReadsAttachments(ctx context.Context, db *docstore.Database, id string) error {
	return a.ownsOr(ctx, db, id, errReadOthers)
}

// WritesAttachments is readsAttachments for a request that changes an attachment.
func (a *Rights) WritesAttachments(ctx context.Context, db *docstore.Database, id string) error {
	return a.ownsOr(ctx, db, id, errWriteOthers)
}

// ownsOr returns refusal if the user does not see all of the winning revision of a document.
func (a *Rights) ownsOr(ctx context.Context, db *docstore.Database, id string, refusal error) error {
	if err := a.Opens(db, id); err != nil {
		return err
	}
	if a.admin || isOpen(db, id) {
		return nil
	}
	doc, err := db.Get(ctx, id, docstore.GetOptions{})
	switch {
	case errors.Is(err, docstore.ErrNotFound), errors.Is(err, docstore.ErrDocumentID):
		return nil // the request itself finds out
	case err != nil:
		return web.StoreFailure(err)
	case a.mayRead(db, doc):
		return nil
	}
	return refusal
}

// Writes changes an edit of the user into what is stored, or returns why the edit is refused. A replicated edit has
// its own history (new_edits=false).
func (a *Rights) Writes(ctx context.Context, db *docstore.Database, edit *docstore.Edit, replicated bool) error {
	isReplication := !isOpen(db, edit.ID)
	switch {
	case a.admin:
	case accounts.IsDatabase(db.Name()) && !a.mayWriteUser(edit.ID):
		return web.NotFound("missing") // as in CouchDB
	case isDesign(edit.ID):
		return a.notAdmin()
	case (isReplication || accounts.IsDatabase(db.Name())) && replicated:
		// Such a revision could be given a longer history than the one that it is to replace.
		return web.Forbidden("Only administrators may write revisions that were made elsewhere into this database.")
	}
	switch {
	case accounts.IsDatabase(db.Name()):
		return a.writesUser(ctx, db, edit, replicated)
	case isReplication && !replicated:
		return a.writesReplication(ctx, db, edit)
	}
	return nil
}

// writesReplication is writes for a replication document.
func (a *Rights) writesReplication(ctx context.Context, db *docstore.Database, edit *docstore.Edit) error {
	name := a.user.UserName()
	if !a.admin {
		before, err := a.replaced(ctx, db, edit)
		if err != nil {
			return web.StoreFailure(err)
		}
		if before != nil && !a.mayChange(db, before) {
			return errWriteOthers
		}
	}
	if edit.Deleted {
		return nil
	}
	draft := replicator.ReadDraft(edit.Body)
	var err error
	if !a.admin {
		err = draft.CheckUserCtx(name, a.user.Roles)
	}
	if err == nil {
		edit.Body, err = draft.WithOwner(name, a.admin)
	}
	return web.StoreFailure(err)
}

// replaced returns the revision that an edit names, which is the only one that it can replace. It returns nil if there
// is none: then the edit is a conflict, or makes a document.
func (a *Rights) replaced(ctx context.Context, db *docstore.Database, edit *docstore.Edit) (*docstore.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, web.StoreTimeout)
	defer cancel()
	doc, err := db.Get(ctx, edit.ID, docstore.GetOptions{Rev: edit.Rev})
	switch {
	case errors.Is(err, docstore.ErrNotFound), errors.Is(err, docstore.ErrDocumentID):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return doc, nil
}
