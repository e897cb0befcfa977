package web

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Accepts reports whether a request accepts answers of a media type. As in CouchDB a request without an Accept accepts
// all types, preferences do not matter, and a type that is refused by its name, or by its kind, is not accepted.
func Accepts(r *http.Request, mediaType string) bool {
	header := r.Header.Values("Accept")
	if len(header) == 0 {
		return true
	}
	kind, _, _ := strings.Cut(mediaType, "/")
	taken := false
	for name, weight := range weights(header) {
		switch name {
		case mediaType, kind + "/*":
			if weight == 0 {
				return false
			}
			taken = true
		case "*/*":
			taken = taken || weight > 0
		}
	}
	return taken
}

// AcceptsEncoding reports whether a request accepts answers in a content coding other than identity.
func AcceptsEncoding(r *http.Request, coding string) bool {
	all := weights(r.Header.Values("Accept-Encoding"))
	if weight, found := all[coding]; found {
		return weight > 0
	}
	return all["*"] > 0
}

// weights parses the elements of a header and their weights (RFC 9110, section 12.4.2). A weight that is not a number is 1.
func weights(header []string) map[string]float64 {
	all := map[string]float64{}
	for element := range strings.SplitSeq(strings.Join(header, ","), ",") {
		name, parameters, _ := strings.Cut(element, ";")
		weight := 1.0
		for parameter := range strings.SplitSeq(parameters, ";") {
			key, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && strings.EqualFold(strings.TrimSpace(key), "q") {
				weight = q
			}
		}
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			all[name] = weight
		}
	}
	return all
}

// NotModified sets the entity tag of an answer. If the request's If-None-Match has the tag, it answers that the client
// has the entity already, and returns true.
func NotModified(w http.ResponseWriter, r *http.Request, etag string) bool {
	w.Header().Set("ETag", etag)
	if !HasTag(r, etag) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

// HasTag reports whether the If-None-Match of a request has an entity tag.
func HasTag(r *http.Request, etag string) bool {
	tags := strings.FieldsFunc(strings.Join(r.Header.Values("If-None-Match"), ","), func(c rune) bool { return c == ',' || c == ' ' })
	return slices.ContainsFunc(tags, func(tag string) bool { return strings.TrimPrefix(tag, "W/") == etag })
}
