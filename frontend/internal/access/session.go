package access

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"settee/frontend/internal/auth"
	"settee/frontend/internal/web"
	"settee/pkg/config"
)

// maxLogin is the size of the largest body of a login, in bytes.
const maxLogin = 64 << 10

// shownUser is a user as _session shows it.
type shownUser struct {
	Name  *string  `json:"name"`
	Roles []string `json:"roles"`
}

func shownRoles(u auth.User) []string { return append([]string{}, u.Roles...) }

// GetSession answers with the user of the request.
func (g *Guard) GetSession(w http.ResponseWriter, r *http.Request) error {
	user := UserOf(r)
	if user.IsNobody() && web.NewQuery(r).Text("basic") == "true" {
		return web.Unauthorized("Please login.")
	}
	type info struct {
		Handlers      []string `json:"authentication_handlers"`
		Authenticated string   `json:"authenticated,omitempty"`
	}
	return web.Respond(w, r, http.StatusOK, struct {
		OK   bool      `json:"ok"`
		User shownUser `json:"userCtx"`
		Info info      `json:"info"`
	}{true, shownUser{user.UserName(), shownRoles(user.User)}, info{config.AuthenticationHandlers.Get(g.Settings.Current()), user.handler}})
}

// PostSession logs a user in. Its answer has the cookie of a session.
func (g *Guard) PostSession(w http.ResponseWriter, r *http.Request) error {
	given, err := g.readLogin(w, r)
	if err != nil {
		return err
	}
	ctx, cancel := web.StoreContext(r)
	defer cancel()
	user, err := g.Accounts.LoginTwice(ctx, given.name, given.password, given.oneTime, r.RemoteAddr)
	if err != nil {
		g.clearCookie(w, r)
		return LoginFailure(err)
	}
	cookie, err := g.Accounts.SignSession(ctx, user.Name)
	if err != nil {
		return LoginFailure(err)
	}
	if user, err = g.Accounts.WithDocumentRoles(ctx, user); err != nil {
		return err
	}
	g.setCookie(w, r, cookie)
	return web.Respond(w, r, http.StatusOK, struct {
		OK    bool     `json:"ok"`
		Name  string   `json:"name"`
		Roles []string `json:"roles"`
	}{true, user.Name, shownRoles(user)})
}

// DeleteSession logs the user out.
func (g *Guard) DeleteSession(w http.ResponseWriter, r *http.Request) error {
	g.clearCookie(w, r)
	return web.RespondOK(w, r, http.StatusOK)
}

// givenLogin is what a user logs in with.
type givenLogin struct{ name, password, oneTime string }

// readLogin reads what a user logs in with: a form or JSON.
func (g *Guard) readLogin(w http.ResponseWriter, r *http.Request) (given givenLogin, err error) {
	parse := jsonLogin
	switch web.MediaType(r.Header) {
	case "application/x-www-form-urlencoded":
		parse = formLogin
	case "application/json":
	default:
		return givenLogin{}, web.BadContentType("Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'")
	}
	text, err := web.ReadBody(w, r, g.Settings.Current(), web.Limit{Bytes: maxLogin, Words: " (of logging in)"})
	if err != nil {
		return givenLogin{}, err
	}
	members, err := parse(text)
	if err != nil {
		return givenLogin{}, err
	}
	name, named := members["name"]
	other, aliased := members["username"]
	switch {
	case !named && !aliased:
		return givenLogin{}, web.BadRequest("request body must contain a username")
	case named && aliased && name != other:
		return givenLogin{}, web.BadRequest("request body contains different usernames")
	case aliased:
		name = other
	}
	return givenLogin{name, members["password"], members["token"]}, nil
}

// formLogin parses a login that is a form.
func formLogin(body []byte) (map[string]string, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, web.BadRequest("the form is malformed")
	}
	members := map[string]string{}
	for name := range form {
		members[name] = form.Get(name)
	}
	return members, nil
}

// jsonLogin parses a login that is JSON.
func jsonLogin(body []byte) (map[string]string, error) {
	object, err := web.ParseObject(body)
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
			return nil, web.BadRequest("`" + name + "` must be a string")
		}
		members[name] = *text
	}
	return members, nil
}

func (g *Guard) setCookie(w http.ResponseWriter, r *http.Request, value string) {
	cfg := g.Settings.Current()
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
	if web.IsSecure(r) {
		b.WriteString("; Secure")
	}
	w.Header().Set("Set-Cookie", b.String())
}

// clearCookie makes the client forget its session.
func (g *Guard) clearCookie(w http.ResponseWriter, r *http.Request) { g.setCookie(w, r, "") }
