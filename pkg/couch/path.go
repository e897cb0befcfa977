package couch

import (
	"net/url"
	"strings"
)

// Prefixes of document ids that have a path of two segments.
const (
	designPrefix = "_design/"
	localPrefix  = "_local/"
)

// maxPath is the size in bytes up to which servers take the path of a request. CouchDB refuses request lines of more than 8 KiB,
// and its replicator makes none of more than 7,000 bytes. The query has the rest.
const maxPath = 6_500

// LongID reports whether servers refuse requests for a document because of the length of its id. Only requests with the id in
// their bodies can read and write it.
func LongID(id string) bool { return len(docPath(id)) > maxPath }

// docPath returns the path of a document below its database. The slash of _design/ and _local/ is kept. Other slashes
// belong to the id and are escaped.
func docPath(id string) string {
	for _, prefix := range []string{designPrefix, localPrefix} {
		if rest, ok := strings.CutPrefix(id, prefix); ok {
			return prefix + escapeSegment(rest)
		}
	}
	return escapeSegment(id)
}

// escapeSegment escapes all characters except RFC 3986's unreserved ones. url.PathEscape escapes fewer, but CouchDB
// reads a plus sign in a path as a space, and . and .. must not be resolved on the way.
func escapeSegment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}
