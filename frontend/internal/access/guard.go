package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/frontend/internal/web"
	"settee/pkg/audit"
	"settee/pkg/config"
	"settee/pkg/docstore"
)

// Guard decides which requests are admitted: it authenticates their users, and knows what they may do.
type Guard struct {
	Documents *docstore.Store
	Accounts  *accounts.Accounts
	Settings  web.Settings
}

// Admit returns a request with its user ([UserOf]) and the user's rights ([RightsOf]), or why it is refused.
func (g *Guard) Admit(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	user, err := g.authenticate(w, r)
	if err != nil {
		return nil, err
	}
	web.SetUser(w, user.Name)
	if err := g.requireUser(r, user); err != nil {
		return nil, err
	}
	a, err := g.authorize(r, user)
	if err != nil {
		return nil, err
	}
	ctx := audit.By(context.WithValue(r.Context(), identityKey{}, user), user.Name)
	return r.WithContext(context.WithValue(ctx, rightsKey{}, a)), nil
}

// requireUser refuses anonymous requests where the configuration says so, except for logging in and the pages that do it.
func (g *Guard) requireUser(r *http.Request, user Identity) error {
	cfg := g.Settings.Current()
	all, exceptUp := config.RequireValidUser.Get(cfg), config.RequireValidUserExceptUp.Get(cfg)
	required := all || exceptUp
	switch {
	case !user.IsNobody(), r.URL.Path == "/_session" && r.Method == http.MethodPost, isPage(r):
		return nil
	case r.URL.Path == "/_up":
		required = all && !exceptUp
	}
	if required {
		return web.Unauthorized("Authentication required.")
	}
	return nil
}

// isPage reports whether a request is for a file of the dashboard. The files have no data.
func isPage(r *http.Request) bool {
	return r.URL.Path == "/_utils" || strings.HasPrefix(r.URL.Path, "/_utils/")
}

// authorize returns the rights of the user of a request, or why the request is refused.
func (g *Guard) authorize(r *http.Request, user Identity) (*Rights, error) {
	segments := web.PathSegments(r.URL)
	needed := audienceOf(r.Method, segments, user.User)
	a := &Rights{user: user, address: r.RemoteAddr, accounts: g.Accounts, admin: user.IsAdmin()}
	switch {
	case a.admin, needed == anybody, needed == users && !user.IsNobody():
		return a, nil
	case needed == users:
		return nil, web.Unauthorized("You are not an authenticated user")
	case needed == monitors && user.HasRole(auth.MetricsRole):
		return a, nil
	case needed == monitors:
		return nil, web.Unauthorized("You are not a server admin or read-only metrics user")
	case needed == serverAdmins:
		return nil, web.Unauthorized("You are not a server admin.")
	}
	if err := g.enter(r, a, segments[0]); err != nil {
		return nil, err
	}
	return a, a.permits(needed)
}

// enter opens a database, and reads the rights that its security object gives the user.
func (g *Guard) enter(r *http.Request, a *Rights, name string) error {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	db, object, err := g.Documents.DatabaseSecurity(ctx, name)
	if err != nil {
		return web.StoreFailure(err)
	}
	security, err := auth.ParseSecurity(object)
	if err != nil {
		// Another version may have stored an object that this one refuses. Only server administrators may enter.
		security = auth.Security{Members: auth.Who{Roles: []string{auth.AdminRole}}}
	}
	a.db, a.admin, a.member = db, security.IsAdmin(a.user.User), security.IsMember(a.user.User)
	return nil
}

// permits returns why a request in a database is refused.
func (a *Rights) permits(needed audience) error {
	switch {
	case a.admin, needed == owner, needed == members && a.member:
		return nil
	case a.member:
		return a.notAdmin()
	case a.user.IsNobody():
		return web.Unauthorized("You are not authorized to access this db.")
	}
	return web.Forbidden("You are not allowed to access this db.")
}

func (a *Rights) notAdmin() error {
	const reason = "You are not a db or server admin."
	if a.user.IsNobody() {
		return web.Unauthorized(reason)
	}
	return web.Forbidden(reason)
}

// DatabaseAction is an action in a database that exists.
type DatabaseAction func(http.ResponseWriter, *http.Request, *docstore.Database) error

// InDatabase opens the database of a path ({db}) for an action. The action bounds the time of its own questions to the
// store (web.StoreContext): a request that streams may take long.
func (g *Guard) InDatabase(act DatabaseAction) web.Action {
	return func(w http.ResponseWriter, r *http.Request) error {
		db, err := g.databaseOf(r)
		if errors.Is(err, docstore.ErrDatabaseNotFound) {
			return web.UnknownPath(w, r)
		}
		if err != nil {
			return web.StoreFailure(err)
		}
		return act(w, r, db)
	}
}

// databaseOf returns the database of a path ({db}).
func (g *Guard) databaseOf(r *http.Request) (*docstore.Database, error) {
	if db := RightsOf(r).db; db != nil {
		return db, nil
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	return g.Documents.Database(ctx, web.PathValue(r, "db"))
}

// Fingerprint is a digest of all that decides what a user may do in a database: the user's account, and the security
// object of the database.
type Fingerprint [sha256.Size]byte

// Fingerprint returns the digest for the user of a request, as it is now.
func (g *Guard) Fingerprint(r *http.Request, db *docstore.Database) (Fingerprint, error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	user := UserOf(r)
	var object []byte
	var account accounts.Fingerprint
	var err error
	if !user.IsAdmin() {
		if object, err = db.Security(ctx); err != nil {
			return Fingerprint{}, err
		}
	}
	if user.handler == "cookie" || user.handler == "default" { // the user of a token has no other account
		if account, err = g.Accounts.Fingerprint(ctx, user.Name); err != nil {
			return Fingerprint{}, err
		}
	}
	return sha256.Sum256(append(account[:], object...)), nil
}
