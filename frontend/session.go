package frontend

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"settee/frontend/internal/auth"
	"settee/pkg/config"
)

// maxLogin is how many bytes the body of a login may have.
const maxLogin = 64 << 10

// shownUser is a user as _session shows it.
type shownUser struct {
	Name  *string  `json:"name"`
	Roles []string `json:"roles"`
}

func shownRoles(u auth.User) []string { return append([]string{}, u.Roles...) }

// getSession answers who makes the request.
func (h *Handler) getSession(w http.ResponseWriter, r *http.Request) error {
	who := whoIs(r)
	if who.IsNobody() && newQuery(r).text("basic") == "true" {
		return unauthorized("Please login.")
	}
	type info struct {
		Handlers      []string `json:"authentication_handlers"`
		Authenticated string   `json:"authenticated,omitempty"`
	}
	return respond(w, r, http.StatusOK, struct {
		OK   bool      `json:"ok"`
		User shownUser `json:"userCtx"`
		Info info      `json:"info"`
	}{true, shownUser{who.userName(), shownRoles(who.User)}, info{config.AuthenticationHandlers.Get(h.config.Current()), who.handler}})
}

// postSession logs in: its answer has the cookie of a session.
func (h *Handler) postSession(w http.ResponseWriter, r *http.Request) error {
	given, err := h.readLogin(w, r)
	if err != nil {
		return err
	}
	ctx, cancel := storeContext(r)
	defer cancel()
	user, err := h.accounts.LoginTwice(ctx, given.name, given.password, given.oneTime, r.RemoteAddr)
	if err != nil {
		h.clearCookie(w, r)
		return loginFailure(err)
	}
	cookie, err := h.accounts.SignSession(ctx, user.Name)
	if err != nil {
		return loginFailure(err)
	}
	h.setCookie(w, r, cookie)
	return respond(w, r, http.StatusOK, struct {
		OK    bool     `json:"ok"`
		Name  string   `json:"name"`
		Roles []string `json:"roles"`
	}{true, user.Name, shownRoles(user)})
}

// deleteSession logs out.
func (h *Handler) deleteSession(w http.ResponseWriter, r *http.Request) error {
	h.clearCookie(w, r)
	return respond(w, r, http.StatusOK, okay{true})
}

// givenLogin is what somebody logs in with.
type givenLogin struct{ name, password, oneTime string }

// readLogin reads what somebody logs in with, which is a form or JSON.
func (h *Handler) readLogin(w http.ResponseWriter, r *http.Request) (given givenLogin, err error) {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	isForm := strings.EqualFold(strings.TrimSpace(kind), "application/x-www-form-urlencoded")
	if !isForm && !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return givenLogin{}, badContentType("Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'")
	}
	body, err := h.readBodyUpTo(w, r, maxLogin, "of logging in")
	if err != nil {
		return givenLogin{}, err
	}
	read := jsonLogin
	if isForm {
		read = formLogin
	}
	members, err := read(body)
	if err != nil {
		return givenLogin{}, err
	}
	name, named := members["name"]
	other, aliased := members["username"]
	switch {
	case !named && !aliased:
		return givenLogin{}, badRequest("request body must contain a username")
	case named && aliased && name != other:
		return givenLogin{}, badRequest("request body contains different usernames")
	case aliased:
		name = other
	}
	return givenLogin{name, members["password"], members["token"]}, nil
}

// formLogin reads the members of a login that is a form.
func formLogin(body []byte) (map[string]string, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, badRequest("the form is malformed")
	}
	members := map[string]string{}
	for name := range form {
		members[name] = form.Get(name)
	}
	return members, nil
}

// jsonLogin reads the members of a login that is JSON.
func jsonLogin(body []byte) (map[string]string, error) {
	object, err := parseObject(body)
	if err != nil {
		return nil, err
	}
	members := map[string]string{}
	for _, name := range []string{"name", "username", "password", "token"} {
		raw, given := object[name]
		if !given {
			continue
		}
		var text *string
		if json.Unmarshal(raw, &text) != nil || text == nil {
			return nil, badRequest("`" + name + "` must be a string")
		}
		members[name] = *text
	}
	return members, nil
}

func (h *Handler) setCookie(w http.ResponseWriter, r *http.Request, value string) {
	cfg := h.config.Current()
	var b strings.Builder
	b.WriteString(auth.CookieName + "=" + value + "; Version=1")
	if config.PersistentCookies.Get(cfg) {
		timeout := config.SessionTimeout.Get(cfg)
		expires := time.Now().Add(timeout).UTC().Format("Mon, 02-Jan-2006 15:04:05 GMT")
		fmt.Fprintf(&b, "; Expires=%s; Max-Age=%d", expires, timeout/time.Second)
	}
	b.WriteString("; Path=/; HttpOnly")
	site := map[string]string{"none": "None", "lax": "Lax", "strict": "Strict"}[config.SameSite.Get(cfg)]
	b.WriteString("; SameSite=" + site)
	if isSecure(r) {
		b.WriteString("; Secure")
	}
	w.Header().Set("Set-Cookie", b.String())
}

// clearCookie has the client forget its session.
func (h *Handler) clearCookie(w http.ResponseWriter, r *http.Request) { h.setCookie(w, r, "") }
