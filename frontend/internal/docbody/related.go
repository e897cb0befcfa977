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

	parts *parts
	spool *Spool
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

// IsRelated reports whether [ReadRelated] reads bodies of a content type.
func IsRelated(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "multipart/related"
}

// ReadRelated reads the first part of a body, the document. The caller must not read from the body.
func ReadRelated(body io.Reader, contentType string, opts Options) (*Related, error) {
	parts, err := newParts(body, "multipart/related", contentType)
	if err != nil {
		return nil, err
	}
	r := &Related{parts: parts}
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
	part, err := r.parts.next()
	if err == io.EOF {
		return refuse(BadRequest, "the first part of the body, which is the document, is missing")
	}
	if err != nil {
		return err
	}
	if kind := part.Header.Get("Content-Type"); kind != "" && !isJSON(kind) {
		return refuse(BadContentType, "Content-Type of the first part must be application/json")
	}
	if r.spool, err = NewSpool(&partReader{parts: r.parts, part: part, want: -1}, opts.Spool); err != nil {
		return err
	}
	r.Document, err = readOne(r.spool, opts)
	return err
}

func isJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "application/json"
}

// Next returns the index of the attachment that comes next, and a reader for its content, which must be read to its end
// before the next call. The error is io.EOF if all contents have been returned and nothing follows. A content that is
// longer or shorter than announced is a read error.
//
// A part belongs to the attachment that its Content-Disposition names, or, if no attachment has that name, to the first
// one without content.
func (r *Related) Next() (int, io.Reader, error) {
	part, err := r.parts.next()
	switch {
	case err == io.EOF && r.left == 0:
		return 0, nil, io.EOF
	case err == io.EOF:
		return 0, nil, refuse(BadRequest, "the content of the attachment %s is missing", quote(r.Document.Attachments[r.first().index].Name))
	case err != nil:
		return 0, nil, err
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
	return f.index, &partReader{parts: r.parts, part: part, name: a.Name, want: a.sent()}, nil
}

// first returns the first attachment that follows and has no content yet. There must be one.
func (r *Related) first() *following {
	for ; ; r.next++ {
		if f := r.follows[r.Document.Attachments[r.next].Name]; f != nil && !f.came {
			return f
		}
	}
}

// belongs returns the attachment that a part belongs to.
func (r *Related) belongs(part *multipart.Part) (*following, error) {
	params := disposition(part)
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
