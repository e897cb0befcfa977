package frontend

import (
	"net/http"
	"net/url"

	"github.com/gorilla/mux"

	"settee/frontend/internal/web"
)

// Templates returns the templates of all paths.
func (h *Handler) Templates() (templates []string, err error) {
	err = h.router.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		template, err := route.GetPathTemplate()
		templates = append(templates, template)
		return err
	})
	return templates, err
}

// TemplateOf returns the template of a request's path, empty if there is none.
func (h *Handler) TemplateOf(method, target string) (string, error) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return "", err
	}
	var match mux.RouteMatch
	if !h.router.Match(&http.Request{Method: method, URL: web.Canonical(u, true)}, &match) || match.Route == nil {
		return "", nil
	}
	return match.Route.GetPathTemplate()
}

// Parts returns the database and the document that the router finds in a request's path, and the segments that the
// rules see. ok is false if it is not the path of a database.
func (h *Handler) Parts(method, target string) (db, doc string, segments []string, ok bool) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return "", "", nil, false
	}
	u = web.Canonical(u, true)
	var match mux.RouteMatch
	if !h.router.Match(&http.Request{Method: method, URL: u}, &match) || match.Vars["db"] == "" {
		return "", "", nil, false
	}
	r := mux.SetURLVars(&http.Request{URL: u}, match.Vars)
	return web.PathValue(r, "db"), web.PathValue(r, "doc"), web.PathSegments(u), true
}

// Usage returns how many connections are in which state.
func (h *Handler) Usage() web.Usage { return h.web.Connections.Usage() }

// MaxEnding is the number of requests that may be ending at a time.
const MaxEnding = web.MaxEnding
