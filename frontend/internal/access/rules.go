package access

import (
	"net/http"
	"strings"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/pkg/docstore"
	"settee/replicator"
)

// audience is the set of users who may make a request. Server administrators may make every request. Administrators of a
// database may make every request in it, except those that are for server administrators.
type audience int

const (
	anybody audience = iota
	users            // users with a name
	owner            // the user whose document of _users it is
	members          // members of the database
	databaseAdmins
	monitors // users who may read metrics and statistics
	serverAdmins
)

// DefaultSecurity is the security object of databases without one of their own, as in CouchDB 3.
const DefaultSecurity = `{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}`

// audienceOf returns who may make a request. No other code decides this; for paths about jobs it asks audienceOfJobs.
// segments are the decoded segments of the path. An unknown path is for server administrators.
//
// It does not know documents and jobs. Rights decides what a user may write into a database and read of other users'
// documents, and mayUse decides what a user may do with a job.
func audienceOf(method string, segments []string, user auth.User) audience {
	reads := method == http.MethodGet || method == http.MethodHead
	if len(segments) == 0 {
		return anybody
	}
	database := segments[0]
	if !namesDatabase(segments) {
		return audienceOfServer(segments, reads)
	}
	if len(segments) == 1 {
		if method == http.MethodPut || method == http.MethodDelete {
			return serverAdmins
		}
		return members
	}
	if accounts.IsDatabase(database) && accounts.IsOwn(user, segments[1]) {
		return owner
	}
	switch endpoint := segments[1]; endpoint {
	case "_security", "_revs_limit":
		if reads {
			return members
		}
		return databaseAdmins
	case "_compact", "_view_cleanup":
		return databaseAdmins
	case "_time_seq":
		if method == http.MethodDelete {
			return databaseAdmins
		}
	case "_purge", "_purged_infos", "_purged_infos_limit", "_auto_purge", "_sync_shards":
		return serverAdmins
	case "_all_docs", "_design_docs", "_local_docs", "_changes", "_revs_diff", "_missing_revs":
		switch { // they show documents of other users, or their revisions
		case database == accounts.Database && (endpoint == "_all_docs" || endpoint == "_changes"):
			return serverAdmins // as in CouchDB
		case replicator.IsReplicatorDatabase(database), accounts.IsDatabase(database):
			return databaseAdmins
		}
	default:
		if isDesign(endpoint) && (method == http.MethodPut || method == http.MethodDelete) {
			return databaseAdmins
		}
	}
	return members
}

// namesDatabase reports whether a path is one in a database, as opposed to a path of the server.
func namesDatabase(segments []string) bool {
	return len(segments) > 0 && (!strings.HasPrefix(segments[0], "_") || docstore.CheckDatabaseName(segments[0]) == nil)
}

// actsByRoles reports whether what a request does, or shows, depends on the roles that a server administrator has besides
// _admin. Other requests of administrators need no account in the store, and work while it cannot be read.
func actsByRoles(segments []string) bool {
	return namesDatabase(segments) || len(segments) == 1 && segments[0] == "_session"
}

// audienceOfServer is audienceOf for a path outside databases.
func audienceOfServer(segments []string, reads bool) audience {
	switch {
	case reads && segments[0] == "_utils": // the pages, which have no data
		return anybody
	case reads && len(segments) > 2 && segments[0] == "_node" && isMeasured(segments[2:]):
		return monitors
	case segments[0] == "_scheduler", segments[0] == "_replicate":
		return audienceOfJobs(segments, reads)
	case len(segments) > 1:
		return serverAdmins
	}
	switch segments[0] {
	case "_up", "_uuids", "_session":
		return anybody
	}
	return serverAdmins
}

// isMeasured reports whether a path below /_node/{node} has metrics. segments are its segments there.
func isMeasured(segments []string) bool {
	switch segments[0] {
	case "_prometheus", "_system":
		return len(segments) == 1
	case "_stats":
		return true
	}
	return false
}

// isDesign reports whether an id, or the first segment of an id, names a design document.
func isDesign(id string) bool { return id == "_design" || strings.HasPrefix(id, "_design/") }
