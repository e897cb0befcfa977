package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"settee/frontend/internal/auth"
	"settee/pkg/config"
	"settee/pkg/docstore"
	"settee/pkg/kv"
)

// Database is the database with the documents of users.
const Database = "_users"

// IDPrefix is the prefix of the ids of users' documents, before the user's name.
const IDPrefix = "org.couchdb.user:"

// IsDatabase reports whether a database of that name has documents of users: [Database], and any
// name that ends in a slash and Database, such as x/_users. These documents are sealed, see the
// package comment.
func IsDatabase(name string) bool {
	return name == Database || strings.HasSuffix(name, "/"+Database)
}

// user returns the account of a document of _users.
func (a *Accounts) user(ctx context.Context, name string) (account, bool, error) {
	db, doc, err := a.document(ctx, name)
	if err != nil || doc == nil {
		return account{}, false, err
	}
	found, known := parseUser(name, doc.Body, config.MaxPasswordIterations.Get(a.config.Current()))
	found.conflicts = len(doc.Conflicts) > 0
	found.replace = replaceInDocument(db, doc.ID, doc.Rev)
	return found, known, nil
}

// WithDocumentRoles returns the user with all roles. A server administrator has the roles of a document of _users
// of the same name, too. Other users have all their roles already.
func (a *Accounts) WithDocumentRoles(ctx context.Context, user auth.User) (auth.User, error) {
	if _, isAdmin := config.Admins.Value(a.config.Current(), user.Name); !isAdmin || !user.IsAdmin() {
		return user, nil
	}
	_, doc, err := a.document(ctx, user.Name)
	if err != nil || doc == nil {
		return user, err
	}
	if same, ok := userOf(user.Name, membersOf(doc.Body)); ok {
		user.Roles = slices.Concat(user.Roles, same.Roles)
	}
	return user, nil
}

// document returns the document of a user, nil if there is none or if it cannot be decrypted.
func (a *Accounts) document(ctx context.Context, name string) (db *docstore.Database, doc *docstore.Document, err error) {
	if name == "" || name[0] == '_' || len(name) > docstore.MaxIDSize-len(IDPrefix) {
		return nil, nil, nil
	}
	doc, err = kv.TransactValue(ctx, a.store, func(tx kv.Transaction) (_ *docstore.Document, err error) {
		if db, err = a.docs.DatabaseIn(tx.Snapshot(), Database); err != nil {
			return nil, err
		}
		return db.GetIn(tx.Snapshot(), IDPrefix+name, docstore.GetOptions{Conflicts: true})
	})
	switch {
	case errors.Is(err, docstore.ErrNotFound), errors.Is(err, docstore.ErrDatabaseNotFound), errors.Is(err, docstore.ErrDocumentID):
		return nil, nil, nil
	case errors.Is(err, docstore.ErrSealed):
		// The user cannot log in. The client does not learn that the account exists.
		a.log.Error().Err(err).Msg("the document of a user cannot be decrypted: it has no effect until it is replaced")
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	return db, doc, nil
}

// parseUser parses the document of a user. It returns false if the user cannot log in with it.
func parseUser(name string, body []byte, maxIterations int) (account, bool) {
	members := membersOf(body)
	user, ok := userOf(name, members)
	if !ok {
		return account{}, false
	}
	hash, ok := auth.ParseUser(members)
	if !ok || hash.Iterations > maxIterations {
		return account{}, false
	}
	found := account{User: user, hash: hash}
	if second, given := auth.ParseOneTime(members); given {
		found.second = &second
	}
	return found, true
}

// membersOf returns the members of an object, none if it cannot be parsed.
func membersOf(body []byte) (members map[string]json.RawMessage) {
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	return members
}

// userOf returns the user that the members of a document of _users describe.
func userOf(name string, members map[string]json.RawMessage) (auth.User, bool) {
	var kind, stated string
	var roles []string
	if json.Unmarshal(members["type"], &kind) != nil || kind != "user" ||
		json.Unmarshal(members["name"], &stated) != nil || stated != name ||
		json.Unmarshal(members["roles"], &roles) != nil {
		return auth.User{}, false
	}
	user := auth.User{Name: name}
	for _, role := range roles {
		if !isSystemRole(role) { // a document cannot grant these
			user.Roles = append(user.Roles, role)
		}
	}
	return user, true
}
