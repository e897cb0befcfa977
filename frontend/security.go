package frontend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

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
	members, err := parseObject(text)
	if err != nil {
		return err
	}
	for _, who := range []string{"admins", "members", "readers"} { // the last is the old name of members
		object, given := members[who]
		if !given {
			continue
		}
		var lists map[string]json.RawMessage
		if json.Unmarshal(object, &lists) != nil || lists == nil {
			return badRequest(fmt.Sprintf("`%s` must be an object with `names` and `roles`", who))
		}
		for _, what := range []string{"names", "roles"} {
			var texts []*string
			list, given := lists[what]
			if given && (json.Unmarshal(list, &texts) != nil || texts == nil || hasNil(texts)) {
				return badRequest(fmt.Sprintf("`%s.%s` must be a JSON list of strings", who, what))
			}
		}
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
