package docbody

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
)

// parts reads the parts of a multipart body.
type parts struct {
	source *source
	reader *multipart.Reader
}

// newParts returns the parts of a body. kind is what its content type is called in errors.
func newParts(body io.Reader, kind, contentType string) (*parts, error) {
	_, params, err := mime.ParseMediaType(contentType)
	boundary := params["boundary"]
	if err != nil || boundary == "" {
		return nil, refuse(BadRequest, "Content-Type %s must have a boundary", kind)
	}
	from := &source{Reader: body, last: []byte("\r\n--" + boundary + "--")}
	return &parts{from, multipart.NewReader(from, boundary)}, nil
}

// next returns the next part, as it is encoded. After the last one the error is io.EOF.
func (p *parts) next() (*multipart.Part, error) {
	part, err := p.reader.NextRawPart()
	if err != nil && err != io.EOF {
		return nil, p.broken(err)
	}
	return part, err
}

// broken converts an error of package multipart: to the error of the source, or to an error for a malformed body.
func (p *parts) broken(err error) error {
	switch {
	case p.source.failed != nil:
		return p.source.failed
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(BadRequest, "the body ends before its last boundary")
	}
	return refuse(BadRequest, "the body is not made of parts with headers, as its Content-Type says")
}

// disposition returns the parameters of a part's Content-Disposition. Package multipart returns only the last path
// segment of a file name.
func disposition(part *multipart.Part) map[string]string {
	_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	return params
}

// source is a body up to its last boundary. It keeps its error, which package multipart replaces, and leaves out what
// follows the last boundary, which package multipart takes only on a line of its own.
type source struct {
	io.Reader
	failed error

	last []byte // the last boundary, with the line break before it
	tail []byte // the end of what was read, where last may begin
	over bool   // last was read
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.over {
		return 0, io.EOF
	}
	n, err := s.Reader.Read(p)
	if end := s.end(p[:n]); end >= 0 {
		s.over = true
		return end, nil
	}
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}

// end returns the index in the next bytes after the last boundary, or -1.
func (s *source) end(b []byte) int {
	old, keep := len(s.tail), len(s.last)-1
	s.tail = append(s.tail, b[:min(len(b), keep)]...)
	if i := bytes.Index(s.tail, s.last); i >= 0 {
		return i + len(s.last) - old
	}
	if i := bytes.Index(b, s.last); i >= 0 {
		return i + len(s.last)
	}
	if len(b) >= keep {
		s.tail = append(s.tail[:0], b[len(b)-keep:]...)
	} else if more := len(s.tail) - keep; more > 0 {
		s.tail = append(s.tail[:0], s.tail[more:]...)
	}
	return -1
}

// partReader reads a part. It returns an [Error] for the client, or an error of the source.
type partReader struct {
	parts *parts
	part  *multipart.Part
	name  string // of the attachment
	want  int64  // expected size in bytes; -1 if unknown
	n     int64
}

// Read implements io.Reader.
func (p *partReader) Read(b []byte) (int, error) {
	n, err := p.part.Read(b)
	p.n += int64(n)
	switch {
	case p.parts.source.failed != nil: // the last bytes may belong to a boundary
		return n, p.parts.source.failed
	case p.want >= 0 && p.n > p.want:
		return n, p.mismatch("longer")
	case err == io.EOF && p.n < p.want:
		return n, p.mismatch("shorter")
	case err != nil && err != io.EOF:
		return n, p.parts.broken(err)
	}
	return n, err
}

func (p *partReader) mismatch(how string) error {
	return refuse(BadRequest, "attachment %s than expected: %s should have %d bytes", how, quote(p.name), p.want)
}
