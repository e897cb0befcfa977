package access

import (
	"context"
	"errors"
	"net/http"

	"settee/frontend/accounts"
	"settee/frontend/internal/web"
	"settee/pkg/docstore"
)

// Opens returns why a document does not exist for the user, although it may be there: in a database of users the
// documents of other users and the local ones do not, except for administrators. It reads nothing, so that neither an
// answer nor its time tells which users there are.
func (a *Rights) Opens(db *docstore.Database, id string) error {
	if a.admin || !accounts.IsDatabase(db.Name()) || isDesign(id) || accounts.IsOwn(a.user.User, id) {
		return nil
	}
	return web.NotFound("missing")
}

// readsUser returns why the user may not read a document that is there, if its database is one of users.
func (a *Rights) readsUser(db *docstore.Database, id string) error {
	if !a.admin && accounts.IsDatabase(db.Name()) && isDesign(id) {
		return web.Forbidden("Only administrators can view design docs in the users database.")
	}
	return a.Opens(db, id)
}

// mayWriteUser reports whether the user may try to write a document of a database of users. Users write their own
// documents. An anonymous user may be one who signs up. What is in the document, and whether there is one already,
// decides later.
func (a *Rights) mayWriteUser(id string) bool {
	return a.admin || a.user.IsNobody() || accounts.IsOwn(a.user.User, id)
}

// WritesLocal returns why the user may not write local documents. In _users only administrators may, as with all
// documents there except the user's own.
func (a *Rights) WritesLocal(db *docstore.Database) error {
	switch {
	case a.admin, !accounts.IsDatabase(db.Name()):
		return nil
	case a.user.IsNobody():
		return a.notAdmin()
	}
	return web.NotFound("missing") // as in CouchDB
}

// writesUser is Writes for a document of a database of users.
func (a *Rights) writesUser(ctx context.Context, db *docstore.Database, edit *docstore.Edit, replicated bool) error {
	w := accounts.Write{
		ID: edit.ID, Deleted: edit.Deleted, Body: edit.Body, By: a.user.User, Admin: a.admin, Member: a.member, Address: a.address,
	}
	if !replicated && !isDesign(edit.ID) {
		before, err := a.replaced(ctx, db, edit)
		switch {
		case a.admin && errors.Is(err, docstore.ErrSealed): // a document that cannot be opened can be replaced
		case err != nil:
			return web.StoreFailure(err)
		default:
			isThere, stated := before != nil && !before.Deleted, edit.Rev != docstore.Rev{}
			w.Conflict = isThere && !stated || before == nil && stated
			if isThere {
				w.Before = before.Body
			}
		}
	}
	body, err := a.accounts.Document(ctx, w)
	var refused *accounts.DocumentError
	switch {
	case errors.As(err, &refused) && refused.WeakPassword:
		return web.BadRequest(refused.Reason)
	case refused != nil:
		return web.Forbidden(refused.Reason)
	case errors.Is(err, accounts.ErrTooMany):
		return web.NewFailure(http.StatusTooManyRequests, "too_many_requests", "too many new passwords come from this address: try again later")
	case err != nil:
		return web.StoreFailure(LoginFailure(err))
	}
	edit.Body = body
	return nil
}
