// Package auth tells who makes a request: it reads the credentials that CouchDB's clients
// send, and the forms in which CouchDB keeps what they are compared with.
//
//   - [Hash]: passwords, as [admins] and the documents of _users keep them
//   - [OneTime]: one-time passwords, the second factor
//   - [Cookie]: the AuthSession cookie
//   - [ParseBasic]: the header of basic authentication
//   - [Tokens]: JSON web tokens
//   - [Security]: whom a database's security object lets in
//
// It does no I/O, starts nothing and keeps nothing: who the accounts are and what time it is
// are parameters. Secrets are compared in constant time, and are in no error.
package auth

// AdminRole is the role of server administrators. Nobody but the configuration, or a token
// that somebody signed, can give it.
const AdminRole = "_admin"

// MetricsRole is the role of those who may read a node's metrics. Server administrators give it, in _users or
// by a token.
const MetricsRole = "_metrics"

// User is who makes a request. The zero value is nobody.
type User struct {
	// Name is empty for nobody.
	Name  string
	Roles []string
}

// IsAdmin reports whether the user is a server administrator.
func (u User) IsAdmin() bool { return u.HasRole(AdminRole) }

// IsNobody reports whether no user is known.
func (u User) IsNobody() bool { return u.Name == "" }

// HasRole reports whether the user has a role.
func (u User) HasRole(role string) bool {
	for _, own := range u.Roles {
		if own == role {
			return true
		}
	}
	return false
}
