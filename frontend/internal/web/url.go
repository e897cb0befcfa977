package web

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"github.com/gorilla/mux"
)

// Canonical returns a URL with one slash in place of several, none at the end of the path, and each segment
// percent-encoded in the same way. CouchDB does not tell such URLs apart. If plusIsSpace is true, a + in the path means
// a space.
func Canonical(u *url.URL, plusIsSpace bool) *url.URL {
	// Not EscapedPath: if a path has an unencoded bar, as job ids have, it forgets which slashes were encoded.
	raw := cmp.Or(u.RawPath, u.EscapedPath())
	segments := strings.FieldsFunc(raw, func(c rune) bool { return c == '/' })
	plain := make([]string, len(segments))
	for i, segment := range segments {
		if plusIsSpace {
			segment = PlusToSpace(segment)
		}
		decoded := unescape(segment)
		plain[i], segments[i] = decoded, url.PathEscape(decoded)
	}
	out := *u
	out.Path, out.RawPath = "/"+strings.Join(plain, "/"), "/"+strings.Join(segments, "/")
	return &out
}

// PlusToSpace encodes the spaces of a percent-encoded text that are written as +.
func PlusToSpace(escaped string) string { return strings.ReplaceAll(escaped, "+", "%20") }

// unescape decodes a part of a path. It returns a part that is not percent-encoded well as it is. The paths of requests
// have none.
func unescape(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// PathSegments returns the decoded segments of a path that Canonical returned.
func PathSegments(u *url.URL) []string {
	var segments []string
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if segment != "" {
			segments = append(segments, unescape(segment))
		}
	}
	return segments
}

// PathValue returns a part of the path that the route has a name for, decoded.
func PathValue(r *http.Request, name string) string { return unescape(mux.Vars(r)[name]) }

// AbsoluteURL returns the URL of a path on this server as the client sees it. A proxy says in headers which URL the
// client requested.
func AbsoluteURL(r *http.Request, path string) string {
	scheme, host := "http", r.Host
	if IsSecure(r) {
		scheme = "https"
	}
	if forwarded := r.Header.Get("X-Forwarded-Host"); forwarded != "" {
		host = forwarded
	}
	return scheme + "://" + host + "/" + path
}

// IsSecure reports whether the connection of a client is encrypted, at least up to a proxy.
func IsSecure(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Ssl") == "on" || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}
