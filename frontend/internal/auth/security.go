package auth

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Security is whom a database lets in. The zero value lets everybody in, and has no
// administrators but the server's.
type Security struct {
	Admins, Members Who
}

// Who is some users, by their names and by their roles.
type Who struct {
	Names, Roles []string
}

func (w Who) has(u User) bool {
	if !u.IsNobody() && slices.Contains(w.Names, u.Name) {
		return true
	}
	return slices.ContainsFunc(u.Roles, func(role string) bool { return slices.Contains(w.Roles, role) })
}

// IsAdmin reports whether a user is an administrator of the database. Those of the server are.
func (s Security) IsAdmin(u User) bool { return u.IsAdmin() || s.Admins.has(u) }

// IsMember reports whether a user may read and write documents. Administrators may, and where
// there are no members, everybody.
func (s Security) IsMember(u User) bool {
	public := len(s.Members.Names) == 0 && len(s.Members.Roles) == 0
	return public || s.IsAdmin(u) || s.Members.has(u)
}

// SecurityError says which part of a security object is not what it must be.
type SecurityError struct{ Reason string }

// Error returns the reason.
func (e *SecurityError) Error() string { return e.Reason }

// ParseSecurity reads a security object: a JSON object. Members of it that CouchDB does not read
// are their makers' own. The error is a *SecurityError.
func ParseSecurity(text []byte) (Security, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil || members == nil {
		return Security{}, &SecurityError{"the security object must be a JSON object"}
	}
	var s Security
	var readers Who // the old name of members, which counts where those are not given
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
		var texts []*string
		if json.Unmarshal(raw, &texts) != nil || texts == nil || slices.Contains(texts, nil) {
			return &SecurityError{fmt.Sprintf("`%s.%s` must be a JSON list of strings", name, what)}
		}
		for _, text := range texts {
			*list = append(*list, *text)
		}
	}
	return nil
}
