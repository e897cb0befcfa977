// Package auth authenticates requests: it parses the credentials that CouchDB's clients send, and
// the stored forms that they are compared with.
//
//   - [Hash]: passwords, as [admins] and the documents of _users have them
//   - [OneTime]: one-time passwords, the second factor
//   - [Cookie]: the AuthSession cookie
//   - [ParseBasic]: the header of basic authentication
//   - [Tokens]: JSON web tokens
//   - [Security]: the users that a database's security object allows
//
// It does no I/O, starts no goroutines and keeps no state: accounts and time are parameters.
// Secrets are compared in constant time and never part of an error.
package auth

import "slices"

// AdminRole is the role of server administrators. Only the configuration and signed tokens can
// grant it.
const AdminRole = "_admin"

// MetricsRole allows its users to read a node's metrics. Server administrators grant it in _users
// or by a token.
const MetricsRole = "_metrics"

// User is the user of a request. The zero value is the anonymous user.
type User struct {
	// Name is empty for the anonymous user.
	Name  string
	Roles []string
}

// IsAdmin reports whether the user is a server administrator.
func (u User) IsAdmin() bool { return u.HasRole(AdminRole) }

// IsNobody reports whether the user is anonymous.
func (u User) IsNobody() bool { return u.Name == "" }

// HasRole reports whether the user has a role.
func (u User) HasRole(role string) bool { return slices.Contains(u.Roles, role) }
