package couch

import "strings"

// Names of the documents that CouchDB keeps under a path of two segments.
const (
	designPrefix = "_design/"
	localPrefix  = "_local/"
)

// docPath is the path of a document below its database. The slash of _design/ and _local/ stays, any
// other is escaped: it belongs to the id.
func docPath(id string) string {
	for _, prefix := range []string{designPrefix, localPrefix} {
		if rest, ok := strings.CutPrefix(id, prefix); ok {
			return prefix + escapeSegment(rest)
		}
	}
	return escapeSegment(id)
}

// escapeSegment escapes all but RFC 3986's unreserved characters. That is more than url.PathEscape
// does: CouchDB reads a plus sign in a path as a space, and . and .. must not be resolved on the way.
func escapeSegment(s string) string {
	const hex = "0123456789ABCDEF"
	dots := s == "." || s == ".."
	var b strings.Builder
	b.Grow(len(s))
	for i := range len(s) {
		c := s[i]
		if isUnreserved(c) && !dots {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', hex[c>>4], hex[c&15]})
	}
	return b.String()
}

func isUnreserved(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '.' || c == '_' || c == '~'
}
