package docbody

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
)

// Related is a multipart/related body: a document, and the contents of those of its
// attachments that follow.
type Related struct {
	Document *Document

	source *source
	parts  *multipart.Reader
	spool  *Spool // of the document
	// follows has the attachments that follow by their names, and whether their contents have come.
	// next is before the first of the document's whose content has not; left is how many have not.
	follows map[string]*following
	next    int
	left    int
}

// following is an attachment that follows.
type following struct {
	index int // in Document.Attachments
	came  bool
}

// source is the body. It keeps its error, which multipart hides from those who look
// for an end.
type source struct {
	io.Reader
	failed error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}

// IsRelated reports whether a content type is that of a body for [ReadRelated].
func IsRelated(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "multipart/related"
}

// ReadRelated reads the first part of a body, the document. The body is not to be read
// by anybody else.
func ReadRelated(body io.Reader, contentType string, opts Options) (*Related, error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" {
		return nil, refuse(BadRequest, "Content-Type multipart/related must have a boundary")
	}
	from := &source{Reader: body}
	r := &Related{source: from, parts: multipart.NewReader(from, params["boundary"])}
	if err := r.readDocument(opts); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.follows = make(map[string]*following)
	for i, a := range r.Document.Attachments {
		if a.Follows {
			r.follows[a.Name] = &following{index: i}
		}
	}
	r.left = len(r.follows)
	return r, nil
}

// Close gives the document up, whose inline attachments have no contents then.
func (r *Related) Close() error {
	if r.spool == nil {
		return nil
	}
	return r.spool.Close()
}

func (r *Related) readDocument(opts Options) error {
	part, err := r.parts.NextRawPart()
	if err == io.EOF {
		return refuse(BadRequest, "the first part of the body, which is the document, is missing")
	}
	if err != nil {
		return r.broken(err)
	}
	if kind := part.Header.Get("Content-Type"); kind != "" && !isJSON(kind) {
		return refuse(BadContentType, "Content-Type of the first part must be application/json")
	}
	if r.spool, err = NewSpool(&partReader{related: r, part: part, want: -1}, Limit{}); err != nil {
		return err
	}
	r.Document, err = readOne(r.spool, opts)
	return err
}

func isJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "application/json"
}

// broken is what an error of multipart means: that of the source, or a body that is not as it
// should be.
func (r *Related) broken(err error) error {
	switch {
	case r.source.failed != nil:
		return r.source.failed
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(BadRequest, "the body ends before its last boundary")
	}
	return refuse(BadRequest, "the body is not made of parts with headers, as its Content-Type says")
}

// Next returns which of the document's attachments follows next, and its content, which has
// to be read to its end before the next call. The error is io.EOF if the contents of all
// have been returned and nothing else is there. That a content is longer or shorter than
// the document says is an error of reading it.
//
// A part belongs to the attachment that its Content-Disposition names, if there is one
// that has no content yet; otherwise to the first such one.
func (r *Related) Next() (int, io.Reader, error) {
	part, err := r.parts.NextRawPart()
	switch {
	case err == io.EOF && r.left == 0:
		return 0, nil, io.EOF
	case err == io.EOF:
		return 0, nil, refuse(BadRequest, "the content of the attachment %s is missing", quote(r.Document.Attachments[r.first().index].Name))
	case err != nil:
		return 0, nil, r.broken(err)
	case r.left == 0:
		return 0, nil, refuse(BadRequest, "the body has more parts than the document has attachments that follow")
	}
	f, err := r.belongs(part)
	if err != nil {
		return 0, nil, err
	}
	f.came = true
	r.left--
	a := &r.Document.Attachments[f.index]
	return f.index, &partReader{related: r, part: part, name: a.Name, want: a.sent()}, nil
}

// first returns the first attachment that follows whose content has not come. There is one.
func (r *Related) first() *following {
	for ; ; r.next++ {
		if f := r.follows[r.Document.Attachments[r.next].Name]; f != nil && !f.came {
			return f
		}
	}
}

// belongs returns to which of the attachments that follow a part belongs. multipart itself
// would give the last segment of the file name alone.
func (r *Related) belongs(part *multipart.Part) (*following, error) {
	_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name, named := params["filename"]
	f := r.follows[name]
	switch {
	case !named, f == nil: // CouchDB does not look at names, and not all clients write them as they are
		return r.first(), nil
	case f.came:
		return nil, refuse(BadRequest, "the body has two parts for the attachment %s", quote(name))
	}
	return f, nil
}

// partReader reads a part. Its errors are those that a client is told, or the source's.
type partReader struct {
	related *Related
	part    *multipart.Part
	name    string // of the attachment
	want    int64  // how many bytes it should have; -1 is any number
	n       int64
}

// Read implements io.Reader.
func (p *partReader) Read(b []byte) (int, error) {
	n, err := p.part.Read(b)
	p.n += int64(n)
	switch {
	case p.related.source.failed != nil: // what was read last may be a part of a boundary
		return n, p.related.source.failed
	case p.want >= 0 && p.n > p.want:
		return n, p.mismatch("longer")
	case err == io.EOF && p.n < p.want:
		return n, p.mismatch("shorter")
	case err != nil && err != io.EOF:
		return n, p.related.broken(err)
	}
	return n, err
}

func (p *partReader) mismatch(how string) error {
	return refuse(BadRequest, "attachment %s than expected: %s should have %d bytes", how, quote(p.name), p.want)
}
