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
)

// maxQuery is the size in bytes of the longest query that is sent. Servers and proxies refuse longer
// request lines, CouchDB's own replicator stays below 7,000 characters.
const maxQuery = 6500

// OpenRevsOptions says how to read a document's revisions.
type OpenRevsOptions struct {
	// Attachments asks for the attachments' bytes. Without it they are stubs.
	Attachments bool
	// AttsSince are revisions whose attachments need not come: those that are older stay stubs, on
	// servers that know it. If they are too many for a URL, the first ones count.
	AttsSince []string
}

// Leaves are revisions of one document, one at a time. They are not safe for concurrent use; what ends
// a Next that waits is its context.
type Leaves struct {
	d    *Database
	ctx  context.Context // of the requests that are made while the leaves are read
	id   string
	opts OpenRevsOptions

	revs []string // that are not asked for yet
	all  bool     // no revisions were named: one request asks for all leaves
	left int      // how many answers are still believed; negative if any number

	p       *response // nil between two requests
	answer  leafReader
	current *Leaf
	err     error // of Next, from its first on
}

// leafReader reads the leaves of one answer. After the last one, next returns io.EOF.
type leafReader interface {
	next() (*Leaf, error)
}

// Leaf is a revision of a document, or the reason why there is none, with its attachments.
type Leaf struct {
	Fetched

	attachments func() (*AttachmentReader, error) // nil: there are none to come
	open        *AttachmentReader                 // the last one that was handed out
	fail        func(error) error                 // adds which request it was
}

// OpenRevs asks for revisions of a document, or for all its leaves if revs is empty, each with its
// history (_revisions). If a revision has descendants, its latest leaves come instead (latest=true).
//
// The leaves come as multipart/mixed, with the attachments' bytes, from CouchDB. From a server that
// answers JSON, documents come without them, and each attachment is asked for when its turn comes; so
// no attachment is ever in memory. In both cases a document says "follows" of the attachments that
// [Leaf.NextAttachment] will return, as [Database.PutMultipart] wants it.
func (d *Database) OpenRevs(ctx context.Context, id string, revs []string, opts OpenRevsOptions) (*Leaves, error) {
	l := &Leaves{d: d, ctx: ctx, id: id, opts: opts, revs: revs, all: len(revs) == 0, left: -1}
	if !l.all {
		l.left = maxAnswers * len(revs)
	}
	if err := l.ask(); err != nil {
		return nil, err
	}
	return l, nil
}

// ask makes the next request, for as many revisions as a URL has room for.
func (l *Leaves) ask() error {
	q := url.Values{"revs": {"true"}, "latest": {"true"}, "open_revs": {"all"}}
	if !l.all {
		n := fitting(l.revs, maxQuery*2/3)
		q.Set("open_revs", string(appendStrings(nil, l.revs[:n])))
		l.revs = l.revs[n:]
	}
	if l.opts.Attachments {
		q.Set("att_encoding_info", "true")
	}
	inline := l.opts.Attachments && !l.d.jsonLeaves.Load()
	if inline {
		q.Set("attachments", "true")
		if n := fitting(l.opts.AttsSince, maxQuery/3); n > 0 {
			q.Set("atts_since", string(appendStrings(nil, l.opts.AttsSince[:n])))
		}
	}
	p, err := l.d.stream(l.ctx, &request{
		method: http.MethodGet, path: docPath(l.id), query: q,
		accept: mixedType, identity: inline,
	})
	if err != nil {
		return err
	}
	media, params, err := mime.ParseMediaType(p.header.Get("Content-Type"))
	if err == nil && media == mixedType {
		l.p = p
		leaves, err := newMultipartLeaves(p, params["boundary"], l.id, l.d.cfg.MaxDocument)
		if err != nil {
			p.Close()
			return p.fail(err)
		}
		leaves.large = l.d.large(l.ctx)
		l.answer = leaves
		return nil
	}
	l.d.jsonLeaves.Store(true)
	if inline {
		// This answer has whole attachments in its JSON. Ask again, without them.
		p.Close()
		q.Del("attachments")
		q.Del("atts_since")
		p, err = l.d.stream(l.ctx, &request{method: http.MethodGet, path: docPath(l.id), query: q})
		if err != nil {
			return err
		}
	}
	l.p = p
	j := newJSONReader(p, bulkWindow)
	j.large = l.d.large(l.ctx)
	l.answer = &jsonLeaves{j: j, id: l.id, maxDocument: l.d.cfg.MaxDocument, attachment: l.attachment}
	return nil
}

// fitting is how many of the revisions, at least one, take at most size bytes as an escaped JSON array.
func fitting(revs []string, size int) int {
	const around = len("%22%22%2C")
	for i, rev := range revs {
		if size -= len(url.QueryEscape(rev)) + around; size < 0 && i > 0 {
			return i
		}
	}
	return len(revs)
}

// Next returns the next leaf, and io.EOF after the last one. What was not read of the attachments of
// the leaf before is skipped. After an error all later calls return the same.
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
		l.err = fmt.Errorf("reading document %q: %w", l.id, err)
		if l.p != nil {
			l.err = l.p.fail(l.err)
			l.p.Close()
		}
	}
	return nil, l.err
}

func (l *Leaves) next() (*Leaf, error) {
	if l.current != nil {
		l.current.Close()
	}
	for {
		leaf, err := l.answer.next()
		if err == nil {
			return leaf, l.accept(leaf)
		}
		if err != io.EOF {
			return nil, err
		}
		l.p.finish()
		l.p = nil
		if len(l.revs) == 0 {
			return nil, io.EOF
		}
		if err := l.ask(); err != nil {
			return nil, err
		}
	}
}

// accept checks that a leaf is one that was asked for.
func (l *Leaves) accept(leaf *Leaf) error {
	if leaf.ID != l.id {
		return fmt.Errorf("%w: document %q was not asked for", ErrMalformed, leaf.ID)
	}
	if l.left == 0 {
		return fmt.Errorf("%w: more than %d answers for a revision", ErrLimit, maxAnswers)
	}
	l.left--
	if !l.opts.Attachments {
		leaf.attachments = nil
	}
	leaf.fail = l.p.fail
	return nil
}

// attachment asks for an attachment of a leaf that came as JSON. The request travels in the leaf's own
// slot: for a second one it could wait for ever.
func (l *Leaves) attachment(rev string, about Attachment) (*AttachmentReader, error) {
	return l.d.attachment(l.ctx, l.id, rev, about, true)
}

// Close gives up what was not read. It may be called more than once.
func (l *Leaves) Close() error {
	if l.err == nil {
		l.err = errors.New("the leaves are closed")
	}
	if l.current != nil {
		l.current.Close()
	}
	if l.p == nil {
		return nil
	}
	return l.p.Close()
}

// NextAttachment returns the next of the attachments that follow, in the order in which the document
// names them, and io.EOF after the last one. Until the next call it is good to be read.
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
	}
	l.open = a
	return a, err
}

// explain says of what an attachment's error is.
func (l *Leaf) explain(err error) error {
	return l.fail(fmt.Errorf("attachments of document %q: %w", l.ID, err))
}

// Close gives up the attachment that is being read. Leaves closes its leaves itself.
func (l *Leaf) Close() {
	if l.open != nil {
		l.open.Close()
		l.open = nil
	}
	l.attachments = nil
}

// jsonLeaves reads [{"ok": document}, {"missing": rev}, ...].
type jsonLeaves struct {
	j           *jsonReader
	id          string
	maxDocument int
	attachment  func(rev string, about Attachment) (*AttachmentReader, error)
	inside      bool
}

func (l *jsonLeaves) next() (*Leaf, error) {
	l.j.forget()
	if !l.inside {
		if err := l.j.open('['); err != nil {
			return nil, err
		}
		l.inside = true
	}
	ok, err := l.j.element()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, io.EOF
	}
	raw, err := l.j.value(l.maxDocument)
	if err != nil {
		return nil, limited(err, l.maxDocument)
	}
	f, _, err := parseFetched(DocRef{ID: l.id}, raw)
	f.Doc.Body = bytes.Clone(f.Doc.Body) // raw is good until the next call
	leaf := &Leaf{Fetched: f}
	if err == nil && f.Doc.HasAttachments() {
		err = l.attach(leaf)
	}
	return leaf, err
}

// attach makes a leaf whose attachments are stubs look like one whose attachments follow.
func (l *jsonLeaves) attach(leaf *Leaf) error {
	doc, err := leaf.Doc.following()
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

// multipartLeaves reads a multipart/mixed body. Each of its parts is a document, a document with the
// parts of its attachments (multipart/related), or an error.
type multipartLeaves struct {
	parts       *partsReader
	id          string
	maxDocument int
	large       func() error // see jsonReader
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
		return nil, fmt.Errorf("%w: a part that is %s", ErrMalformed, excerpt(media))
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

// document reads a part that is JSON: a document, or an error in the shape of one of _bulk_get's.
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

// readAll reads a part, as jsonReader reads a value.
func (l *multipartLeaves) readAll(r io.Reader) ([]byte, error) {
	body := make([]byte, 0, 4<<10)
	for {
		if len(body) == cap(body) {
			if cap(body) > l.maxDocument {
				return nil, limited(ErrLimit, l.maxDocument)
			}
			if next := 2 * cap(body); next > largeValue && cap(body) <= largeValue && l.large != nil {
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

// followingParts returns a function that returns, one by one, the parts of the attachments that follow.
func followingParts(parts *partsReader, about []Attachment) func() (*AttachmentReader, error) {
	var following map[string]int // how many attachments are left from the one of that name on; made if need be
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
		// Parts have no names of their own that could be relied on: their order says which is which.
		// Only a part that clearly is another's is not taken.
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

// partsReader reads the parts of a multipart body.
type partsReader struct {
	parts *multipart.Reader
	body  *sealed
}

func newPartsReader(r io.Reader, boundary string) *partsReader {
	body := &sealed{r: r}
	return &partsReader{parts: multipart.NewReader(body, boundary), body: body}
}

// next returns the next part, with its bytes as they are, and io.EOF after the last one.
func (p *partsReader) next() (*multipart.Part, error) {
	part, err := p.parts.NextRawPart()
	switch {
	case err == nil || err == io.EOF:
		p.body.begun = true
		return part, err
	case !p.body.begun && p.body.err == io.ErrUnexpectedEOF:
		return nil, fmt.Errorf("%w: it ends before its boundary has come: %w", ErrMalformed, io.ErrUnexpectedEOF)
	case p.body.err != nil:
		return nil, p.body.err // what mime/multipart makes of it is less clear
	}
	if !p.body.begun {
		return nil, fmt.Errorf("%w: a multipart body without its boundary", ErrMalformed)
	}
	return nil, fmt.Errorf("%w: %s", ErrMalformed, excerpt(err.Error()))
}

// sealed is a multipart body that cannot end but with its last boundary. mime/multipart takes some
// bodies that were cut off for ones that ended, so this one never ends: where r does, it is broken.
// Only a last boundary without the end of its line, as CouchDB sends it, is given one first.
type sealed struct {
	r    io.Reader
	tail [2]byte // the last bytes read
	over bool    // r has ended, and the line was
	err  error   // the first

	begun  bool  // the first part has come
	before int64 // how much was read before that
}

// maxPreamble is how many bytes may stand before the first part of a multipart body.
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
		// The end is met again by the next call.
	case string(s.tail[:]) == "--":
		s.over = true
		n = copy(b, "\r\n")
	default:
		s.err = io.ErrUnexpectedEOF
	}
	return n, s.err
}

// partNames returns the file name in a part's Content-Disposition in two readings: as CouchDB writes
// it, between quotes as it is, and as RFC 6266 says, which is empty if it cannot be read so.
func partNames(part *multipart.Part) (plain, escaped string) {
	disposition := part.Header.Get("Content-Disposition")
	_, plain, _ = strings.Cut(disposition, `filename="`)
	_, params, _ := mime.ParseMediaType(disposition)
	return strings.TrimSuffix(plain, `"`), params["filename"]
}
