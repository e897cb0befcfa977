package couch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"settee/pkg/redact"
)

const (
	// maxPouchDocument is the maximum size in bytes of a document that PouchDB Server accepts in a multipart body. It
	// never answers to a larger one.
	maxPouchDocument = 2 << 20
	// maxKept is the number of bytes of a body that are kept while it is sent, so that a small one can be sent again
	// although its attachments come from a stream.
	maxKept = 64 << 10
	// maxInline is the maximum number of bytes of attachments that PutInline sends within a document. Servers hold it in
	// memory as a whole.
	maxInline = 4 << 20
	// fillTime is how long the bytes of a slow source may wait to be sent together.
	fillTime = 100 * time.Millisecond
)

// AttachmentSource returns attachments one by one, and io.EOF after the last one. Each is read before the next call.
// [Leaf] is an AttachmentSource.
type AttachmentSource interface {
	NextAttachment() (*AttachmentReader, error)
}

// PutMultipart writes a revision as it is (new_edits=false) with its attachments that follow. source returns
// them in the document's order, and is not used if there are none. Attachments are streamed and never held in memory.
//
// The write is repeated after an error only if little of it was sent. For larger writes the caller starts over with a
// new source. An error of source is returned unchanged, prefixed with the attachment's name. All other errors come from
// the target database.
//
// CouchDB does not answer Expect: 100-continue before it reads a multipart body, so it is not asked. If it refuses a
// large body unread, its answer may be lost. So the next write of a document whose write ended without an answer asks,
// and waits for a while.
//
// Requests to PouchDB Server differ; see attachedBody.
func (d *Database) PutMultipart(ctx context.Context, doc Document, source AttachmentSource) error {
	return d.put(ctx, doc, source, false)
}

// PutInline is PutMultipart, except that it sends attachments within the document, uncompressed and in base64: for
// servers, and proxies before them, that refuse a multipart body. Attachments of more than 4 MiB together, or of unknown
// size, it sends like PutMultipart. The target does not compare any of them with its digest.
func (d *Database) PutInline(ctx context.Context, doc Document, source AttachmentSource) error {
	return d.put(ctx, doc, source, true)
}

func (d *Database) put(ctx context.Context, doc Document, source AttachmentSource, inline bool) error {
	body, content, err := d.attachedBody(doc, source, inline)
	if err != nil {
		return err
	}
	_, again := d.brokenOff.LoadAndDelete(doc.ID)
	err = d.fetch(ctx, &request{
		method: http.MethodPut, path: docPath(doc.ID), query: url.Values{"new_edits": {"false"}},
		content: content, body: body, unasked: content != jsonType && !again,
	}, maxInfo, func(answer []byte) error { return putAnswer(doc, answer, d.hidden) })
	if broken := body.sourceError(); broken != nil && err != nil {
		return broken
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Status == 0 {
		d.brokenOff.Store(doc.ID, true)
	}
	return err
}

// putAnswer finds a refusal in the answer to a write. CouchDB answers with an object, PouchDB Server with an array like
// the answer to _bulk_docs.
func putAnswer(doc Document, answer []byte, hidden redact.Set) error {
	answer = bytes.TrimSpace(answer)
	if !json.Valid(answer) {
		return fmt.Errorf("%w: the answer to a write is not JSON", ErrMalformed)
	}
	e, refused := docError(answer)
	switch {
	case isArray(answer):
		all, err := readRefused(bytes.NewReader(answer))
		if err != nil || len(all) == 0 {
			return err
		}
		e = &all[0]
	case saysWritten(answer):
		return nil
	case !refused:
		return fmt.Errorf("%w: the answer to a write does not say that it was done", ErrMalformed)
	}
	e.ID, e.Rev = doc.ID, doc.Rev
	return e.redacted(hidden)
}

// saysWritten reports whether an answer confirms the write. A gateway may answer 200 without having written anything.
func saysWritten(answer []byte) bool {
	var said struct {
		OK    bool   `json:"ok"`
		Rev   string `json:"rev"`
		Error string `json:"error"`
	}
	return json.Unmarshal(answer, &said) == nil && said.Error == "" && (said.OK || said.Rev != "")
}

// attachedBody returns the body of a document with its attachments.
//
// It is multipart/related, or, if inline is set and the attachments are small, plain JSON with the attachments in base64.
// CouchDB matches parts by their order. PouchDB Server matches them by their names, which it decodes like names of
// browsers. If a name does not survive that, or the document is larger than maxPouchDocument, PouchDB Server gets plain
// JSON, too. Neither it nor plain JSON supports encodings, so compressed attachments are decompressed for them.
func (d *Database) attachedBody(doc Document, source AttachmentSource, inline bool) (*streamedBody, string, error) {
	pouch := d.express.Load()
	inline = inline && doc.fitsInline()
	if pouch || inline {
		var err error
		if doc, err = doc.decoded(); err != nil {
			return nil, "", err
		}
		source = decodedSource{source}
	}
	about, err := doc.Attachments()
	if err != nil {
		return nil, "", err
	}
	inline = inline || pouch && len(doc.Body) > maxPouchDocument
	follow := about[:0]
	for _, a := range about {
		if a.Follows {
			follow = append(follow, a)
			inline = inline || pouch && !fitsPouchPart(a)
		}
	}
	body := &streamedBody{source: source, attachments: follow}
	switch {
	case len(follow) == 0:
		body.between = [][]byte{doc.Body}
		return body, jsonType, nil
	case inline:
		body.inline(doc)
		return body, jsonType, nil
	}
	boundary := rand.Text()
	body.multipart(doc, boundary)
	return body, `multipart/related; boundary="` + boundary + `"`, nil
}

// fitsInline reports whether the attachments that follow a document are of known size, at most maxInline bytes, and not
// compressed in a way that is not known.
func (d Document) fitsInline() bool {
	all, err := d.Attachments()
	var total int64
	for _, a := range all {
		switch {
		case !a.Follows:
		case a.Length < 0 || a.size() < 0 || a.Encoding != "" && a.Encoding != "gzip":
			return false
		default:
			total += a.Length
		}
	}
	return err == nil && total <= maxInline
}

// decoded returns the document with its compressed attachments described as plain ones.
func (d Document) decoded() (Document, error) {
	return d.withAttachments(func(a Attachment, object []byte) ([]byte, error) {
		if !a.Follows || a.Encoding == "" {
			return object, nil
		}
		return uncompressed(a, object), nil
	})
}

// decodedSource decompresses attachments.
type decodedSource struct{ AttachmentSource }

func (s decodedSource) NextAttachment() (*AttachmentReader, error) {
	a, err := s.AttachmentSource.NextAttachment()
	if err != nil || a.Encoding == "" {
		return a, err
	}
	if a.Encoding != "gzip" {
		return nil, fmt.Errorf("attachment %q: %w: its encoding is %w", a.Name, ErrMalformed, quoted(a.Encoding))
	}
	plain, err := gzip.NewReader(a)
	if err != nil {
		return nil, fmt.Errorf("attachment %q: decompressing it: %w", a.Name, err)
	}
	return NewAttachmentReader(a.uncompressed(), plain), nil // a checks the compressed bytes
}

// fitsPouchPart reports whether PouchDB Server would read an attachment's name and type correctly from a part's
// headers.
func fitsPouchPart(a Attachment) bool {
	for _, trap := range []string{`"`, `\`, "%22", "&#"} {
		if strings.Contains(a.Name, trap) {
			return false
		}
	}
	for _, text := range []string{a.Name, a.ContentType} {
		if text == "" || text != strings.TrimSpace(text) || text != headerValue(text) {
			return false
		}
	}
	return true
}

// headerValue makes text safe for a header.
func headerValue(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '_'
		}
		return r
	}, text)
}

// streamedBody is a request body built while it is sent: the elements of between, with an attachment after each except
// the last.
type streamedBody struct {
	source      AttachmentSource
	attachments []Attachment
	between     [][]byte
	base64      bool // the attachments' bytes are written in base64

	mu       sync.Mutex
	closed   bool   // the exchange is over
	kept     []byte // bytes sent so far, while they are few
	outgrown bool   // too much was sent to be kept
	replay   int    // bytes of kept that this try has sent
	at       int    // index in between
	piece    io.Reader
	err      error // of source
}

// multipart returns a body with one part for the document and one for each attachment. CouchDB takes an attachment's
// name and type from the document, by the order of the parts.
func (s *streamedBody) multipart(doc Document, boundary string) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "--%s\r\nContent-Type: application/json\r\n\r\n", boundary)
	b.Write(doc.Body)
	for _, a := range s.attachments {
		fmt.Fprintf(&b, "\r\n--%s\r\nContent-Disposition: attachment; filename=\"%s\"\r\nContent-Type: %s\r\n",
			boundary, strings.ReplaceAll(headerValue(a.Name), `"`, "_"), headerValue(a.ContentType))
		if size := a.size(); size >= 0 {
			fmt.Fprintf(&b, "Content-Length: %d\r\n", size)
		}
		if a.Encoding != "" {
			fmt.Fprintf(&b, "Content-Encoding: %s\r\n", headerValue(a.Encoding))
		}
		b.WriteString("\r\n")
		s.between = append(s.between, b.Bytes())
		b = bytes.Buffer{}
	}
	fmt.Fprintf(&b, "\r\n--%s--", boundary)
	s.between = append(s.between, b.Bytes())
}

// inline returns a JSON body with the attachments in base64.
func (s *streamedBody) inline(doc Document) {
	s.base64 = true
	span := doc.attachments
	rest := append([]byte(nil), doc.Body[:span.start]...)
	separator := byte('{')
	// The document was parsed before and has no error.
	_ = doc.eachAttachment(func(a Attachment, name, object []byte) error {
		rest = append(append(append(rest, separator), name...), ':')
		separator = ','
		if !a.Follows {
			rest = append(rest, object...)
			return nil
		}
		object = withoutMembers(object, `"data":"`, "follows", "length", "data")
		s.between = append(s.between, append(rest, object[:len(object)-1]...))
		rest = []byte(`"}`)
		return nil
	})
	s.between = append(s.between, append(append(rest, '}'), doc.Body[span.end:]...))
}

// open begins the body. In a later try it repeats the kept bytes first.
func (s *streamedBody) open() (io.Reader, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = false
	s.replay = 0
	return s, s.length()
}

// length returns the body's size in bytes, or -1 if it is unknown.
func (s *streamedBody) length() int64 {
	var total int64
	for _, piece := range s.between {
		total += int64(len(piece))
	}
	for _, a := range s.attachments {
		size := a.size()
		if size < 0 {
			return -1
		}
		if s.base64 {
			size = int64(base64.StdEncoding.EncodedLen(int(size)))
		}
		total += size
	}
	return total
}

func (s *streamedBody) again() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.outgrown && s.err == nil
}

// done waits for an active Read and prevents further ones.
func (s *streamedBody) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *streamedBody) sourceError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

var errExchangeOver = errors.New("the exchange is over")

// Read reads the body of one try.
func (s *streamedBody) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		if s.err == nil && s.sentAll() {
			return 0, io.EOF // the answer may come before the transport has read the end
		}
		return 0, errExchangeOver
	}
	if s.replay < len(s.kept) {
		n := copy(p, s.kept[s.replay:])
		s.replay += n
		return n, nil
	}
	n, err := s.make(p)
	if s.outgrown = s.outgrown || len(s.kept)+n > maxKept; s.outgrown {
		s.kept, s.replay = nil, 0
	} else {
		s.kept = append(s.kept, p[:n]...)
		s.replay = len(s.kept)
	}
	return n, err
}

func (s *streamedBody) sentAll() bool {
	if s.replay < len(s.kept) || s.at <= 2*len(s.attachments) {
		return false
	}
	last, ok := s.piece.(*bytes.Reader)
	return s.piece == nil || ok && last.Len() == 0
}

// make produces the next bytes of the body.
func (s *streamedBody) make(p []byte) (int, error) {
	for {
		if s.piece == nil {
			if s.at == 2*len(s.attachments)+1 {
				return 0, io.EOF
			}
			if s.err != nil {
				return 0, s.err
			}
			if s.piece, s.err = s.nextPiece(); s.err != nil {
				return 0, s.err
			}
			s.at++
		}
		n, err := fill(p, s.piece)
		if err == io.EOF {
			s.piece = nil
			err = nil
		}
		if err != nil {
			s.err = err
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// fill reads until p is full, or fillTime has passed since it began. A part of a multipart body comes in pieces of at most 4 KiB,
// and each would be a write to the target's connection.
func fill(p []byte, r io.Reader) (n int, err error) {
	for began := time.Now(); err == nil && n < len(p) && (n == 0 || time.Since(began) < fillTime); {
		var more int
		more, err = r.Read(p[n:])
		n += more
	}
	return n, err
}

// nextPiece returns piece number at. Even pieces come from between, odd ones are attachments.
func (s *streamedBody) nextPiece() (io.Reader, error) {
	if s.at%2 == 0 {
		return bytes.NewReader(s.between[s.at/2]), nil
	}
	want := s.attachments[s.at/2]
	a, err := s.source.NextAttachment()
	switch {
	case err == io.EOF:
		return nil, fmt.Errorf("attachment %q was announced and does not come: %w", want.Name, io.ErrUnexpectedEOF)
	case err != nil:
		return nil, fmt.Errorf("attachment %q: %w", want.Name, err)
	case a.Name != want.Name || a.size() != want.size() || a.Encoding != want.Encoding:
		return nil, fmt.Errorf("%w: attachment %q (%d bytes) where %q (%d bytes) was announced",
			ErrMalformed, a.Name, a.size(), want.Name, want.size())
	}
	if s.base64 {
		return &base64Reader{r: a}, nil
	}
	return a, nil
}

// base64Reader encodes what it reads.
type base64Reader struct {
	r       io.Reader
	raw     [3 << 10]byte
	encoded [4 << 10]byte
	out     []byte // encoded, not yet read
	err     error  // of r
}

func (b *base64Reader) Read(p []byte) (int, error) {
	for len(b.out) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		var n int
		n, b.err = io.ReadFull(b.r, b.raw[:])
		if b.err == io.ErrUnexpectedEOF {
			b.err = io.EOF // the last, shorter piece; a cut-off input has a clearer error
		}
		base64.StdEncoding.Encode(b.encoded[:], b.raw[:n])
		b.out = b.encoded[:base64.StdEncoding.EncodedLen(n)]
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	return n, nil
}
