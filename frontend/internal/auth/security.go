package auth

import (
	"encoding/json"
	"fmt"
	"slices"

	"settee/pkg/jsontext"
)

// Security is a database's security object. The zero value allows every user, and has no
// administrators except the server's.
type Security struct {
	Admins, Members Who
}

// Who is a set of users, by names and roles.
type Who struct {
	Names, Roles []string
}

func (w Who) has(u User) bool {
	if !u.IsNobody() && slices.Contains(w.Names, u.Name) {
		return true
	}
	return slices.ContainsFunc(u.Roles, func(role string) bool { return slices.Contains(w.Roles, role) })
}

// IsAdmin reports whether a user is an administrator of the database. Server administrators are.
func (s Security) IsAdmin(u User) bool { return u.IsAdmin() || s.Admins.has(u) }

// IsMember reports whether a user may read and write documents: administrators, members, and
// every user if there are no members.
func (s Security) IsMember(u User) bool {
	public := len(s.Members.Names) == 0 && len(s.Members.Roles) == 0
	return public || s.IsAdmin(u) || s.Members.has(u)
}

// SecurityError is the error for an invalid security object.
type SecurityError struct{ Reason string }

// Error returns the reason.
func (e *SecurityError) Error() string { return e.Reason }

// ParseSecurity parses a security object, a JSON object. It ignores unknown members. The error is
// a *SecurityError.
func ParseSecurity(text []byte) (Security, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil || members == nil {
		return Security{}, &SecurityError{"the security object must be a JSON object"}
	}
	var s Security
	var readers Who // the old name of members, used if there are none
	for name, into := range map[string]*Who{"admins": &s.Admins, "members": &s.Members, "readers": &readers} {
		if err := readWho(name, members, into); err != nil {
			return Security{}, err
		}
	}
	if _, given := members["members"]; !given {
		s.Members = readers
	}
	return s, nil
}

func readWho(name string, members map[string]json.RawMessage, into *Who) error {
	object, given := members[name]
	if !given {
		return nil
	}
	var lists map[string]json.RawMessage
	if json.Unmarshal(object, &lists) != nil || lists == nil {
		return &SecurityError{fmt.Sprintf("`%s` must be an object with `names` and `roles`", name)}
	}
	for what, list := range map[string]*[]string{"names": &into.Names, "roles": &into.Roles} {
		raw, given := lists[what]
		if !given {
			continue
		}
		if *list, given = jsontext.Strings(raw); !given {
			return &SecurityError{fmt.Sprintf("`%s.%s` must be a JSON list of strings", name, what)}
		}
	}
	return nil
}
