package docbody

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
)

// Related is a multipart/related body: a document, and the contents of its attachments that follow.
type Related struct {
	Document *Document

	source *source
	parts  *multipart.Reader
	spool  *Spool
	// follows has the attachments that follow by name, and whether their contents have come. next is at or before the
	// index of the first one without content. left is the number of those without content.
	follows map[string]*following
	next    int
	left    int
}

// following is an attachment that follows.
type following struct {
	index int // in Document.Attachments
	came  bool
}

// source is the body. It keeps its error, which package multipart replaces.
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

// ReadRelated reads the first part of a body, the document. The caller must not read from the body.
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

// Close closes the document's spool. Its inline attachments can then no longer be read.
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

// broken converts an error of package multipart: to that of the source, or to an error for a malformed body.
func (r *Related) broken(err error) error {
	switch {
	case r.source.failed != nil:
		return r.source.failed
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(BadRequest, "the body ends before its last boundary")
	}
	return refuse(BadRequest, "the body is not made of parts with headers, as its Content-Type says")
}

// Next returns the index of the attachment that comes next, and a reader for its content, which must be read to its end
// before the next call. The error is io.EOF if all contents have been returned and nothing follows. A content that is
// longer or shorter than announced is a read error.
//
// A part belongs to the attachment that its Content-Disposition names, or, if no attachment has that name, to the first
// one without content.
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

// first returns the first attachment that follows and has no content yet. There must be one.
func (r *Related) first() *following {
	for ; ; r.next++ {
		if f := r.follows[r.Document.Attachments[r.next].Name]; f != nil && !f.came {
			return f
		}
	}
}

// belongs returns the attachment that a part belongs to. It parses the file name itself because package multipart
// returns only the last path segment.
func (r *Related) belongs(part *multipart.Part) (*following, error) {
	_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name, named := params["filename"]
	f := r.follows[name]
	switch {
	case !named, f == nil: // CouchDB ignores names, and not all clients write them correctly
		return r.first(), nil
	case f.came:
		return nil, refuse(BadRequest, "the body has two parts for the attachment %s", quote(name))
	}
	return f, nil
}

// partReader reads a part. Its errors are those for the client, or the source's.
type partReader struct {
	related *Related
	part    *multipart.Part
	name    string // of the attachment
	want    int64  // expected size in bytes; -1 if unknown
	n       int64
}

// Read implements io.Reader.
func (p *partReader) Read(b []byte) (int, error) {
	n, err := p.part.Read(b)
	p.n += int64(n)
	switch {
	case p.related.source.failed != nil: // the last bytes may belong to a boundary
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
