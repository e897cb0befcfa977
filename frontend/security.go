package frontend

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/pkg/docstore"
)

func (h *Handler) getSecurity(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	ctx, cancel := storeContext(r)
	defer cancel()
	object, err := db.Security(ctx)
	if err != nil {
		return docFailure(err)
	}
	send(w, r, http.StatusOK, append(bytes.Clone(object), '\n'))
	return nil
}

func (h *Handler) putSecurity(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	if accounts.IsDatabase(db.Name()) {
		return forbidden("You can't edit the security object of the user database.")
	}
	body, err := h.readJSON(w, r)
	if err != nil {
		return err
	}
	if err := checkSecurity(body); err != nil {
		return err
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	switch err := db.SetSecurity(ctx, body); {
	case errors.Is(err, docstore.ErrTooLarge):
		return &failure{http.StatusRequestEntityTooLarge, "too_large",
			fmt.Sprintf("the security object has more than %d bytes, which is the limit", docstore.MaxSecuritySize)}
	case err != nil:
		return docFailure(err)
	}
	return respond(w, r, http.StatusOK, okay{true})
}

// checkSecurity checks what CouchDB itself reads of a security object. It may have other
// members, which are their makers' own.
func checkSecurity(text []byte) error {
	if _, err := parseObject(text); err != nil {
		return err
	}
	if _, err := auth.ParseSecurity(text); err != nil {
		return badRequest(err.Error())
	}
	return nil
}

// hasNil reports whether a list of strings had a null, which JSON takes for any of them.
func hasNil(texts []*string) bool {
	for _, text := range texts {
		if text == nil {
			return true
		}
	}
	return false
}

func (h *Handler) getRevsLimit(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	ctx, cancel := storeContext(r)
	defer cancel()
	limit, err := db.RevsLimit(ctx)
	if err != nil {
		return docFailure(err)
	}
	return respond(w, r, http.StatusOK, limit)
}

func (h *Handler) putRevsLimit(w http.ResponseWriter, r *http.Request, db *docstore.Database) error {
	body, err := h.readJSON(w, r)
	if err != nil {
		return err
	}
	limit, err := strconv.Atoi(string(bytes.TrimSpace(body)))
	if err != nil || limit < 1 || limit > docstore.MaxRevsLimit {
		return badRequest(fmt.Sprintf("the revs_limit must be a whole number from 1 to %d", docstore.MaxRevsLimit))
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	if err := db.SetRevsLimit(ctx, limit); err != nil {
		return docFailure(err)
	}
	return respond(w, r, http.StatusOK, okay{true})
}
