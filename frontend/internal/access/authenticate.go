package access

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/frontend/internal/networks"
	"settee/frontend/internal/web"
	"settee/pkg/config"
)

// Identity is the user of a request, and the way in which the user was authenticated.
type Identity struct {
	auth.User
	// handler is one of [chttpd] authentication_handlers. It is empty if the request is anonymous.
	handler string
}

type identityKey struct{}

// UserOf returns the user of a request.
func UserOf(r *http.Request) Identity {
	user, _ := r.Context().Value(identityKey{}).(Identity)
	return user
}

// TurnOf returns whose turn a request takes where users take turns: its user, or the network of a client without one.
func TurnOf(r *http.Request) string {
	if user := UserOf(r); !user.IsNobody() {
		return "user " + user.Name
	}
	return "network " + networks.Of(r.RemoteAddr)
}

// UserName returns the name of the user, nil if the request is anonymous.
func (i Identity) UserName() *string {
	if i.IsNobody() {
		return nil
	}
	return &i.Name
}

// authenticate returns the user of a request. As in CouchDB the first of the configured handlers that finds a user
// decides. It may renew the cookie of a session.
func (g *Guard) authenticate(w http.ResponseWriter, r *http.Request) (Identity, error) {
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	ways := map[string]func() (auth.User, error){
		"cookie":  func() (auth.User, error) { return g.bySession(ctx, w, r) },
		"default": func() (auth.User, error) { return g.byPassword(ctx, r) },
		"proxy":   func() (auth.User, error) { return g.byProxy(r), nil },
		"jwt":     func() (auth.User, error) { return g.byToken(r) },
	}
	for _, name := range config.AuthenticationHandlers.Get(g.Settings.Current()) {
		user, err := ways[name]()
		if err != nil {
			return Identity{}, err
		}
		if !user.IsNobody() {
			if (name == "cookie" || name == "default") && actsByRoles(web.PathSegments(r.URL)) {
				user, err = g.Accounts.WithDocumentRoles(ctx, user)
			}
			return Identity{user, name}, err
		}
	}
	return Identity{}, nil
}

func (g *Guard) bySession(ctx context.Context, w http.ResponseWriter, r *http.Request) (auth.User, error) {
	cookie, _ := r.Cookie(auth.CookieName)
	if cookie == nil || cookie.Value == "" {
		return auth.User{}, nil
	}
	user, renewed, err := g.Accounts.Session(ctx, cookie.Value)
	if errors.Is(err, auth.ErrCookie) {
		return user, web.BadRequest("Malformed AuthSession cookie. Please clear your cookies.")
	}
	if err != nil {
		return user, err
	}
	if renewed != "" {
		g.setCookie(w, r, renewed)
	}
	return user, nil
}

func (g *Guard) byPassword(ctx context.Context, r *http.Request) (auth.User, error) {
	name, password, given, err := auth.ParseBasic(r.Header.Get("Authorization"))
	switch {
	case err != nil:
		return auth.User{}, web.BadRequest(err.Error())
	case !given:
		return auth.User{}, nil
	}
	user, err := g.Accounts.Login(ctx, name, password, r.RemoteAddr)
	return user, LoginFailure(err)
}

// LoginFailure returns the failure for an error of package accounts. It returns other errors, and nil, as they are.
func LoginFailure(err error) error {
	switch {
	case errors.Is(err, accounts.ErrWrong):
		return web.Unauthorized("Name or password is incorrect.")
	case errors.Is(err, accounts.ErrLocked):
		return web.Forbidden("Account is temporarily locked due to multiple authentication failures")
	case errors.Is(err, accounts.ErrConflicts):
		return web.Unauthorized("User document conflicts must be resolved before the document is used for authentication purposes.")
	case errors.Is(err, accounts.ErrTooMany):
		return web.NewFailure(http.StatusTooManyRequests, "too_many_requests", "too many attempts to log in come from this address: try again later")
	case errors.Is(err, accounts.ErrBusy):
		return web.Unavailable("too many passwords are being checked: try again later")
	}
	return err
}

// byProxy returns the user that a proxy has authenticated: its headers have the name and the roles, and a proof that it
// knows the secret of this node.
func (g *Guard) byProxy(r *http.Request) auth.User {
	cfg := g.Settings.Current()
	name := r.Header.Get(config.ProxyUserName.Get(cfg))
	if name == "" {
		return auth.User{}
	}
	if config.ProxyUseSecret.Get(cfg) && !auth.CheckProxyToken(
		r.Header.Get(config.ProxyToken.Get(cfg)), name, config.CookieSecret.Get(cfg), config.HashAlgorithms.Get(cfg)) {
		return auth.User{}
	}
	user := auth.User{Name: name}
	for role := range strings.SplitSeq(r.Header.Get(config.ProxyRoles.Get(cfg)), ",") {
		if role = strings.TrimSpace(role); role != "" {
			user.Roles = append(user.Roles, role)
		}
	}
	return user
}

func (g *Guard) byToken(r *http.Request) (auth.User, error) {
	token, given := auth.ParseBearer(r.Header.Get("Authorization"))
	if !given {
		return auth.User{}, nil
	}
	user, err := g.Accounts.Token(token)
	var bad *auth.TokenError
	switch {
	case errors.As(err, &bad) && bad.Expired:
		return user, web.Unauthorized(bad.Reason)
	case errors.As(err, &bad):
		return user, web.BadRequest(bad.Reason)
	}
	return user, err
}
