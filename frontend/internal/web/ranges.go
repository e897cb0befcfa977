package web

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// maxRanges is how many ranges a request may ask for. As in CouchDB a request with more gets the whole content.
const maxRanges = 9

// Range is a part of a content, of at least one byte.
type Range struct{ first, last int64 }

// Length returns the length of the part in bytes.
func (b Range) Length() int64 { return b.last - b.first + 1 }

// ContentRange returns the Content-Range of the part, for a content of a size.
func (b Range) ContentRange(size int64) string {
	return fmt.Sprintf("bytes %d-%d/%d", b.first, b.last, size)
}

var errRange = NewFailure(http.StatusRequestedRangeNotSatisfiable, "requested_range_not_satisfiable",
	"Requested range not satisfiable")

// RangeHeader returns the Range header of a request, or "" if If-Range names another version of the content.
func RangeHeader(r *http.Request, etag string) string {
	if condition := r.Header.Get("If-Range"); condition != "" && condition != etag {
		return ""
	}
	return r.Header.Get("Range")
}

// ParseRanges parses a Range header for a content of a size. It returns no ranges if the header is not one of byte
// ranges, or asks for the whole content. As in CouchDB one range outside the content is an error, whatever the others
// are.
func ParseRanges(header string, size int64) ([]Range, error) {
	list, found := strings.CutPrefix(header, "bytes=")
	if !found {
		return nil, nil
	}
	var ranges []Range
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		b, ok := parseRange(text, size)
		switch {
		case !ok || b.first == 0 && strings.HasSuffix(text, "-"):
			return nil, nil
		case b.first > b.last:
			return nil, errRange
		}
		if ranges = append(ranges, b); len(ranges) > maxRanges {
			return nil, nil
		}
	}
	return ranges, nil
}

// parseRange parses FIRST-LAST, FIRST- or -LENGTH.
func parseRange(text string, size int64) (Range, bool) {
	first, last, found := strings.Cut(text, "-")
	from, err := strconv.ParseUint(first, 10, 63)
	to, otherErr := strconv.ParseUint(last, 10, 63)
	switch {
	case !found:
		return Range{}, false
	case first == "" && otherErr == nil:
		return Range{max(size-int64(to), 0), size - 1}, true
	case last == "" && err == nil:
		return Range{int64(from), size - 1}, true
	}
	return Range{int64(from), min(int64(to), size-1)}, err == nil && otherErr == nil
}

// Part returns a reader of the part.
func (b Range) Part(content io.ReadSeeker) (io.Reader, error) {
	if _, err := content.Seek(b.first, io.SeekStart); err != nil {
		return nil, err
	}
	return io.LimitReader(content, b.Length()), nil
}
