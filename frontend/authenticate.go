package frontend

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"settee/frontend/accounts"
	"settee/frontend/internal/auth"
	"settee/pkg/config"
)

// identity is who makes a request, and how that is known.
type identity struct {
	auth.User
	// handler is one of [chttpd] authentication_handlers; empty for nobody.
	handler string
}

type identityKey struct{}

// whoIs returns who makes a request.
func whoIs(r *http.Request) identity {
	who, _ := r.Context().Value(identityKey{}).(identity)
	return who
}

// userName returns the name of who makes a request, nil for nobody.
func (i identity) userName() *string {
	if i.IsNobody() {
		return nil
	}
	return &i.Name
}

// authenticate finds out who makes a request: as in CouchDB by the first of the configured ways
// that says something. It may renew the cookie of a session.
func (h *Handler) authenticate(w http.ResponseWriter, r *http.Request) (identity, error) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	ways := map[string]func() (auth.User, error){
		"cookie":  func() (auth.User, error) { return h.bySession(ctx, w, r) },
		"default": func() (auth.User, error) { return h.byPassword(ctx, r) },
		"jwt":     func() (auth.User, error) { return h.byToken(r) },
	}
	for _, name := range config.AuthenticationHandlers.Get(h.config.Current()) {
		user, err := ways[name]()
		if err != nil {
			return identity{}, err
		}
		if !user.IsNobody() {
			return identity{user, name}, nil
		}
	}
	return identity{}, nil
}

func (h *Handler) bySession(ctx context.Context, w http.ResponseWriter, r *http.Request) (auth.User, error) {
	cookie, _ := r.Cookie(auth.CookieName)
	if cookie == nil || cookie.Value == "" {
		return auth.User{}, nil
	}
	user, renewed, err := h.accounts.Session(ctx, cookie.Value)
	if errors.Is(err, auth.ErrCookie) {
		return user, badRequest("Malformed AuthSession cookie. Please clear your cookies.")
	}
	if err != nil {
		return user, err
	}
	if renewed != "" {
		h.setCookie(w, r, renewed)
	}
	return user, nil
}

func (h *Handler) byPassword(ctx context.Context, r *http.Request) (auth.User, error) {
	name, password, given, err := auth.ParseBasic(r.Header.Get("Authorization"))
	switch {
	case err != nil:
		return auth.User{}, badRequest(err.Error())
	case !given:
		return auth.User{}, nil
	}
	user, err := h.accounts.Login(ctx, name, password, r.RemoteAddr)
	return user, loginFailure(err)
}

// loginFailure returns what a client is told of an error of accounts'; other errors as they are.
func loginFailure(err error) error {
	switch {
	case errors.Is(err, accounts.ErrWrong):
		return unauthorized("Name or password is incorrect.")
	case errors.Is(err, accounts.ErrLocked):
		return forbidden("Account is temporarily locked due to multiple authentication failures")
	case errors.Is(err, accounts.ErrConflicts):
		return unauthorized("User document conflicts must be resolved before the document is used for authentication purposes.")
	case errors.Is(err, accounts.ErrTooMany):
		return &failure{http.StatusTooManyRequests, "too_many_requests", "too many attempts to log in come from this address: try again later"}
	case errors.Is(err, accounts.ErrBusy):
		return unavailable("too many passwords are being checked: try again later")
	}
	return err
}

func (h *Handler) byToken(r *http.Request) (auth.User, error) {
	token, given := auth.ParseBearer(r.Header.Get("Authorization"))
	if !given {
		return auth.User{}, nil
	}
	user, err := h.accounts.Token(token)
	var bad *auth.TokenError
	switch {
	case errors.As(err, &bad) && bad.Expired:
		return user, unauthorized(bad.Reason)
	case errors.As(err, &bad):
		return user, badRequest(bad.Reason)
	}
	return user, err
}

func unauthorized(reason string) *failure {
	return &failure{http.StatusUnauthorized, "unauthorized", reason}
}

func forbidden(reason string) *failure {
	return &failure{http.StatusForbidden, "forbidden", reason}
}

// known is a request of which it is known who makes it, and that it may be made.
func (h *Handler) known(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	who, err := h.authenticate(w, r)
	if err != nil {
		return r, err
	}
	if out, ok := w.(*answer); ok {
		out.user = who.Name
	}
	r = r.WithContext(context.WithValue(r.Context(), identityKey{}, who))
	if err := h.requireUser(r, who); err != nil {
		return r, err
	}
	return h.authorize(r, who)
}

// requireUser refuses nobody where the configuration says so: but for logging in.
func (h *Handler) requireUser(r *http.Request, who identity) error {
	cfg := h.config.Current()
	all, exceptUp := config.RequireValidUser.Get(cfg), config.RequireValidUserExceptUp.Get(cfg)
	required := all || exceptUp
	switch {
	case !who.IsNobody(), r.URL.Path == "/_session" && r.Method == http.MethodPost:
		return nil
	case r.URL.Path == "/_up":
		required = all && !exceptUp
	}
	if required {
		return unauthorized("Authentication required.")
	}
	return nil
}

// challenge tells browsers to ask for a password, where nobody may do anything without one.
func (h *Handler) challenge(w http.ResponseWriter, f *failure) {
	if f.status == http.StatusUnauthorized && config.RequireValidUser.Get(h.config.Current()) {
		w.Header().Set("WWW-Authenticate", `Basic realm="server"`)
	}
}

// isSecure reports whether a client's connection is encrypted, up to a proxy at least.
func isSecure(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Ssl") == "on" || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}
