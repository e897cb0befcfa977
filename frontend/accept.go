package frontend

import (
	"net/http"
	"strconv"
	"strings"
)

// accepts reports whether a request takes answers of a media type. As in CouchDB one
// without an Accept takes all, it does not matter which type is taken rather than another,
// and what is refused by name, or by its kind, is not taken.
func accepts(r *http.Request, mediaType string) bool {
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

// acceptsEncoding reports whether a request takes answers in a content coding other than
// identity.
func acceptsEncoding(r *http.Request, coding string) bool {
	all := weights(r.Header.Values("Accept-Encoding"))
	if weight, found := all[coding]; found {
		return weight > 0
	}
	return all["*"] > 0
}

// weights reads the elements of a header and their weights (RFC 9110, section 12.4.2). One
// that is not a number is 1.
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

// matches reports whether If-None-Match has an entity tag.
func matches(r *http.Request, etag string) bool {
	for tag := range strings.FieldsFuncSeq(strings.Join(r.Header.Values("If-None-Match"), ","), func(c rune) bool { return c == ',' || c == ' ' }) {
		if strings.TrimPrefix(tag, "W/") == etag {
			return true
		}
	}
	return false
}

// notModified answers a request whose If-None-Match has the entity tag of the answer.
func notModified(w http.ResponseWriter, etag string) {
	w.Header().Set("ETag", etag)
	w.WriteHeader(http.StatusNotModified)
}
