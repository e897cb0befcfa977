package accounts

import (
	"context"
	"encoding/json"
	"errors"
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
	if name == "" || name[0] == '_' || len(name) > docstore.MaxIDSize-len(IDPrefix) {
		return account{}, false, nil
	}
	var db *docstore.Database
	doc, err := kv.TransactValue(ctx, a.store, func(tx kv.Transaction) (_ *docstore.Document, err error) {
		if db, err = a.docs.DatabaseIn(tx.Snapshot(), Database); err != nil {
			return nil, err
		}
		return db.GetIn(tx.Snapshot(), IDPrefix+name, docstore.GetOptions{Conflicts: true})
	})
	switch {
	case errors.Is(err, docstore.ErrNotFound), errors.Is(err, docstore.ErrDatabaseNotFound), errors.Is(err, docstore.ErrDocumentID):
		return account{}, false, nil
	case errors.Is(err, docstore.ErrSealed):
		// The user cannot log in. The client does not learn that the account exists.
		a.log.Error().Err(err).Msg("the document of a user cannot be decrypted: its user cannot log in until it is replaced")
		return account{}, false, nil
	case err != nil:
		return account{}, false, err
	}
	found, known := parseUser(name, doc.Body, config.MaxPasswordIterations.Get(a.config.Current()))
	found.conflicts = len(doc.Conflicts) > 0
	found.replace = replaceInDocument(db, doc.ID, doc.Rev)
	return found, known, nil
}

// parseUser parses the document of a user. It returns false if the user cannot log in with it.
func parseUser(name string, body []byte, maxIterations int) (account, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return account{}, false
	}
	var kind, stated string
	var roles []string
	if json.Unmarshal(members["type"], &kind) != nil || kind != "user" ||
		json.Unmarshal(members["name"], &stated) != nil || stated != name ||
		json.Unmarshal(members["roles"], &roles) != nil {
		return account{}, false
	}
	hash, ok := auth.ParseUser(members)
	if !ok || hash.Iterations > maxIterations {
		return account{}, false
	}
	user := auth.User{Name: name}
	for _, role := range roles {
		if !isSystemRole(role) { // a document cannot grant these
			user.Roles = append(user.Roles, role)
		}
	}
	found := account{User: user, hash: hash}
	if second, given := auth.ParseOneTime(members); given {
		found.second = &second
	}
	return found, true
}
