package frontend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"settee/frontend/accounts"
	"settee/pkg/docstore"
	"settee/replicator"
	"settee/replicator/jobs"
)

// access is what the user of a request may do in its database.
type access struct {
	who      identity
	accounts *accounts.Accounts
	// db is nil if nobody has asked for it yet.
	db            *docstore.Database
	admin, member bool
}

type accessKey struct{}

// accessOf returns what the user of a request may do. Every request has it: see authorize.
func accessOf(r *http.Request) *access {
	if a, ok := r.Context().Value(accessKey{}).(*access); ok {
		return a
	}
	return new(access) // which may do nothing
}

// reads returns a document as the user sees it: of a replicator database's that is another user's
// without credentials, and, so that nobody writes that back, with a revision that does not exist.
func (a *access) reads(db *docstore.Database, doc *docstore.Document) (*docstore.Document, error) {
	if a.mayRead(db, doc) {
		return doc, nil
	}
	body, err := replicator.StripDocument(doc.Body)
	if err != nil {
		return nil, notFound("missing")
	}
	stripped := *doc
	stripped.Body, stripped.Attachments, stripped.Conflicts, stripped.DeletedConflicts = body, nil, nil, nil
	// It is made of what is shown. A revision's own id is made of all that the document had, so
	// that whoever knows it, or that of an ancestor, can try which password gives the same.
	sum := sha256.Sum256(fmt.Appendf(nil, "stripped\n%d\n%s", doc.Rev.Pos, body))
	stripped.Rev.ID = hex.EncodeToString(sum[:16])
	stripped.Path = []string{stripped.Rev.ID}
	return &stripped, nil
}

// mayRead reports whether the user sees all of a document.
func (a *access) mayRead(db *docstore.Database, doc *docstore.Document) bool {
	return a.admin || !jobs.IsReplicatorDatabase(db.Name()) || replicator.IgnoredID(doc.ID) ||
		doc.Deleted && len(doc.Body) <= len("{}") && len(doc.Attachments) == 0 || replicator.OwnedBy(doc.Body, a.who.userName())
}

var (
	errReadOthers  = forbidden("You may only read your own replication documents as a whole.")
	errWriteOthers = forbidden("Can't update replication documents from other users.")
)

// readsWhole refuses what would show, or copy, a document that the user does not see all of.
func (a *access) readsWhole(db *docstore.Database, doc *docstore.Document) error {
	if a.mayRead(db, doc) {
		return nil
	}
	return errReadOthers
}

// readsAttachments refuses a request for an attachment of a document of which the user does not
// see all. Its winning revision decides, before anything else is looked at: the answer does not tell
// which revisions and attachments there are.
func (a *access) readsAttachments(ctx context.Context, db *docstore.Database, id string) error {
	return a.unlessAnothers(ctx, db, id, errReadOthers)
}

// writesAttachments is readsAttachments for a request that changes an attachment.
func (a *access) writesAttachments(ctx context.Context, db *docstore.Database, id string) error {
	return a.unlessAnothers(ctx, db, id, errWriteOthers)
}

// unlessAnothers returns refusal if the user does not see all of a document's winning revision.
func (a *access) unlessAnothers(ctx context.Context, db *docstore.Database, id string, refusal error) error {
	if a.admin || !jobs.IsReplicatorDatabase(db.Name()) || replicator.IgnoredID(id) {
		return nil
	}
	doc, err := db.Get(ctx, id, docstore.GetOptions{})
	switch {
	case errors.Is(err, docstore.ErrNotFound), errors.Is(err, docstore.ErrDocumentID):
		return nil // the request itself finds out
	case err != nil:
		return docFailure(err)
	case a.mayRead(db, doc):
		return nil
	}
	return refusal
}

// writes makes an edit what is stored if the user makes it, or says why it is refused.
func (a *access) writes(ctx context.Context, db *docstore.Database, edit *docstore.Edit, replicated bool) error {
	isReplication := jobs.IsReplicatorDatabase(db.Name()) && !replicator.IgnoredID(edit.ID)
	switch {
	case a.admin:
	case isDesign(edit.ID):
		return a.notAdmin()
	case (isReplication || accounts.IsDatabase(db.Name())) && replicated:
		// They could be given a longer history than those that they are to replace.
		return forbidden("Only administrators may write revisions that were made elsewhere into this database.")
	}
	switch {
	case accounts.IsDatabase(db.Name()):
		return a.writesUser(ctx, db, edit)
	case isReplication && !replicated:
		return a.writesReplication(ctx, db, edit)
	}
	return nil
}

// writesLocal says why the user may not write local documents. In _users they are for
// administrators, as all is there that is not the user's own document.
func (a *access) writesLocal(db *docstore.Database) error {
	if accounts.IsDatabase(db.Name()) && !a.admin {
		return a.notAdmin()
	}
	return nil
}

// writesUser is writes for documents of _users.
func (a *access) writesUser(ctx context.Context, db *docstore.Database, edit *docstore.Edit) error {
	w := accounts.Write{ID: edit.ID, Deleted: edit.Deleted, Body: edit.Body, By: a.who.User, Admin: a.admin}
	if !a.admin {
		before, err := a.replaced(ctx, db, edit)
		if err != nil {
			return err
		}
		if before == nil && edit.Rev != (docstore.Rev{}) {
			return docFailure(docstore.ErrConflict) // the revision was replaced, or there never was one
		}
		if before == nil || before.Deleted {
			return forbidden("Only administrators may create users.")
		}
		w.Before = before.Body
	}
	if w.Body == nil {
		w.Body = []byte("{}")
	}
	body, err := a.accounts.Document(ctx, w)
	var refused *accounts.DocumentError
	if errors.As(err, &refused) {
		return forbidden(refused.Reason)
	}
	if err != nil {
		return loginFailure(err)
	}
	edit.Body = body
	return nil
}

// writesReplication is writes for documents that replicate.
func (a *access) writesReplication(ctx context.Context, db *docstore.Database, edit *docstore.Edit) error {
	name := a.who.userName()
	if !a.admin {
		before, err := a.replaced(ctx, db, edit)
		if err != nil {
			return err
		}
		if before != nil && !before.Deleted && !replicator.OwnedBy(before.Body, name) {
			return errWriteOthers
		}
	}
	if edit.Deleted || edit.Body == nil {
		return nil
	}
	if !a.admin {
		if err := replicator.CheckUserCtx(edit.Body, name, a.who.Roles); err != nil {
			return docFailure(err)
		}
	}
	body, err := replicator.SetOwner(edit.Body, name, a.admin)
	if err != nil {
		return docFailure(err)
	}
	edit.Body = body
	return nil
}

// replaced returns the revision that an edit replaces: that which it names, for no other can it
// replace. nil is none, and then the edit is a conflict, or makes a document.
func (a *access) replaced(ctx context.Context, db *docstore.Database, edit *docstore.Edit) (*docstore.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	doc, err := db.Get(ctx, edit.ID, docstore.GetOptions{Rev: edit.Rev})
	switch {
	case errors.Is(err, docstore.ErrNotFound), errors.Is(err, docstore.ErrDocumentID):
		return nil, nil
	case err != nil:
		return nil, docFailure(err)
	}
	return doc, nil
}

// standing is a digest of what says what a user may do in a database: its security object and the
// account.
type standing [sha256.Size]byte

// standing returns how the user of a request stands now.
func (h *Handler) standing(r *http.Request, db *docstore.Database) (standing, error) {
	ctx, cancel := storeContext(r)
	defer cancel()
	who := whoIs(r)
	var object []byte
	var account accounts.Standing
	var err error
	if !who.IsAdmin() {
		if object, err = db.Security(ctx); err != nil {
			return standing{}, err
		}
	}
	if who.handler == "cookie" || who.handler == "default" { // a token is its user's account
		if account, err = h.accounts.Standing(ctx, who.Name); err != nil {
			return standing{}, err
		}
	}
	return sha256.Sum256(append(account[:], object...)), nil
}
