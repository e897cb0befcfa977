package web

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"settee/pkg/config"
)

// The defaults of [cors] headers, methods and exposed_headers, which are CouchDB's.
var (
	corsHeaders = []string{
		"accept", "accept-language", "authorization", "content-length", "content-range", "content-type", "destination",
		"expires", "if-match", "last-modified", "origin", "pragma", "x-couch-full-commit", "x-couch-id", "x-couch-persist",
		"x-couchdb-www-authenticate", "x-http-method-override", "x-requested-with", "x-couchdb-vhost-path",
	}
	corsMethods = []string{
		"COPY", http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut,
	}
	corsExposed = []string{
		"accept-ranges", "etag", "server", "x-couch-request-id", "x-couch-update-newrev", "x-couchdb-body-time",
	}
)

// crossOrigin applies the rules for pages of other origins, and reports whether it has answered the request. It answers
// preflight requests, and refuses requests that change something for a page that may not.
func (s *Server) crossOrigin(w http.ResponseWriter, r *http.Request) bool {
	accepted := false
	if cfg := s.Settings.Current(); config.EnableCORS.Get(cfg) {
		w.Header().Add("Vary", "Origin")
		page := pageOf(cfg, r.Header.Get("Origin"))
		if accepted = page.accepted; accepted {
			if r.Method == http.MethodOptions && preflight(cfg, page, w.Header(), r) {
				w.WriteHeader(http.StatusNoContent)
				return true
			}
			page.allow(w.Header(), r)
			exposed := config.CORSExposedHeaders.Get(cfg)
			if exposed == nil {
				exposed = corsExposed
			}
			w.Header().Set("Access-Control-Expose-Headers", "content-type, cache-control, "+strings.Join(exposed, ", "))
		}
		accepted = accepted && deliberate(cfg, page, r)
	}
	// Without CORS a browser still sends the requests of any page. It only hides the answer from the page.
	if !accepted && s.origins.Check(r) != nil {
		respondError(w, r, NewFailure(http.StatusForbidden, "forbidden",
			"the request comes from a page of another origin, which may not use this node"))
		return true
	}
	return false
}

// pageRights is what [cors] says about the pages of an origin.
type pageRights struct {
	accepted    bool // they may use this node
	credentials bool // with the browser's credentials
}

// pageOf returns what pages of an origin may do. The empty origin is none. Pages that only * accepts have no credentials:
// every page of the web could act as its visitor.
func pageOf(cfg *config.Config, origin string) pageRights {
	origins := config.CORSOrigins.Get(cfg)
	listed := origin != "" && slices.Contains(origins, strings.ToLower(origin))
	return pageRights{
		accepted:    listed || origin != "" && slices.Contains(origins, "*"),
		credentials: listed && config.CORSCredentials.Get(cfg),
	}
}

// deliberate reports whether [cors] allows a request of a page whose origin is accepted. The cookies and passwords of the
// browser are allowed only with credentials. Requests of forms are not allowed, nor those whose answers the page does
// not read.
func deliberate(cfg *config.Config, page pageRights, r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode") // old browsers do not send it
	if mode != "" && mode != "cors" {
		return false
	}
	if r.Header.Get(methodOverride) != "" && !slices.Contains(allowedMethods(cfg), r.Method) {
		return false // the preflight request was about a POST
	}
	return page.credentials || r.Header.Get("Cookie") == "" && (r.Header.Get("Authorization") == "" || !unasked(r))
}

// unasked reports whether a browser makes a request, which may change something, without a preflight request. Then its
// password is one that the browser remembers: a page that sends a password of its own needs a preflight request.
func unasked(r *http.Request) bool {
	switch MediaType(r.Header) {
	case "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data":
		return r.Method == http.MethodPost
	}
	return false
}

// allowedMethods returns the methods that pages of other origins may use.
func allowedMethods(cfg *config.Config) []string {
	if methods := config.CORSMethods.Get(cfg); methods != nil {
		return methods
	}
	return corsMethods
}

// allow sets the headers of an answer that a page may read.
func (p pageRights) allow(header http.Header, r *http.Request) {
	header.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	if p.credentials {
		header.Set("Access-Control-Allow-Credentials", "true")
	}
}

// preflight sets the answer to a preflight request, and reports whether the page may make the request.
func preflight(cfg *config.Config, page pageRights, header http.Header, r *http.Request) bool {
	methods, headers := allowedMethods(cfg), config.CORSHeaders.Get(cfg)
	if headers == nil {
		headers = corsHeaders
	}
	if !slices.Contains(methods, r.Header.Get("Access-Control-Request-Method")) {
		return false
	}
	asked := r.Header.Get("Access-Control-Request-Headers")
	for name := range strings.SplitSeq(asked, ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" && !slices.Contains(headers, name) {
			return false
		}
	}
	page.allow(header, r)
	header.Set("Access-Control-Max-Age", strconv.FormatInt(int64(config.CORSMaxAge.Get(cfg).Seconds()), 10))
	header.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
	if asked != "" {
		header.Set("Access-Control-Allow-Headers", asked)
	}
	return true
}
