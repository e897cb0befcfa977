package frontend

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/pkg/docstore"
	"settee/replicator/jobs"
)

// right is to whom a request is open.
type right int

const (
	toAnybody right = iota
	toUsers         // who has a name
	toOwner         // the user whose document of _users it is, and administrators of the database
	toMembers       // of the database
	toDatabaseAdmins
	toMonitors // who reads metrics, and server administrators
	toServerAdmins
)

// DefaultSecurity is the security object of databases that were given none, as in CouchDB 3.
const DefaultSecurity = `{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}`

// rightTo returns to whom a request is open: the one place that decides it. segments are those of
// the path, decoded. What is not known is open to server administrators.
//
// It is about requests. What a request writes into a database, and what it reads of a document
// that is not its user's, access decides, which knows the document.
func rightTo(method string, segments []string, who auth.User) right {
	reads := method == http.MethodGet || method == http.MethodHead
	if len(segments) == 0 {
		return toAnybody
	}
	database := segments[0]
	if strings.HasPrefix(database, "_") && docstore.CheckDatabaseName(database) != nil {
		return rightToServer(segments, reads)
	}
	if len(segments) == 1 {
		switch {
		case method == http.MethodPut, method == http.MethodDelete:
			return toServerAdmins
		case accounts.IsDatabase(database):
			return toDatabaseAdmins
		}
		return toMembers
	}
	if accounts.IsDatabase(database) {
		if !who.IsNobody() && segments[1] == accounts.IDPrefix+who.Name {
			return toOwner
		}
		return toDatabaseAdmins
	}
	switch endpoint := segments[1]; endpoint {
	case "_security", "_revs_limit":
		if reads {
			return toMembers
		}
		return toDatabaseAdmins
	case "_compact", "_view_cleanup":
		return toDatabaseAdmins
	case "_purge", "_purged_infos", "_purged_infos_limit", "_auto_purge", "_sync_shards":
		return toServerAdmins
	case "_all_docs", "_design_docs", "_local_docs", "_changes", "_revs_diff", "_missing_revs":
		if jobs.IsReplicatorDatabase(database) { // they show revisions of documents that are others'
			return toDatabaseAdmins
		}
	default:
		if isDesign(endpoint) && (method == http.MethodPut || method == http.MethodDelete) {
			return toDatabaseAdmins
		}
	}
	return toMembers
}

// rightToServer is rightTo for what is not in a database.
func rightToServer(segments []string, reads bool) right {
	switch {
	case reads && len(segments) == 3 && segments[0] == "_node" && segments[2] == "_prometheus":
		return toMonitors
	case len(segments) > 1:
		return toServerAdmins
	}
	switch segments[0] {
	case "_up", "_uuids", "_session":
		return toAnybody
	case "_replicate":
		return toUsers
	}
	return toServerAdmins
}

// isDesign reports whether the id, or the first part of it, is a design document's.
func isDesign(id string) bool { return id == "_design" || strings.HasPrefix(id, "_design/") }

// authorize returns the request with what its user may do in its database, or why it is refused.
func (h *Handler) authorize(r *http.Request, who identity) (*http.Request, error) {
	segments := pathSegments(r.URL)
	needed := rightTo(r.Method, segments, who.User)
	a := &access{who: who, accounts: h.accounts, admin: who.IsAdmin()}
	switch {
	case a.admin, needed == toAnybody, needed == toUsers && !who.IsNobody():
	case needed == toUsers:
		return r, unauthorized("You are not an authenticated user")
	case needed == toMonitors && who.HasRole(auth.MetricsRole):
	case needed == toMonitors, needed == toServerAdmins:
		return r, unauthorized("You are not a server admin.")
	default:
		if err := h.enter(r, a, segments[0]); err != nil {
			return r, err
		}
		if err := a.permits(needed); err != nil {
			return r, err
		}
	}
	return r.WithContext(context.WithValue(r.Context(), accessKey{}, a)), nil
}

// enter reads who may do what in a database.
func (h *Handler) enter(r *http.Request, a *access, name string) error {
	ctx, cancel := storeContext(r)
	defer cancel()
	db, object, err := h.docs.DatabaseSecurity(ctx, name)
	if err != nil {
		return docFailure(err)
	}
	security, err := auth.ParseSecurity(object)
	if err != nil {
		// An earlier version may have stored what nobody would now. It lets nobody in.
		security = auth.Security{Members: auth.Who{Roles: []string{auth.AdminRole}}}
	}
	a.db, a.admin, a.member = db, security.IsAdmin(a.who.User), security.IsMember(a.who.User)
	return nil
}

// permits returns why a right in a database is not had.
func (a *access) permits(needed right) error {
	switch {
	case a.admin, needed == toOwner, needed == toMembers && a.member:
		return nil
	case needed == toMembers && a.who.IsNobody():
		return unauthorized("You are not authorized to access this db.")
	case needed == toMembers:
		return forbidden("You are not allowed to access this db.")
	}
	return a.notAdmin()
}

func (a *access) notAdmin() error {
	const reason = "You are not a db or server admin."
	if a.who.IsNobody() {
		return unauthorized(reason)
	}
	return forbidden(reason)
}

// pathSegments returns the segments of a path that canonical made, decoded.
func pathSegments(u *url.URL) []string {
	var segments []string
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if segment == "" {
			continue
		}
		if plain, err := url.PathUnescape(segment); err == nil {
			segment = plain
		}
		segments = append(segments, segment)
	}
	return segments
}
