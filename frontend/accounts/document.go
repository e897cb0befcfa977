package accounts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"settee/frontend/internal/auth"
	"settee/frontend/internal/networks"
	"settee/pkg/config"
	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/jsontext"
)

// DocumentError says why a document of _users is refused, in CouchDB's words where it has some.
type DocumentError struct {
	Reason string
	// WeakPassword is true if the new password breaks a rule. CouchDB answers this with 400, and all other refusals with
	// 403.
	WeakPassword bool
}

// Error returns the reason.
func (e *DocumentError) Error() string { return e.Reason }

func refuse(format string, args ...any) error {
	return &DocumentError{Reason: fmt.Sprintf(format, args...)}
}

// Write is a write of a document of _users.
type Write struct {
	ID      string
	Deleted bool
	Body    docjson.Body `json:"-"`
	// Before is the body of the revision that is replaced, nil if there is none. Conflict reports whether the write
	// replaces another revision than it has to.
	Before   []byte `json:"-"`
	Conflict bool
	By       auth.User
	// Admin reports whether By is an administrator of the database, and Member whether By is a member, as everyone is of
	// a database without members.
	Admin, Member bool
	// Address is the network address that the write comes from.
	Address string
}

// Document returns the body to be stored for a write, with the password hashed. Design documents are not changed. The
// error is a *DocumentError, docstore.ErrConflict, ErrBusy, ErrTooMany, or ctx's. As in CouchDB a weak password is refused
// before a conflict, and everything else after it.
func (a *Accounts) Document(ctx context.Context, w Write) (docjson.Body, error) {
	if strings.HasPrefix(w.ID, "_design/") {
		return w.Body, nil // the caller allows only administrators to write these
	}
	if w.Deleted {
		return w.Body, w.permitted()
	}
	if name := repeated(w.Body.Bytes()); name != "" {
		return w.Body, refuse("`%.100s` is there more than once", name)
	}
	members := w.Body.Values()
	password, err := a.newPassword(members)
	if err != nil {
		return w.Body, err
	}
	if err := w.permitted(); err != nil {
		return w.Body, err
	}
	if err := w.check(members); err != nil {
		return w.Body, err
	}
	if password == nil {
		return w.Body, nil
	}
	hash, err := a.hashOf(ctx, &w, *password)
	if err != nil {
		return w.Body, err
	}
	return hashedBody(w.Body.Bytes(), hash)
}

// newPassword returns the password that a document sets, or nil if it sets none.
func (a *Accounts) newPassword(members map[string]json.RawMessage) (*string, error) {
	raw := newPasswordIn(members)
	if raw == nil {
		return nil, nil
	}
	password, isText := text(members, "password")
	switch {
	case isText:
	case raw[0] == '{' || raw[0] == '[':
		return nil, refuse("doc.password must be a string")
	default:
		return nil, refuse("Password value of '%.100s' is invalid.", raw)
	}
	return &password, checkPassword(password, config.PasswordRules.Get(a.config.Current()))
}

// newPasswordIn returns the new password in a document, nil if there is none.
func newPasswordIn(members map[string]json.RawMessage) json.RawMessage {
	if raw := members["password"]; string(raw) != "null" {
		return raw
	}
	return nil
}

// permitted returns why By may not make the write, whatever is in the document. As in CouchDB a member writes its own
// document, and an anonymous member makes one for any name that has none.
func (w *Write) permitted() error {
	isOwn := IsOwn(w.By, w.ID)
	switch {
	case w.Conflict:
		return docstore.ErrConflict
	case w.Admin, isOwn && w.Before != nil:
		return nil
	case w.Deleted:
		return refuse("Only admins may delete other user docs.")
	case w.Before != nil, !isOwn && !w.By.IsNobody():
		return refuse("You may only update your own user document.")
	case !w.Member:
		return refuse("Only administrators may create users.")
	}
	return nil
}

// IsOwn reports whether a document of a database of users is the user's own account.
func IsOwn(user auth.User, id string) bool { return !user.IsNobody() && id == IDPrefix+user.Name }

// hashOf hashes the new password of a write. Anyone may be able to create users, so a network can have only a few hashes
// of its users' new passwords under way, and the others get ErrTooMany. Administrators have no such bound.
func (a *Accounts) hashOf(ctx context.Context, w *Write, password string) (auth.Hash, error) {
	if !w.Admin {
		network := "new passwords of " + networks.Of(w.Address)
		if !a.failures.enter(network, maxNewPasswords) {
			return auth.Hash{}, ErrTooMany
		}
		defer a.failures.leave(network)
	}
	return a.Hash(ctx, password)
}

// checkPassword refuses a new password that a rule does not match.
func checkPassword(password string, rules []config.PasswordRule) error {
	for _, rule := range rules {
		if !rule.Matches.MatchString(password) {
			return &DocumentError{
				Reason: strings.TrimSpace("Password does not conform to requirements. " + rule.Reason), WeakPassword: true,
			}
		}
	}
	return nil
}

// repeated returns the name of a member that an object has more than once, or "" if there is
// none. JSON readers do not agree which of them counts, and every server that the document is
// replicated to has to see what was checked.
func repeated(body []byte) (twice string) {
	seen := map[string]bool{}
	for m := range jsontext.Members(body) {
		if seen[string(m.Key)] {
			twice = string(m.Key)
		}
		seen[string(m.Key)] = true
	}
	return twice
}

// check applies the rules of CouchDB's validation of users' documents, in its order, and refuses a hash that no password can
// match.
func (w *Write) check(members map[string]json.RawMessage) error {
	if err := w.checkMembers(members); err != nil {
		return err
	}
	hashed := newPasswordIn(members) == nil // otherwise the new password replaces the hash
	if hashed {
		if err := checkHash(members); err != nil {
			return err
		}
	}
	if err := w.checkNames(members); err != nil {
		return err
	}
	if hashed {
		return checkLogin(members)
	}
	return nil
}

// checkMembers refuses a document that is not one of a user.
func (w *Write) checkMembers(members map[string]json.RawMessage) error {
	name, _ := text(members, "name")
	_, areTexts := jsontext.Strings(members["roles"])
	kind, _ := text(members, "type")
	switch {
	case kind != "user":
		return refuse("doc.type must be user")
	case !isTrue(members["name"]):
		return refuse("doc.name is required")
	case !isTrue(members["roles"]):
		return refuse("doc.roles must exist")
	case !jsontext.IsArray(members["roles"]):
		return refuse("doc.roles must be an array")
	case !areTexts:
		return refuse("doc.roles can only contain strings")
	case name == "", w.ID != IDPrefix+name:
		return refuse("Doc ID must be of the form org.couchdb.user:name")
	}
	return nil
}

// checkNames refuses roles that By may not give, and a name that no user can have.
func (w *Write) checkNames(members map[string]json.RawMessage) error {
	name, _ := text(members, "name")
	roles, _ := jsontext.Strings(members["roles"])
	switch {
	case !w.Admin && w.Before == nil && len(roles) > 0:
		return refuse("Only _admin may set roles")
	case !w.Admin && !slices.Equal(slices.Sorted(slices.Values(roles)), rolesOf(w.Before)):
		return refuse("Only _admin may edit roles")
	case slices.ContainsFunc(roles, isSystemRole):
		return refuse("No system roles (starting with underscore) in users db.")
	case name[0] == '_':
		return refuse("Username may not start with underscore.")
	case strings.Contains(name, ":"):
		return refuse("Character `:` is not allowed in usernames.")
	}
	return nil
}

// isTrue reports whether JavaScript takes a member for true.
func isTrue(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`:
		return false
	}
	if n, err := strconv.ParseFloat(string(raw), 64); err == nil {
		return n != 0
	}
	return true
}

// isSystemRole reports whether a document cannot grant a role.
func isSystemRole(role string) bool { return strings.HasPrefix(role, "_") && role != auth.MetricsRole }

// rolesOf returns the roles of a document, in their order, or none if body is nil.
func rolesOf(body []byte) []string {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	roles, _ := jsontext.Strings(members["roles"])
	slices.Sort(roles)
	return roles
}

// checkHash applies CouchDB's rules about a hashed password.
func checkHash(members map[string]json.RawMessage) error {
	raw := members["password_scheme"]
	scheme, _ := text(members, "password_scheme")
	var iterations *float64
	_, isText := text(members, "derived_key")
	switch {
	case isTrue(members["password_sha"]) && !isTrue(members["salt"]):
		return refuse("Users with password_sha must have a salt.See /_utils/script/couch.js for example code.")
	case isTrue(raw) && !slices.Contains([]auth.Scheme{auth.Simple, auth.PBKDF2, auth.SimplePBKDF2}, auth.Scheme(scheme)):
		return refuse("Password scheme `%.100s` not supported.", cmp.Or(scheme, string(raw)))
	case scheme != string(auth.PBKDF2):
		return nil
	case json.Unmarshal(members["iterations"], &iterations) != nil || iterations == nil:
		return refuse("iterations must be a number.")
	case !isText:
		return refuse("derived_key must be a string.")
	}
	return nil
}

// checkLogin refuses a hashed password that no password can match.
func checkLogin(members map[string]json.RawMessage) error {
	if !isTrue(members["password_scheme"]) && !isTrue(members["password_sha"]) {
		return nil // a user without a password
	}
	if _, ok := auth.ParseUser(members); !ok {
		return refuse("the hashed password is malformed: it must have pbkdf2_prf, salt, iterations and derived_key, or password_sha and salt")
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

// hashedBody returns a body with a hash in place of the password. Other members are kept.
func hashedBody(body []byte, hash auth.Hash) (docjson.Body, error) {
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
			return docjson.Body{}, err
		}
	}
	for m := range jsontext.Members(body) {
		if slices.Contains(auth.PasswordMembers, string(m.Key)) {
			continue
		}
		if err := add(string(m.Key), body[m.Value:m.End]); err != nil {
			return docjson.Body{}, err
		}
	}
	out.WriteByte('}')
	return docjson.Parse(out.Bytes())
}
