package frontend

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// meansThisMachine says whether a Host header is an address, or a name that always stands
// for the machine itself. A page on the web can have its own name lead to 127.0.0.1, and is
// then of the same origin as a node there, for all that a browser knows (DNS rebinding);
// only the name gives it away.
func meansThisMachine(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// OnlyLocalNames refuses requests whose Host header is neither an address nor localhost: it
// is for what asks nobody who they are, and therefore listens on loopback.
func OnlyLocalNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !meansThisMachine(r.Host) {
			respondError(w, r, otherName)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var otherName = &failure{http.StatusForbidden, "forbidden",
	"the Host header must be an address or localhost: this port asks nobody who they are, and a page on the web could reach it by a name of its own"}
