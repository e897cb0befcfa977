package web

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// meansThisMachine reports whether a Host header is an address, or a name that always stands for the machine itself. A
// page on the web can have its own name resolve to 127.0.0.1 (DNS rebinding). For the browser a node there is then of
// the same origin as the page, and only the name gives the page away.
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

// OnlyLocalNames refuses requests whose Host header is neither an address nor localhost. It is for interfaces without
// authentication, which listen on loopback.
func OnlyLocalNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !meansThisMachine(r.Host) {
			respondError(w, r, otherName)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var otherName = NewFailure(http.StatusForbidden, "forbidden",
	"the Host header must be an address or localhost: this port does not ask for a name and password, and a web page could reach it under a host name of its own")
