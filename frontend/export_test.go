package frontend

import (
	"net/http"
	"net/url"

	"github.com/gorilla/mux"
)

// Templates returns the paths that there are.
func (h *Handler) Templates() (templates []string, err error) {
	err = h.router.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		template, err := route.GetPathTemplate()
		templates = append(templates, template)
		return err
	})
	return templates, err
}

// TemplateOf returns which of them a request is for, empty if none.
func (h *Handler) TemplateOf(method, target string) (string, error) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return "", err
	}
	var match mux.RouteMatch
	if !h.router.Match(&http.Request{Method: method, URL: canonical(u)}, &match) || match.Route == nil {
		return "", nil
	}
	return match.Route.GetPathTemplate()
}

// Parts returns what a request's path is for the router, and its segments for the rules; ok is
// false if it is no path of a database.
func (h *Handler) Parts(method, target string) (db, doc string, segments []string, ok bool) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return "", "", nil, false
	}
	u = canonical(u)
	var match mux.RouteMatch
	if !h.router.Match(&http.Request{Method: method, URL: u}, &match) || match.Vars["db"] == "" {
		return "", "", nil, false
	}
	r := mux.SetURLVars(&http.Request{URL: u}, match.Vars)
	return pathValue(r, "db"), pathValue(r, "doc"), pathSegments(u), true
}

// Receiving returns the addresses of the clients whose bodies are waited for, the longest first.
func (h *Handler) Receiving() (clients []string) {
	h.connections.mu.Lock()
	defer h.connections.mu.Unlock()
	for at := h.connections.receiving.Front(); at != nil; at = at.Next() {
		clients = append(clients, at.Value.(*connection).RemoteAddr().String())
	}
	return clients
}

// Idle returns the addresses of the clients that have no request.
func (h *Handler) Idle() (clients []string) {
	h.connections.mu.Lock()
	defer h.connections.mu.Unlock()
	for at := h.connections.waiting.Front(); at != nil; at = at.Next() {
		clients = append(clients, at.Value.(*connection).RemoteAddr().String())
	}
	return clients
}

// Waits returns how many requests wait for something to happen.
func (h *Handler) Waits() (n int) {
	h.connections.mu.Lock()
	defer h.connections.mu.Unlock()
	for _, conn := range h.connections.open {
		n += len(conn.waits)
	}
	return n
}

// Requests returns how many requests are being answered.
func (h *Handler) Requests() int {
	h.connections.mu.Lock()
	defer h.connections.mu.Unlock()
	return h.connections.requests
}

// MaxEnding is how many requests that were told to end may still be at it.
const MaxEnding = maxEnding
