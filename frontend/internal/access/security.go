package access

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/frontend/internal/web"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

// GetSecurity answers with the security object of a database.
func (g *Guard) GetSecurity(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	object, err := db.Security(ctx)
	if err != nil {
		return web.StoreFailure(err)
	}
	web.Send(w, r, http.StatusOK, append(bytes.Clone(object), '\n'))
	return nil
}

// PutSecurity replaces the security object of a database.
func (g *Guard) PutSecurity(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	if accounts.IsDatabase(db.Name()) && !config.UsersSecurityEditable.Get(g.Settings.Current()) {
		return web.Forbidden("You can't edit the security object of the user database.")
	}
	body, err := web.ReadJSON(w, r, g.Settings.Current())
	if err != nil {
		return err
	}
	if err := checkSecurity(body); err != nil {
		return err
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	switch err := db.SetSecurity(ctx, body); {
	case errors.Is(err, docstore.ErrTooLarge):
		return web.NewFailure(http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("the security object has more than %d bytes, which is the limit", docstore.MaxSecuritySize))
	case err != nil:
		return web.StoreFailure(err)
	}
	return web.RespondOK(w, r, http.StatusOK)
}

// checkSecurity checks the members of a security object that CouchDB itself reads. The object may have others.
func checkSecurity(text []byte) error {
	if _, err := web.ParseObject(text); err != nil {
		return err
	}
	if _, err := auth.ParseSecurity(text); err != nil {
		return web.BadRequest(err.Error())
	}
	return nil
}
