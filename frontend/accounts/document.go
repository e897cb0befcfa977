package accounts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"settee/frontend/internal/auth"
)

// DocumentError says why a document of _users is refused, in CouchDB's words where it has some.
type DocumentError struct{ Reason string }

// Error returns the reason.
func (e *DocumentError) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &DocumentError{fmt.Sprintf(format, args...)} }

// Write is a revision of a document of _users that somebody wants to write.
type Write struct {
	ID      string
	Deleted bool
	Body    []byte `json:"-"` // a JSON object
	// Before is the body of the revision that it replaces, nil if there is none.
	Before []byte `json:"-"`
	By     auth.User
	// Admin says that By is an administrator of the database.
	Admin bool
}

// Document returns the body that a revision is stored with: if it has a password, that is
// hashed. Design documents are left alone. The error is a *DocumentError, or ErrBusy, or ctx's.
func (a *Accounts) Document(ctx context.Context, w Write) ([]byte, error) {
	if strings.HasPrefix(w.ID, "_design/") {
		return w.Body, nil // for administrators, whom the caller knows
	}
	if !w.Admin && w.ID != IDPrefix+w.By.Name {
		return nil, refuse("You may only update your own user document.")
	}
	if w.Deleted {
		return w.Body, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(w.Body, &members); err != nil {
		return nil, refuse("the document must be a JSON object")
	}
	if name, err := repeated(w.Body); err != nil {
		return nil, err
	} else if name != "" {
		return nil, refuse("`%.100s` is there more than once", name)
	}
	if err := w.check(members); err != nil {
		return nil, err
	}
	raw, given := members["password"]
	if !given || string(raw) == "null" {
		return w.Body, nil
	}
	password := ""
	if json.Unmarshal(raw, &password) != nil {
		return nil, refuse("doc.password must be a string")
	}
	hash, err := a.Hash(ctx, password)
	if err != nil {
		return nil, err
	}
	return hashedBody(w.Body, hash)
}

// repeated returns the name of a member that an object has more than once; empty: there is none.
// Which of them counts readers of JSON do not agree about, and what was checked has to be what
// every server sees that the document is replicated to.
func repeated(body []byte) (string, error) {
	seen := map[string]bool{}
	twice := ""
	err := eachMember(body, func(name string, _ json.RawMessage) error {
		if seen[name] {
			twice = name
		}
		seen[name] = true
		return nil
	})
	return twice, err
}

// eachMember calls do for the members of an object, in their order.
func eachMember(body []byte, do func(name string, value json.RawMessage) error) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if _, err := decoder.Token(); err != nil {
		return fmt.Errorf("reading the document of a user: %w", err)
	}
	for decoder.More() {
		var value json.RawMessage
		token, err := decoder.Token()
		if err == nil {
			err = decoder.Decode(&value)
		}
		if err != nil {
			return fmt.Errorf("reading the document of a user: %w", err)
		}
		name, _ := token.(string)
		if err := do(name, value); err != nil {
			return err
		}
	}
	return nil
}

// check is CouchDB's validation of users' documents.
func (w *Write) check(members map[string]json.RawMessage) error {
	name, _ := text(members, "name")
	roles, isList := textList(members["roles"])
	kind, _ := text(members, "type")
	switch {
	case kind != "user":
		return refuse("doc.type must be user")
	case name == "":
		return refuse("doc.name is required")
	case members["roles"] == nil:
		return refuse("doc.roles must exist")
	case !isList:
		return refuse("doc.roles must be an array of strings")
	case w.ID != IDPrefix+name:
		return refuse("Doc ID must be of the form org.couchdb.user:name")
	case name[0] == '_':
		return refuse("Username may not start with underscore.")
	case strings.Contains(name, ":"):
		return refuse("Character `:` is not allowed in usernames.")
	case slices.ContainsFunc(roles, isSystemRole):
		return refuse("No system roles (starting with underscore) in users db.")
	case !w.Admin && !slices.Equal(slices.Sorted(slices.Values(roles)), rolesOf(w.Before)):
		return refuse("Only _admin may edit roles")
	}
	return checkHash(members)
}

// isSystemRole reports whether a role is none that a document can give.
func isSystemRole(role string) bool { return strings.HasPrefix(role, "_") && role != auth.MetricsRole }

// rolesOf returns the roles of a document, in their order; of one that does not exist, none.
func rolesOf(body []byte) []string {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	roles, _ := textList(members["roles"])
	slices.Sort(roles)
	return roles
}

// checkHash refuses what looks like a hashed password and could let nobody in.
func checkHash(members map[string]json.RawMessage) error {
	if password, given := members["password"]; given && string(password) != "null" {
		return nil // which takes its place
	}
	raw, given := members["password_scheme"]
	if !given && members["password_sha"] == nil {
		return nil // a user who cannot log in with a password
	}
	if scheme, _ := text(members, "password_scheme"); given &&
		!slices.Contains([]auth.Scheme{auth.Simple, auth.PBKDF2, auth.SimplePBKDF2}, auth.Scheme(scheme)) {
		return refuse("Password scheme `%.100s` not supported.", string(raw))
	}
	if _, ok := auth.ParseUser(members); !ok {
		return refuse("the hashed password is none: it has pbkdf2_prf, salt, iterations and derived_key, or password_sha and salt")
	}
	return nil
}

func text(members map[string]json.RawMessage, name string) (string, bool) {
	var value *string
	if json.Unmarshal(members[name], &value) != nil || value == nil {
		return "", false
	}
	return *value, true
}

// textList reads a list of strings.
func textList(raw json.RawMessage) ([]string, bool) {
	var list []*string
	if json.Unmarshal(raw, &list) != nil || list == nil || slices.Contains(list, nil) {
		return nil, false
	}
	texts := make([]string, len(list))
	for i, text := range list {
		texts[i] = *text
	}
	return texts, true
}

// hashedBody returns a body with a hash in the place of the password. Its other members are as
// they were.
func hashedBody(body []byte, hash auth.Hash) ([]byte, error) {
	var out bytes.Buffer
	comma := "{"
	add := func(name string, value []byte) error {
		quoted, err := json.Marshal(name)
		if err != nil {
			return fmt.Errorf("writing the document of a user: %w", err)
		}
		out.WriteString(comma)
		out.Write(quoted)
		out.WriteByte(':')
		out.Write(value)
		comma = ","
		return nil
	}
	for _, member := range hash.Members() {
		value, err := json.Marshal(member.Value)
		if err == nil {
			err = add(member.Name, value)
		}
		if err != nil {
			return nil, err
		}
	}
	err := eachMember(body, func(name string, value json.RawMessage) error {
		if slices.Contains(auth.PasswordMembers, name) {
			return nil
		}
		return add(name, value)
	})
	out.WriteByte('}')
	return out.Bytes(), err
}
