package frontend

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// maxRanges is how many ranges a request may ask for. For more, as in CouchDB, it gets all.
const maxRanges = 9

// byteRange is a part of a content, of at least one byte.
type byteRange struct{ first, last int64 }

func (b byteRange) length() int64 { return b.last - b.first + 1 }

// of is the part's Content-Range.
func (b byteRange) of(size int64) string { return fmt.Sprintf("bytes %d-%d/%d", b.first, b.last, size) }

var errRange = &failure{http.StatusRequestedRangeNotSatisfiable, "requested_range_not_satisfiable",
	"Requested range not satisfiable"}

// rangeHeader returns a request's Range, unless it is that of another content (If-Range).
func rangeHeader(r *http.Request, etag string) string {
	if condition := r.Header.Get("If-Range"); condition != "" && condition != etag {
		return ""
	}
	return r.Header.Get("Range")
}

// parseRanges reads a Range header for a content of a size. There are none if there is
// nothing to read, or all is asked for. As in CouchDB one range that is not in the content
// is an error, whatever the others are.
func parseRanges(header string, size int64) ([]byteRange, error) {
	list, found := strings.CutPrefix(header, "bytes=")
	if !found {
		return nil, nil
	}
	var ranges []byteRange
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

// parseRange reads FIRST-LAST, FIRST- or -LENGTH.
func parseRange(text string, size int64) (byteRange, bool) {
	first, last, found := strings.Cut(text, "-")
	from, err := strconv.ParseUint(first, 10, 63)
	to, otherErr := strconv.ParseUint(last, 10, 63)
	switch {
	case !found:
		return byteRange{}, false
	case first == "" && otherErr == nil:
		return byteRange{max(size-int64(to), 0), size - 1}, true
	case last == "" && err == nil:
		return byteRange{int64(from), size - 1}, true
	}
	return byteRange{int64(from), min(int64(to), size-1)}, err == nil && otherErr == nil
}

// part returns a reader of a part of a content.
func (b byteRange) part(content io.ReadSeeker) (io.Reader, error) {
	if _, err := content.Seek(b.first, io.SeekStart); err != nil {
		return nil, err
	}
	return io.LimitReader(content, b.length()), nil
}

// sendRanges sends one part as it is, several as multipart/byteranges.
func (c *contentAnswer) sendRanges(w http.ResponseWriter, r *http.Request, content io.ReadSeeker, ranges []byteRange) error {
	if len(ranges) > 1 {
		return c.sendByteRanges(w, r, content, ranges)
	}
	part, err := ranges[0].part(content)
	if err != nil {
		return err
	}
	c.contentRange, c.length = ranges[0].of(c.length), ranges[0].length()
	return c.send(w, r, http.StatusPartialContent, part)
}

func (c *contentAnswer) sendByteRanges(w http.ResponseWriter, r *http.Request, content io.ReadSeeker, ranges []byteRange) error {
	c.setHeaders(w)
	boundary := newBoundary()
	out := newStream(w, r, http.StatusPartialContent, `multipart/byteranges; boundary="`+boundary+`"`)
	if r.Method == http.MethodHead {
		return out.end()
	}
	a := appender{to: out}
	a.raw("--").raw(boundary)
	for _, b := range ranges {
		part, err := b.part(content)
		if err != nil {
			return err
		}
		a.raw("\r\nContent-Type: ").raw(headerText(c.mediaType))
		a.raw("\r\nContent-Range: ").raw(b.of(c.length)).raw("\r\n\r\n")
		if a.err == nil {
			_, a.err = io.Copy(out, part)
		}
		if a.raw("\r\n--").raw(boundary).err != nil {
			return contentFailure(a.err)
		}
	}
	if a.raw("--").err != nil {
		return a.err
	}
	return out.end()
}
