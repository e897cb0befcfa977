package couch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"

	"settee/pkg/jsontext"
	"settee/pkg/outbound"
)

// maxAttsSince is the maximum size in bytes of the parameter atts_since before it is escaped.
const maxAttsSince = maxPath / 3

// Leaves iterates over revisions of a document. It is not safe for concurrent use. The context ends a waiting Next.
type Leaves struct {
	d    *Database
	ctx  context.Context // of requests made while leaves are read
	id   string
	left int // number of answers still accepted

	p       *response
	answer  leafReader
	current *Leaf
	err     error // the first error of Next
}

// leafReader reads the leaves of one answer. next returns io.EOF after the last one.
type leafReader interface {
	next() (*Leaf, error)
}

// Leaf is a revision of a document with its attachments, or an error.
type Leaf struct {
	Fetched

	attachments func() (*AttachmentReader, error) // nil if no more attachments follow
	open        *AttachmentReader                 // the last one returned
	fail        func(error) error                 // adds the request to an error
	expect      func(bytes int64)                 // of the answer that has the attachments
}

// OpenRevs requests a revision of a document with its history (_revisions) and its attachments. If the revision has
// descendants, the answer has their leaves instead (latest=true). attsSince are revisions whose attachments are not
// needed: attachments that are as old stay stubs, if the server supports that. If there are too many revisions for a
// URL, the first ones are used.
//
// CouchDB sends the leaves as multipart/mixed, with the attachments' bytes. Other servers send JSON, and each
// attachment is requested when its turn comes. Either way no attachment is held in memory, and a document says
// "follows" for the attachments that [Leaf.NextAttachment] returns, as [Database.PutMultipart] requires.
func (d *Database) OpenRevs(ctx context.Context, id, rev string, attsSince []string) (*Leaves, error) {
	return d.openRevs(ctx, id, rev, attsSince, !d.jsonLeaves.Load())
}

// OpenRevsApart is OpenRevs in JSON, with each attachment requested when its turn comes. It is for documents that cannot be read
// otherwise: CouchDB writes the names of attachments into the headers of a multipart body as they are, with their line ends.
func (d *Database) OpenRevsApart(ctx context.Context, id, rev string) (*Leaves, error) {
	return d.openRevs(ctx, id, rev, nil, false)
}

// openRevs is OpenRevs. mixed asks for a multipart body.
func (d *Database) openRevs(ctx context.Context, id, rev string, attsSince []string, mixed bool) (*Leaves, error) {
	l := &Leaves{d: d, ctx: ctx, id: id, left: maxAnswers}
	q := url.Values{
		"open_revs": {string(appendStrings(nil, []string{rev}))}, "revs": {"true"}, "latest": {"true"},
		"att_encoding_info": {"true"},
	}
	accept := jsonType
	if mixed {
		accept = mixedType
		q.Set("attachments", "true")
		if n := fitting(attsSince, maxAttsSince); n > 0 {
			q.Set("atts_since", string(appendStrings(nil, attsSince[:n])))
		}
	}
	r := &request{method: http.MethodGet, path: docPath(id), query: q, accept: accept, flow: new(outbound.Flow)}
	if mixed {
		r.encoding = identityEncoding
	}
	p, err := d.stream(ctx, r)
	if err != nil {
		return nil, err
	}
	media, params, err := mime.ParseMediaType(p.header.Get("Content-Type"))
	if err == nil && media == mixedType {
		leaves, err := newMultipartLeaves(p, params["boundary"], id, d.cfg.MaxDocument)
		if err != nil {
			p.Close()
			return nil, p.fail(err)
		}
		leaves.large = d.large(ctx)
		l.p, l.answer = p, leaves
		return l, nil
	}
	if mixed {
		d.jsonLeaves.Store(true)
		// This answer has whole attachments in its JSON. Ask again, without them.
		p.Close()
		q.Del("attachments")
		q.Del("atts_since")
		p, err = d.stream(ctx, &request{method: http.MethodGet, path: docPath(id), query: q})
		if err != nil {
			return nil, err
		}
	}
	j := newAnswerReader(p, jsontext.Window)
	j.OnLarge = d.large(ctx)
	l.p, l.answer = p, &jsonLeaves{j: j, id: id, maxDocument: d.cfg.MaxDocument, unpacks: d.unpacks.Load(), attachment: l.attachment}
	return l, nil
}

// fitting returns how many of the revisions, at least one, fit in size bytes as an escaped JSON array.
func fitting(revs []string, size int) int {
	const around = len("%22%22%2C")
	for i, rev := range revs {
		if size -= len(url.QueryEscape(rev)) + around; size < 0 && i > 0 {
			return i
		}
	}
	return len(revs)
}

// Next returns the next leaf, and io.EOF after the last one. It skips unread attachments of the previous leaf. After an
// error all later calls return the same error.
func (l *Leaves) Next() (*Leaf, error) {
	if l.err != nil {
		return nil, l.err
	}
	leaf, err := l.next()
	if err == nil {
		leaf.redact(l.p)
		l.current = leaf
		return leaf, nil
	}
	l.current = nil
	if l.err = err; err != io.EOF {
		l.err = l.p.fail(fmt.Errorf("reading document %q: %w", shortened(l.id), err))
		l.p.Close()
	}
	return nil, l.err
}

func (l *Leaves) next() (*Leaf, error) {
	if l.current != nil {
		l.current.Close()
	}
	leaf, err := l.answer.next()
	if err == nil {
		return leaf, l.accept(leaf)
	}
	if err == io.EOF {
		l.p.finish()
	}
	return nil, err
}

// accept checks that a leaf was requested.
func (l *Leaves) accept(leaf *Leaf) error {
	if leaf.ID != l.id {
		return fmt.Errorf("%w: document %q was not asked for", ErrMalformed, shortened(leaf.ID))
	}
	if l.left == 0 {
		return fmt.Errorf("%w: more than %d answers for a revision", ErrLimit, maxAnswers)
	}
	l.left--
	leaf.fail, leaf.expect = l.p.fail, l.p.expect
	return nil
}

// attachment requests an attachment of a leaf that came as JSON. It uses the leaf's slot, because waiting for a second
// slot could deadlock.
func (l *Leaves) attachment(rev string, about Attachment) (*AttachmentReader, error) {
	return l.d.attachment(l.ctx, l.id, rev, about, true)
}

// Close abandons the unread leaves. It may be called more than once.
func (l *Leaves) Close() error {
	if l.err == nil {
		l.err = errors.New("the leaves are closed")
	}
	if l.current != nil {
		l.current.Close()
	}
	return l.p.Close()
}

// NextAttachment returns the next attachment that follows, in the document's order, and io.EOF after the last one. It
// is valid until the next call.
func (l *Leaf) NextAttachment() (*AttachmentReader, error) {
	if l.open != nil {
		if err := l.open.Close(); err != nil {
			return nil, err
		}
		l.open = nil
	}
	if l.attachments == nil {
		return nil, io.EOF
	}
	a, err := l.attachments()
	if err != nil && err != io.EOF {
		err = l.explain(err)
	}
	if a != nil {
		a.explain = l.explain
		if a.expect == nil {
			a.expect = l.expect
		}
	}
	l.open = a
	return a, err
}

// explain adds the attachment's name to an error.
func (l *Leaf) explain(err error) error {
	return l.fail(fmt.Errorf("attachments of document %q: %w", shortened(l.ID), err))
}

// Close abandons the current attachment. Leaves closes its leaves itself.
func (l *Leaf) Close() {
	if l.open != nil {
		l.open.Close()
		l.open = nil
	}
	l.attachments = nil
}

// jsonLeaves reads [{"ok": document}, {"missing": rev}, ...].
type jsonLeaves struct {
	j           answerReader
	id          string
	maxDocument int
	unpacks     bool // see Database.unpacks
	attachment  func(rev string, about Attachment) (*AttachmentReader, error)
	inside      bool
}

func (l *jsonLeaves) next() (*Leaf, error) {
	l.j.Forget()
	if !l.inside {
		if err := l.j.Open('['); err != nil {
			return nil, err
		}
		l.inside = true
	}
	ok, err := l.j.Element()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, io.EOF
	}
	raw, err := l.j.Value(l.maxDocument)
	if err != nil {
		return nil, limited(err, l.maxDocument)
	}
	f, _, err := parseFetched(DocRef{ID: l.id}, raw)
	f.Doc.Body = bytes.Clone(f.Doc.Body) // raw is valid until the next call
	leaf := &Leaf{Fetched: f}
	if err == nil && f.Doc.HasAttachments() {
		err = l.attach(leaf)
	}
	return leaf, err
}

// attach makes the stubs of a leaf look like attachments that follow.
func (l *jsonLeaves) attach(leaf *Leaf) error {
	doc, err := leaf.Doc.following(!l.unpacks, func(about Attachment) (int64, error) { return l.measure(leaf.Rev, about) })
	if err != nil {
		return err
	}
	about, err := doc.Attachments()
	if err != nil {
		return err
	}
	leaf.Doc = doc
	leaf.attachments = func() (*AttachmentReader, error) {
		for ; len(about) > 0; about = about[1:] {
			if next := about[0]; next.Follows {
				about = about[1:]
				return l.attachment(leaf.Rev, next)
			}
		}
		return nil, io.EOF
	}
	return nil
}

// measure reads an attachment for its length.
func (l *jsonLeaves) measure(rev string, about Attachment) (int64, error) {
	a, err := l.attachment(rev, about.uncompressed())
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, a)
	return n, errors.Join(err, a.Close())
}

// multipartLeaves reads a multipart/mixed body. Each part is a document, a document with its attachments
// (multipart/related), or an error.
type multipartLeaves struct {
	parts       *partsReader
	id          string
	maxDocument int
	large       func() error // see jsontext.Reader
}

func newMultipartLeaves(r io.Reader, boundary, id string, maxDocument int) (*multipartLeaves, error) {
	if boundary == "" {
		return nil, fmt.Errorf("%w: a multipart body without a boundary", ErrMalformed)
	}
	return &multipartLeaves{parts: newPartsReader(r, boundary), id: id, maxDocument: maxDocument}, nil
}

func (l *multipartLeaves) next() (*Leaf, error) {
	part, err := l.parts.next()
	if err != nil {
		return nil, err
	}
	media, params, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: a part's Content-Type: %w", ErrMalformed, err)
	case media == jsonType:
		return l.document(part, params["error"] == "true")
	case media != "multipart/related" || params["boundary"] == "":
		return nil, fmt.Errorf("%w: a part that is %w", ErrMalformed, quoted(media))
	}
	related := newPartsReader(part, params["boundary"])
	first, err := related.next()
	if err != nil {
		return nil, cut(err)
	}
	leaf, err := l.document(first, false)
	if err != nil {
		return nil, err
	}
	about, err := leaf.Doc.Attachments()
	if err != nil {
		return nil, err
	}
	leaf.attachments = followingParts(related, about)
	return leaf, nil
}

// document reads a part that is JSON: a document, or an error like an error of _bulk_get.
func (l *multipartLeaves) document(r io.Reader, refused bool) (*Leaf, error) {
	body, err := l.readAll(r)
	if err != nil {
		return nil, err
	}
	if raw, err := wholeObject(body); err != nil {
		return nil, err
	} else if refused {
		f, _, err := parseFetched(DocRef{ID: l.id}, raw)
		return &Leaf{Fetched: f}, err
	}
	doc, err := ParseDocument(body)
	return &Leaf{Fetched: Fetched{ID: doc.ID, Rev: doc.Rev, Doc: doc}}, err
}

// readAll reads a part, with the same limits as a jsontext.Reader.
func (l *multipartLeaves) readAll(r io.Reader) ([]byte, error) {
	body := make([]byte, 0, 4<<10)
	for {
		if len(body) == cap(body) {
			if cap(body) > l.maxDocument {
				return nil, limited(ErrLimit, l.maxDocument)
			}
			if next := 2 * cap(body); next > jsontext.LargeValue && cap(body) <= jsontext.LargeValue && l.large != nil {
				if err := l.large(); err != nil {
					return nil, err
				}
			}
			body = append(make([]byte, 0, min(2*cap(body), l.maxDocument+1)), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// cut converts io.EOF into io.ErrUnexpectedEOF.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// followingParts returns an iterator over the parts of the attachments that follow.
func followingParts(parts *partsReader, about []Attachment) func() (*AttachmentReader, error) {
	var following map[string]int // number of attachments left, by name; made when needed
	return func() (*AttachmentReader, error) {
		for len(about) > 0 && !about[0].Follows {
			about = about[1:]
		}
		if len(about) == 0 {
			return nil, io.EOF
		}
		part, err := parts.next()
		if err != nil {
			return nil, fmt.Errorf("the part of %q: %w", about[0].Name, cut(err))
		}
		a := about[0]
		about = about[1:]
		// Names of parts are not reliable, so the order decides. A part that clearly belongs to another attachment is
		// an error.
		if name, escaped := partNames(part); name != a.Name && escaped != a.Name {
			if following == nil {
				following = make(map[string]int, len(about))
				for i, other := range about {
					if other.Follows {
						following[other.Name] = len(about) - i
					}
				}
			}
			for _, of := range []string{name, escaped} {
				if left, is := following[of]; is && left <= len(about) {
					return nil, fmt.Errorf("%w: the part of %q where that of %q should be", ErrMalformed, of, a.Name)
				}
			}
		}
		return NewAttachmentReader(a, part), nil
	}
}

type partsReader struct {
	parts *multipart.Reader
	body  *sealed
}

func newPartsReader(r io.Reader, boundary string) *partsReader {
	body := &sealed{r: r}
	return &partsReader{parts: multipart.NewReader(body, boundary), body: body}
}

// next returns the next part undecoded, and io.EOF after the last one.
func (p *partsReader) next() (*multipart.Part, error) {
	part, err := p.parts.NextRawPart()
	switch {
	case err == nil || err == io.EOF:
		p.body.begun = true
		return part, err
	case !p.body.begun && p.body.err == io.ErrUnexpectedEOF:
		return nil, fmt.Errorf("%w: it ends before its boundary has come: %w", ErrMalformed, io.ErrUnexpectedEOF)
	case p.body.err != nil:
		return nil, p.body.err // clearer than the error of mime/multipart
	}
	if !p.body.begun {
		return nil, fmt.Errorf("%w: a multipart body without its boundary", ErrMalformed)
	}
	return nil, fmt.Errorf("%w: %w", ErrMalformed, quoted(err.Error()))
}

// sealed is a multipart body that ends only with its last boundary. mime/multipart accepts some bodies that were cut
// off, so sealed returns an error instead of the end of r. It completes a last boundary that lacks the end of its line,
// as CouchDB sends it.
type sealed struct {
	r    io.Reader
	tail [2]byte // the last bytes read
	over bool    // r has ended and the line is complete
	err  error   // the first

	begun  bool  // the first part has come
	before int64 // bytes read before it
}

// maxPreamble is the maximum number of bytes before the first part of a multipart body.
const maxPreamble = 64 << 10

func (s *sealed) Read(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if !s.begun && s.before > maxPreamble {
		s.err = fmt.Errorf("%w: a multipart body without its boundary", ErrMalformed)
		return 0, s.err
	}
	if s.over {
		s.err = io.ErrUnexpectedEOF
		return 0, s.err
	}
	n, err := s.r.Read(b)
	s.before += int64(n)
	switch {
	case n > 1:
		s.tail = [2]byte(b[n-2 : n])
	case n == 1:
		s.tail = [2]byte{s.tail[1], b[0]}
	}
	switch {
	case err != io.EOF:
		s.err = err
	case n > 0:
		// The next call meets the end again.
	case string(s.tail[:]) == "--":
		s.over = true
		n = copy(b, "\r\n")
	default:
		s.err = io.ErrUnexpectedEOF
	}
	return n, s.err
}

// partNames returns the file name in a part's Content-Disposition in two readings: the raw text between the quotes, as
// CouchDB writes it, and the value by RFC 6266, which is empty if malformed.
func partNames(part *multipart.Part) (plain, escaped string) {
	disposition := part.Header.Get("Content-Disposition")
	_, plain, _ = strings.Cut(disposition, `filename="`)
	_, params, _ := mime.ParseMediaType(disposition)
	return strings.TrimSuffix(plain, `"`), params["filename"]
}
