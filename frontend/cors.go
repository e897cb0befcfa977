package frontend

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"settee/pkg/config"
)

// What [cors] allows where it does not say itself: CouchDB's lists.
var (
	corsHeaders = []string{
		"accept", "accept-language", "authorization", "content-length", "content-range", "content-type", "destination",
		"expires", "if-match", "last-modified", "origin", "pragma", "x-couch-full-commit", "x-couch-id", "x-couch-persist",
		"x-couchdb-www-authenticate", "x-http-method-override", "x-requested-with", "x-couchdb-vhost-path",
	}
	corsMethods = []string{
		methodCopy, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut,
	}
	corsExposed = []string{
		"accept-ranges", "etag", "server", "x-couch-request-id", "x-couch-update-newrev", "x-couchdb-body-time",
	}
)

// crossOrigin deals with what a browser sends on behalf of a page, and reports whether the
// request is answered with that: one that asks what a page may do, and one that changes
// something for a page of another origin which may not.
func (h *Handler) crossOrigin(w http.ResponseWriter, r *http.Request) bool {
	accepted := false
	if cfg := h.config.Current(); config.EnableCORS.Get(cfg) {
		w.Header().Add("Vary", "Origin")
		if accepted = acceptsOrigin(cfg, r.Header.Get("Origin")); accepted {
			if r.Method == http.MethodOptions && preflight(cfg, w.Header(), r) {
				w.WriteHeader(http.StatusNoContent)
				return true
			}
			allowOrigin(cfg, w.Header(), r)
			exposed := config.CORSExposedHeaders.Get(cfg)
			if exposed == nil {
				exposed = corsExposed
			}
			w.Header().Set("Access-Control-Expose-Headers", "content-type, cache-control, "+strings.Join(exposed, ", "))
		}
		accepted = accepted && deliberate(cfg, r)
	}
	// Without CORS browsers still send what any page asks of them, and only keep the answer.
	if !accepted && h.origins.Check(r) != nil {
		respondError(w, r, &failure{http.StatusForbidden, "forbidden",
			"the request comes from a page of another origin, which may not use this node"})
		return true
	}
	return false
}

// acceptsOrigin says whether pages of an origin may use this node; "" is none.
func acceptsOrigin(cfg *config.Config, origin string) bool {
	origins := config.CORSOrigins.Get(cfg)
	return origin != "" && (slices.Contains(origins, "*") || slices.Contains(origins, strings.ToLower(origin)))
}

// deliberate says whether a request of a page that may make requests is one that [cors]
// allows: with the browser's cookies and passwords only where credentials are allowed, and not a
// form's or one whose answer the page does not want to see.
func deliberate(cfg *config.Config, r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode") // old browsers do not send it
	if mode != "" && mode != "cors" {
		return false
	}
	return config.CORSCredentials.Get(cfg) || r.Header.Get("Cookie") == "" && (r.Header.Get("Authorization") == "" || !unasked(r))
}

// unasked says whether a browser makes a request that may change something without asking whether the page
// may. Then it is the browser that knows a password: a page that sends one of its own has to ask.
func unasked(r *http.Request) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data":
		return r.Method == http.MethodPost
	}
	return false
}

func allowOrigin(cfg *config.Config, header http.Header, r *http.Request) {
	header.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	if config.CORSCredentials.Get(cfg) {
		header.Set("Access-Control-Allow-Credentials", "true")
	}
}

// preflight answers what a browser asks before it does what a page wants, if the page may.
func preflight(cfg *config.Config, header http.Header, r *http.Request) bool {
	methods, headers := config.CORSMethods.Get(cfg), config.CORSHeaders.Get(cfg)
	if methods == nil {
		methods = corsMethods
	}
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
	allowOrigin(cfg, header, r)
	header.Set("Access-Control-Max-Age", strconv.FormatInt(int64(config.CORSMaxAge.Get(cfg).Seconds()), 10))
	header.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
	if asked != "" {
		header.Set("Access-Control-Allow-Headers", asked)
	}
	return true
}
